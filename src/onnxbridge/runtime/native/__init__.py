"""Machine code: loops compiled once, from Python or straight from LLVM's own language, and kept as object files.

Python's loops (`loops/`) become LLVM's language too (`compiler/`), and LLVM makes code for exactly this processor of both, by
way of llvmlite. A later process loads the object files, which takes milliseconds.
Every address is an int64, every tensor contiguous; what the loops mean by their arguments stands with the loops.
Where llvmlite is missing `available()` is False and the executor runs its NumPy rules.
"""
