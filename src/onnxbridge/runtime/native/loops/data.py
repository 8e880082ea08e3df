"""Addresses as data, the tiles as functions, and what they were made for."""

from __future__ import annotations

from onnxbridge.runtime.native import machine, quantized, tile
from onnxbridge.runtime.native.compiler.kinds import Extern, Pointer

BYTE_ROWS, BYTE_LANES, BYTE_PANEL = quantized.rows(), quantized.lanes(), quantized.panel()
ROWS, LANES, PANEL, PIXELS = tile.rows(), machine.lanes(), tile.panel(), tile.PIXELS

product = Extern("onnxbridge_product", "iiiiiiiiiiiiff", "tile")
channelwise = Extern("onnxbridge_channelwise", "iiiiiiiiiiiiff", "tile")
WIDE_LANES = tile.double().lanes
wide_product = Extern("onnxbridge_wide_product", "iiiiiiiiiiiiff", "wide")
wide_channelwise = Extern("onnxbridge_wide_channelwise", "iiiiiiiiiiiiff", "wide")
byte_product = Extern("onnxbridge_bytes", "iiiiiii", "quantized")
spread = Extern("onnxbridge_spread", "iiii", "minimal")
gather = Extern("onnxbridge_gather", "iiiiiiff", "minimal")

floats, doubles = Pointer("f32"), Pointer("f64")
ints, longs = Pointer("i32"), Pointer("i64")
octets, signed = Pointer("u8"), Pointer("i8")
