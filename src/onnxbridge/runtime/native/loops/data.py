"""Addresses as data, the tiles as functions, and what they were made for."""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic

from onnxbridge.runtime.native import machine, quantized, tile

BYTE_ROWS, BYTE_LANES, BYTE_PANEL = quantized.rows(), quantized.lanes(), quantized.panel()
ROWS, LANES, PANEL, PIXELS = tile.rows(), machine.lanes(), tile.panel(), tile.PIXELS

_TILE = types.void(*[types.int64] * 12, types.float32, types.float32)
product = types.ExternalFunction("onnxbridge_product", _TILE)
channelwise = types.ExternalFunction("onnxbridge_channelwise", _TILE)
byte_product = types.ExternalFunction("onnxbridge_bytes", types.void(*[types.int64] * 7))

inline = numba.njit(
    error_model="numpy", fastmath={"contract", "reassoc", "nsz"}, no_cpython_wrapper=True, no_cfunc_wrapper=True
)  # nobody but these loops calls them


def _pointer(kind: Any) -> Any:
    def typed(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(types.CPointer(kind)))

        return types.CPointer(kind)(types.int64), generate

    return intrinsic(typed)


floats = _pointer(types.float32)
doubles = _pointer(types.float64)
ints = _pointer(types.int32)
longs = _pointer(types.int64)
octets = _pointer(types.uint8)
signed = _pointer(types.int8)
