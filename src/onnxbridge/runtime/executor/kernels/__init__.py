"""Compiled kernels: written in Python (`numba/`) and compiled by Numba, over tiles in LLVM's language.

Every address is an int64, every tensor contiguous; each kernel documents its arguments. Where Numba is
missing `availability.available()` is False and the executor runs its NumPy rules.
"""
