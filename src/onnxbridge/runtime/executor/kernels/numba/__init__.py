"""Loops over data, in the part of Python that `compiler.py` knows. Only the compiler imports these modules."""
