"""The bundled executor: ONNX models in NumPy, with kernels compiled by Numba."""
