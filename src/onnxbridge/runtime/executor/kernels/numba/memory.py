"""Typed access to memory for kernels, and the sizes of the tiles."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile import byte_tiles, float_tiles, llvm
from onnxbridge.runtime.executor.kernels.compile.jit import doubles, floats, int8s, ints, longs, uint8s

__all__ = ["doubles", "floats", "ints", "longs", "uint8s", "int8s"]

BYTE_ROWS, BYTE_LANES, BYTE_PANEL = byte_tiles.rows(), byte_tiles.lanes(), byte_tiles.panel()
ROWS, LANES, PANEL, PIXELS = float_tiles.rows(), llvm.lanes(), float_tiles.panel(), float_tiles.PIXELS
