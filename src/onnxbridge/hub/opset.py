"""The one opset of the hub."""

OPSET = 26
