"""Reads the weights of a layer: float32, float16, or quantized to 1 to 8 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Array


def read(stored: Any, shape: tuple[int, ...], channels: int = 0) -> Array:
    """The array in a WeightParams message. `channels` is the axis along which quantized weights have their scales.

    Raises:
        UnsafeFileError: if the file has a different number of elements.
    """
    count = math.prod(shape)
    if stored.rawValue or stored.int8RawValue:
        bits = int(stored.quantization.numberOfBits) if stored.rawValue else 8
        available = len(stored.rawValue) * 8 // max(bits, 1) if stored.rawValue else len(stored.int8RawValue)
        if not 1 <= bits <= 8 or available < count:
            raise UnsafeFileError(f"a layer's weights have {available} numbers of {bits} bits, expected {count}")
        return _dequantize(_quantized_values(stored, count).reshape(shape), stored.quantization, channels)
    found = _floats(stored)
    if found.size != count:
        raise UnsafeFileError(f"a layer's weights have {found.size} numbers, expected {count}")
    return found.reshape(shape)


def flat(stored: Any) -> Array:
    """All numbers in a WeightParams message as a flat array, if the shape is unknown.

    Raises:
        UnsafeFileError: if quantized weights have several scales.
    """
    if not stored.rawValue and not stored.int8RawValue:
        return _floats(stored)
    if len(stored.quantization.linearQuantization.scale) > 1:
        raise UnsafeFileError("weights of unknown shape have per-channel scales")
    bits = int(stored.quantization.numberOfBits)
    count = len(stored.int8RawValue) or len(stored.rawValue) * 8 // max(bits, 1)
    return read(stored, (count,))


def _floats(stored: Any) -> Array:
    if stored.floatValue:
        return np.array(stored.floatValue, np.float32)
    if len(stored.float16Value) % 2:
        raise UnsafeFileError(f"a layer's float16 weights have an odd number of bytes, {len(stored.float16Value)}")
    return np.frombuffer(stored.float16Value, np.float16).astype(np.float32)


def _quantized_values(stored: Any, count: int) -> Array:
    """The quantized integers: packed from the highest bit of the first byte on or, for int8RawValue, signed bytes."""
    if stored.int8RawValue:
        return np.frombuffer(stored.int8RawValue, np.int8)[:count]
    bits = int(stored.quantization.numberOfBits)
    bits_of = np.unpackbits(np.frombuffer(stored.rawValue, np.uint8))[: bits * count].reshape(count, bits)
    found: Array = (bits_of.astype(np.uint8) << np.arange(bits, dtype=np.uint8)[::-1]).sum(1, dtype=np.uint8)
    return found


def _dequantize(quantized: Array, params: Any, channels: int) -> Array:
    """Dequantize by a lookup table, or as `quantized * scale + bias` per tensor or per channel."""
    if params.WhichOneof("QuantizationType") == "lookupTableQuantization":
        table: Array = np.array(params.lookupTableQuantization.floatValue, np.float32)
        if quantized.size and int(quantized.max()) >= table.size:
            raise UnsafeFileError(
                f"a layer's weights have index {int(quantized.max())} into a lookup table of {table.size} entries"
            )
        looked_up: Array = table[quantized]
        return looked_up
    linear = params.linearQuantization
    size = quantized.shape[channels]
    if any(len(v) not in (0, 1, size) for v in (linear.scale, linear.bias)):
        counts = f"{len(linear.scale)} scales and {len(linear.bias)} biases"
        raise UnsafeFileError(f"a layer's weights of {size} channels have {counts}")
    scale_shape = [-1 if a == channels else 1 for a in range(quantized.ndim)]
    scale, bias = (
        np.array(v or [default], np.float32).reshape(scale_shape if len(v) > 1 else [])
        for v, default in ((linear.scale, 1), (linear.bias, 0))
    )
    found: Array = quantized.astype(np.float32) * scale + bias
    return found
