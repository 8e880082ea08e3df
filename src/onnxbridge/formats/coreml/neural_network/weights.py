"""The weights of a layer: float32, float16, or quantized to a few bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Array


def read(stored: Any, shape: tuple[int, ...], channels: int = 0) -> Array:
    """The array in a WeightParams message. `channels` is the axis along which quantized weights have their scales.

    Raises:
        UnsafeFileError: if the file holds another number of elements.
    """
    count = math.prod(shape)
    if stored.rawValue or stored.int8RawValue:
        bits = int(stored.quantization.numberOfBits) if stored.rawValue else 8
        held = len(stored.rawValue) * 8 // max(bits, 1) if stored.rawValue else len(stored.int8RawValue)
        if not 1 <= bits <= 8 or held < count:
            raise UnsafeFileError(f"a layer's weights hold {held} numbers of {bits} bits instead of {count}")
        return _unquantized(_steps(stored, count).reshape(shape), stored.quantization, channels)
    found = _floats(stored)
    if found.size != count:
        raise UnsafeFileError(f"a layer's weights hold {found.size} numbers instead of {count}")
    return found.reshape(shape)


def flat(stored: Any) -> Array:
    """All the numbers in a WeightParams message whose shape only its reader knows, and that have one scale.

    Raises:
        UnsafeFileError: if quantized ones have several.
    """
    if not stored.rawValue and not stored.int8RawValue:
        return _floats(stored)
    if len(stored.quantization.linearQuantization.scale) > 1:
        raise UnsafeFileError("weights of an unknown shape have a scale for each channel")
    bits = int(stored.quantization.numberOfBits)
    count = len(stored.int8RawValue) or len(stored.rawValue) * 8 // max(bits, 1)
    return read(stored, (count,))


def _floats(stored: Any) -> Array:
    if stored.floatValue:
        return np.array(stored.floatValue, np.float32)
    if len(stored.float16Value) % 2:
        raise UnsafeFileError(f"a layer's weights of float16 take {len(stored.float16Value)} bytes, which is odd")
    return np.frombuffer(stored.float16Value, np.float16).astype(np.float32)


def _steps(stored: Any, count: int) -> Array:
    """The whole numbers that are stored: packed from the highest bit of the first byte on or, for int8RawValue, signed bytes."""
    if stored.int8RawValue:
        return np.frombuffer(stored.int8RawValue, np.int8)[:count]
    bits = int(stored.quantization.numberOfBits)
    places = np.unpackbits(np.frombuffer(stored.rawValue, np.uint8))[: bits * count].reshape(count, bits)
    found: Array = (places.astype(np.uint8) << np.arange(bits, dtype=np.uint8)[::-1]).sum(1, dtype=np.uint8)
    return found


def _unquantized(steps: Array, params: Any, channels: int) -> Array:
    """The numbers that the steps stand for: of a table, or `step * scale + bias` for all or for each channel."""
    if params.WhichOneof("QuantizationType") == "lookupTableQuantization":
        table: Array = np.array(params.lookupTableQuantization.floatValue, np.float32)
        if steps.size and int(steps.max()) >= table.size:
            raise UnsafeFileError(f"a layer's weights look up number {int(steps.max())} of a table of {table.size}")
        looked_up: Array = table[steps]
        return looked_up
    linear = params.linearQuantization
    size = steps.shape[channels]
    if any(len(v) not in (0, 1, size) for v in (linear.scale, linear.bias)):
        counts = f"{len(linear.scale)} scales and {len(linear.bias)} biases"
        raise UnsafeFileError(f"a layer's weights of {size} channels have {counts}")
    along = [-1 if a == channels else 1 for a in range(steps.ndim)]
    scale, bias = (
        np.array(v or [default], np.float32).reshape(along if len(v) > 1 else [])
        for v, default in ((linear.scale, 1), (linear.bias, 0))
    )
    found: Array = steps.astype(np.float32) * scale + bias
    return found
