"""The hub's opset, and the lowest opset written by default."""

OPSET = 26
LOWEST_WRITTEN = 18
