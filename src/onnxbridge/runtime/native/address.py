"""Where an array's data lies, and arrays laid out with their channels last."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.build import loop

Array = np.ndarray[Any, Any]


def address(array: Array) -> int:
    """The address of the first element."""
    where: int = array.__array_interface__["data"][0]
    return where


def plain(x: Array) -> Array:
    """x in C order, itself if it is."""
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def last(x: Array, pool: Pool) -> Array:
    """(N, C, H, W) as contiguous (N, H, W, C): a view where the memory is laid out so already."""
    seen = x.transpose(0, 2, 3, 1)
    if seen.flags.c_contiguous:
        return seen
    y = pool.empty(seen.shape)
    if x.flags.c_contiguous and x.dtype == np.float32:
        samples, channels, height, width = x.shape
        loop("layout", "channels_last", "iiiii")(address(x), address(y), samples, channels, height * width)
    else:
        np.copyto(y, seen)
    return y


def first(y: Array) -> Array:
    """(N, H, W, C) seen as (N, C, H, W)."""
    return y.transpose(0, 3, 1, 2)
