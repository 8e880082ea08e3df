"""Complex tensors as pairs of real tensors, for which ONNX has no operators: arithmetic, functions and Fourier transforms."""
