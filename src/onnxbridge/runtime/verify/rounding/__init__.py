"""How far rounding can move an output."""
