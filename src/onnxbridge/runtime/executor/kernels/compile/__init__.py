"""Compiling kernels with Numba and LLVM, and caching them."""
