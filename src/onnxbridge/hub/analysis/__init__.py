"""Analyses of hub models and ONNX models: differences of two graphs, the cost of one."""
