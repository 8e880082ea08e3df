"""The weights of a layer: float32, float16, or quantized to a few bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.runtime.mil.program import Array


def read(stored: Any, shape: tuple[int, ...], channels: int = 0) -> Array:
    """The array in a WeightParams message. `channels` is the axis along which quantized weights have their scales.

    Raises:
        UnsafeFileError: if the file holds another number of elements.
    """
    count = int(np.prod(shape))
    if stored.floatValue:
        found: Array = np.array(stored.floatValue, np.float32)
    elif stored.float16Value:
        found = np.frombuffer(stored.float16Value, np.float16).astype(np.float32)
    elif stored.rawValue:
        return _quantized(stored, shape, channels)
    elif stored.int8RawValue:
        raise Unsupported("weights of int8 with a scale of the input, whose rounding Core ML does not document")
    else:
        found = np.zeros(0, np.float32)
    if found.size != count:
        raise UnsafeFileError(f"a layer's weights hold {found.size} numbers instead of {count}")
    return found.reshape(shape)


def _quantized(stored: Any, shape: tuple[int, ...], channels: int) -> Array:
    params = stored.quantization
    bits, count = int(params.numberOfBits), int(np.prod(shape))
    stream = np.unpackbits(np.frombuffer(stored.rawValue, np.uint8))
    if not 1 <= bits <= 8 or stream.size < bits * count:
        raise UnsafeFileError(f"a layer's weights hold {len(stored.rawValue)} bytes, too few for {count} numbers of {bits} bits")
    places = stream[: bits * count].reshape(count, bits)
    steps = (places.astype(np.int64) << np.arange(bits)[::-1]).sum(1).reshape(shape)
    if params.WhichOneof("QuantizationType") == "lookupTableQuantization":
        table: Array = np.array(params.lookupTableQuantization.floatValue, np.float32)
        looked_up: Array = table[steps]
        return looked_up
    linear = params.linearQuantization
    along = [-1 if a == channels else 1 for a in range(len(shape))]
    scale, bias = (
        np.array(v, np.float32).reshape(along if len(v) > 1 else []) for v in (linear.scale, linear.bias)
    )
    found: Array = steps.astype(np.float32) * scale + bias
    return found
