"""The hub model in memory: building, reading, typing and folding ONNX graphs at the hub's opset."""
