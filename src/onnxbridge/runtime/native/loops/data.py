"""What kernels see memory with, and the sizes of the tiles."""

from __future__ import annotations

from onnxbridge.runtime.native import machine, quantized, tile
from onnxbridge.runtime.native.jit import doubles, floats, ints, longs, octets, signed

__all__ = ["doubles", "floats", "ints", "longs", "octets", "signed"]

BYTE_ROWS, BYTE_LANES, BYTE_PANEL = quantized.rows(), quantized.lanes(), quantized.panel()
ROWS, LANES, PANEL, PIXELS = tile.rows(), machine.lanes(), tile.panel(), tile.PIXELS
