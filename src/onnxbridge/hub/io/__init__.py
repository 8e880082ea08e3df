"""ONNX files in and out, safely."""
