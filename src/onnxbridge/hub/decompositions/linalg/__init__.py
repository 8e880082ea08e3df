"""Matrix factorizations written as ONNX loops."""
