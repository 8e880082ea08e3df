"""The hub's intermediate representation: building, reading, type inference and constant folding of ONNX graphs."""
