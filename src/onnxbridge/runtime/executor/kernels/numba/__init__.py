"""Kernels, and the driver that calls them: what Numba compiles. Importing these modules imports Numba."""
