"""Compiled kernels: written in Python (`loops/`) and compiled by Numba, over tiles in LLVM's language.

Every address is an int64, every tensor contiguous; what the kernels mean by their arguments stands with them. Where Numba is
missing `presence.available()` is False and the executor runs its NumPy rules.
"""
