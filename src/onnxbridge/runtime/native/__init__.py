"""Machine code for float32: loops compiled once by Numba or straight from LLVM's own language, kept as object files.

A later process loads the object files through llvmlite alone, which takes milliseconds; Numba is imported only to compile.
Every address is an int64, every tensor contiguous; what the loops mean by their arguments stands with the loops.
Where llvmlite or Numba is missing `available()` is False and the executor runs its NumPy rules.
"""
