"""Memory for results, used again: a buffer goes back as soon as no array looks at it, and the next result of its size gets it.

Fresh memory costs the system a page fault every few kilobytes, which is more than most operators take. An array that
the pool gave is an ordinary one; it is never given out twice while anybody holds it or a view of it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.kernels.run.call_recorder import recording

Array = np.ndarray[Any, Any]

_ALIGNED = 64
_SMALL = 1 << 12  # bytes below which the allocator is as fast
_LARGE = 1 << 20  # bytes from which it asks the system each time


class _Lease:
    """A buffer that is in use: arrays made of it keep it alive, and its end gives the buffer back."""

    __slots__ = ("__array_interface__", "_buffer", "_home")
    __array_interface__: dict[str, Any]

    def __init__(self, home: list[Array], buffer: Array, address: int, size: int) -> None:
        self._home, self._buffer = home, buffer
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._home.append(self._buffer)


class Pool:
    """The buffers of one executor, by size class; freed ones wait for the next run."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Array]] = defaultdict(list)

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """An uninitialized array in C order, aligned to a cache line."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if not size or (size < _SMALL and recording() is None):
            return np.empty(shape, dtype)
        found: Array = np.asarray(self._lease(size)).view(dtype).reshape(shape)
        return found

    def scratch(self, size: int) -> tuple[Any, int]:
        """Some bytes that need not look like an array: what keeps them, and their address."""
        lease = self._lease(size)
        address: int = lease.__array_interface__["data"][0]
        return lease, address

    def _lease(self, size: int) -> _Lease:
        room, tape = _class(size), recording()
        free = (self._free if tape is None else tape.free)[room]
        try:
            buffer = free.pop()
        except IndexError:
            buffer = np.empty(room + _ALIGNED, np.uint8)
            if tape is not None:
                tape.buffers.append(buffer)
        address = buffer.__array_interface__["data"][0]
        return _Lease(free, buffer, address + -address % _ALIGNED, size)


def _class(size: int) -> int:
    """The size rounded up by an eighth at most, so that results of nearly the same size share buffers."""
    step = 1 << max(10, size.bit_length() - 4)
    return -(-size // step) * step


class _Lent(threading.local):
    pool: Pool | None = None


_lent = _Lent()


@contextlib.contextmanager
def lending(pool: Pool) -> Iterator[None]:
    """Let this thread's rules take the memory of large results from a pool."""
    before, _lent.pool = _lent.pool, pool
    try:
        yield
    finally:
        _lent.pool = before


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialized array in C order, of the pool that is lent if there is one."""
    large = _lent.pool is not None and math.prod(shape) * np.dtype(dtype).itemsize >= _LARGE
    return _lent.pool.empty(shape, dtype) if large and _lent.pool is not None else np.empty(shape, dtype)


def room(x: Array) -> Array | None:
    """Memory for a result of the type, sizes and memory order of x; None where NumPy may take its own."""
    if _lent.pool is None or x.nbytes < _LARGE:
        return None
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    y = _lent.pool.empty([x.shape[axis] for axis in order], x.dtype)
    return y.transpose([order.index(axis) for axis in range(x.ndim)])
