"""Decompositions into simpler ONNX operators: of ONNX's own, of ONNX Runtime's (com.microsoft), factorizations and gradients."""
