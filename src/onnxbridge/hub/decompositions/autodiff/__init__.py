"""Gradients of ONNX graphs in ONNX operators, by reverse-mode differentiation."""
