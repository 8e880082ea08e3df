"""One formula for numbers that are known when converting, which NumPy computes, and for values of the running model, in MIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml import sizes
from onnxbridge.backends.coreml.element_types import like


def known(*values: Any) -> bool:
    """Whether all of these are numbers."""
    return all(isinstance(v, (int, float, np.generic, np.ndarray)) for v in values)


def _one(now: Callable[..., Any], later: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda x: now(x) if known(x) else later(x=x)


def _two(now: Callable[..., Any], later: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def run(x: Any, y: Any) -> Any:
        if known(x, y):
            return now(x, y)
        value = y if known(x) else x
        return later(x=like(value, x) if known(x) else x, y=like(value, y) if known(y) else y)

    return run


add, sub, mul = _two(np.add, mb.add), _two(np.subtract, mb.sub), _two(np.multiply, mb.mul)
div = _two(np.divide, mb.real_div)
minimum, maximum = _two(np.minimum, mb.minimum), _two(np.maximum, mb.maximum)
less, less_equal, greater = _two(np.less, mb.less), _two(np.less_equal, mb.less_equal), _two(np.greater, mb.greater)
floor, ceil, absolute = _one(np.floor, mb.floor), _one(np.ceil, mb.ceil), _one(np.abs, mb.abs)
either, both = _two(np.logical_or, mb.logical_or), _two(np.logical_and, mb.logical_and)


def where(cond: Any, a: Any, b: Any) -> Any:
    if known(cond, a, b):
        return np.where(cond, a, b)
    value = next(v for v in (a, b, cond) if not known(v))
    a, b = (like(value, v) if known(v) else v for v in (a, b))
    return sizes.select(cond, a, b)


def whole(x: Any) -> Any:
    """As integers."""
    return x.astype(np.int32) if known(x) else mb.cast(x=x, dtype="int32")


def real(x: Any) -> Any:
    """As floats."""
    return np.asarray(x, np.float64) if known(x) else mb.cast(x=x, dtype="fp32")


def count(n: Any) -> Any:
    """0, 1, 2, ..., n - 1."""
    if known(n):
        return np.arange(int(n))
    return mb.range_1d(start=np.int32(0), end=n, step=np.int32(1))


def along(x: Any, axis: int, rank: int) -> Any:
    """A 1-D value so that it broadcasts along one axis."""
    shape = [-1 if a == axis % rank else 1 for a in range(rank)]
    return x.reshape(shape) if known(x) else mb.reshape(x=x, shape=shape)
