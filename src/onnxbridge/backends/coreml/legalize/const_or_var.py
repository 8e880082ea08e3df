"""Arithmetic on constants (computed by NumPy when converting) or MIL values, so that one formula serves both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml import sizes
from onnxbridge.backends.coreml.element_types import like


def known(*values: Any) -> bool:
    """Whether all of these are constants."""
    return all(isinstance(v, (int, float, np.generic, np.ndarray)) for v in values)


def _unary(on_arrays: Callable[..., Any], on_values: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: on_arrays(x) if known(x) else on_values(x=x)


def _binary(on_arrays: Callable[..., Any], on_values: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any) -> Any:
        if known(x, y):
            return on_arrays(x, y)
        value = y if known(x) else x
        return on_values(x=like(value, x) if known(x) else x, y=like(value, y) if known(y) else y)

    return run


add, sub, mul = _binary(np.add, mb.add), _binary(np.subtract, mb.sub), _binary(np.multiply, mb.mul)
div = _binary(np.divide, mb.real_div)
minimum, maximum = _binary(np.minimum, mb.minimum), _binary(np.maximum, mb.maximum)
less, less_equal, greater = _binary(np.less, mb.less), _binary(np.less_equal, mb.less_equal), _binary(np.greater, mb.greater)
floor, ceil, absolute = _unary(np.floor, mb.floor), _unary(np.ceil, mb.ceil), _unary(np.abs, mb.abs)
logical_or, logical_and = _binary(np.logical_or, mb.logical_or), _binary(np.logical_and, mb.logical_and)


def where(cond: Any, a: Any, b: Any) -> Any:
    if known(cond, a, b):
        return np.where(cond, a, b)
    value = next(v for v in (a, b, cond) if not known(v))
    a, b = (like(value, v) if known(v) else v for v in (a, b))
    return sizes.select(cond, a, b)


def to_int32(x: Any) -> Any:
    """Cast to int32."""
    return x.astype(np.int32) if known(x) else mb.cast(x=x, dtype="int32")


def to_float(x: Any) -> Any:
    """Cast to float."""
    return np.asarray(x, np.float64) if known(x) else mb.cast(x=x, dtype="fp32")


def arange(n: Any) -> Any:
    """0, 1, 2, ..., n - 1."""
    if known(n):
        return np.arange(int(n))
    return mb.range_1d(start=np.int32(0), end=n, step=np.int32(1))


def along(x: Any, axis: int, rank: int) -> Any:
    """Reshape a 1-D value so that it broadcasts along one axis."""
    shape = [-1 if a == axis % rank else 1 for a in range(rank)]
    return x.reshape(shape) if known(x) else mb.reshape(x=x, shape=shape)
