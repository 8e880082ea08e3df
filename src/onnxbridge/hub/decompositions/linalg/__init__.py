"""Matrix factorizations as loops of ONNX operators."""
