"""Special functions of float64 values, for frontends whose source framework has them as operators."""
