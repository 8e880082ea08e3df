"""The hub's opset, and the lowest opset that is written by default."""

OPSET = 26
LOWEST_WRITTEN = 18
