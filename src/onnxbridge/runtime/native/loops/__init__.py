"""Loops over float32 data as Numba compiles them. Only the compiler imports these modules."""
