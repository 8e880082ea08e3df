"""Operators written in simpler operators: ONNX's, ONNX Runtime's (com.microsoft), linear algebra and gradients."""
