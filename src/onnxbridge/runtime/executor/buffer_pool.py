"""Reuse of memory for results: a buffer is returned when no array refers to it, and the next result of its size gets it.

Fresh memory costs the system a page fault every few kilobytes, which is more than most operators take. An array that
the pool returns is an ordinary one; its memory is not reused while a reference to it or a view of it exists.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.kernels.run.call_recorder import active_recorder

Array = np.ndarray[Any, Any]

_ALIGNED = 64
_SMALL = 1 << 12  # bytes below which the allocator is as fast
_LARGE = 1 << 20  # bytes from which it requests memory from the system each time


class _Lease:
    """A buffer in use: arrays made of it keep it alive, and its destructor returns the buffer."""

    __slots__ = ("__array_interface__", "_buffer", "_home")
    __array_interface__: dict[str, Any]

    def __init__(self, home: list[Array], buffer: Array, address: int, size: int) -> None:
        self._home, self._buffer = home, buffer
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._home.append(self._buffer)


class Pool:
    """The free buffers of one executor, by size class."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Array]] = defaultdict(list)

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """An uninitialized array in C order, aligned to a cache line."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if not size or (size < _SMALL and active_recorder() is None):
            return np.empty(shape, dtype)
        found: Array = np.asarray(self._lease(size)).view(dtype).reshape(shape)
        return found

    def scratch(self, size: int) -> tuple[Any, int]:
        """Uninitialized bytes: the object that owns them, and their address."""
        lease = self._lease(size)
        address: int = lease.__array_interface__["data"][0]
        return lease, address

    def _lease(self, size: int) -> _Lease:
        size_class, recorder = _class(size), active_recorder()
        by_class = self._free if recorder is None else recorder.free
        free, buffer = _take(by_class, size_class)
        if buffer is None:
            buffer = np.empty(size_class + _ALIGNED, np.uint8)
            if recorder is not None:
                recorder.buffers.append(buffer)
        address = buffer.__array_interface__["data"][0]
        return _Lease(free, buffer, address + -address % _ALIGNED, size)


def _take(by_class: defaultdict[int, list[Array]], size_class: int) -> tuple[list[Array], Array | None]:
    """A free buffer of this class, otherwise of the next larger class that has one, with the list that it returns to."""
    own = by_class[size_class]
    with contextlib.suppress(IndexError):  # another thread may take the last one
        return own, own.pop()
    for larger in sorted(c for c, buffers in list(by_class.items()) if c > size_class and buffers):
        with contextlib.suppress(IndexError):
            return by_class[larger], by_class[larger].pop()
    return own, None


def _class(size: int) -> int:
    """The size rounded up by an eighth at most, so that results of nearly the same size share buffers."""
    step = 1 << max(10, size.bit_length() - 4)
    return -(-size // step) * step


class _Current(threading.local):
    pool: Pool | None = None


_current = _Current()


@contextlib.contextmanager
def using_pool(pool: Pool) -> Iterator[None]:
    """Let this thread's rules allocate large results from a pool."""
    before, _current.pool = _current.pool, pool
    try:
        yield
    finally:
        _current.pool = before


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """An uninitialized array in C order, from this thread's pool if there is one."""
    large = _current.pool is not None and math.prod(shape) * np.dtype(dtype).itemsize >= _LARGE
    return _current.pool.empty(shape, dtype) if large and _current.pool is not None else np.empty(shape, dtype)


def empty_like(x: Array) -> Array | None:
    """An uninitialized array of the dtype, shape and memory order of x; None where NumPy may allocate its own."""
    if _current.pool is None or x.nbytes < _LARGE:
        return None
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    y = _current.pool.empty([x.shape[axis] for axis in order], x.dtype)
    return y.transpose([order.index(axis) for axis in range(x.ndim)])
