"""Finds the first value at which two models differ by more than rounding."""
