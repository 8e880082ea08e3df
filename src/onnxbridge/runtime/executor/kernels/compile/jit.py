"""How Numba compiles the kernels of `numba/`, and typed access to memory for them.

A kernel takes integers, addresses (integers too, 0 for none) and float32. Those whose work is divided into pieces end with
`unit, thread`: which piece to do, and the number of the thread that does it. Sums may be reordered; NaN and infinity
are preserved.

With NUMBA_DISABLE_JIT=1 kernels are the plain Python functions that they are written as, and a debugger stops in them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from onnxbridge.runtime.executor.kernels.compile import cache, llvm

COMPILED = not numba.config.DISABLE_JIT
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "nsz", "contract"}}
_TYPES = {"i": types.int64, "p": types.int64, "f": types.float32}
_PIECES = (types.int64,) * 2

signatures: dict[tuple[str, str], str] = {}
"""The kinds of arguments of each kernel by its module and name."""


@contextlib.contextmanager
def _cache_at(folder: str) -> Iterator[None]:
    """Cache functions that are declared in this context in a folder; the setting is global in Numba."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def helper(function: Callable[..., Any]) -> Any:
    """A function that becomes part of each kernel that calls it."""
    return numba.njit(forceinline=True, **_OPTIONS)(function)


def shared(function: Callable[..., Any]) -> Any:
    """A function that several kernels call, which is not inlined."""
    return numba.njit(**_OPTIONS)(function)


def entry(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """A kernel of arguments of these kinds: i is an integer, p an address or 0, f a float32.

    A last kind of u says that the work comes in pieces.
    """

    def declare(function: Callable[..., Any]) -> Any:
        signatures[function.__module__.rpartition(".")[2], function.__name__] = signature
        return function

    return declare


def compiled(function: Callable[..., Any], signature: str) -> Any:
    """A kernel compiled for its arguments, or loaded; damaged files of the cache are compiled again."""
    function = getattr(function, "py_func", function)  # of one that kernels call too
    kinds = (*(_TYPES[kind] for kind in signature if kind != "u"), *(_PIECES if signature.endswith("u") else ()))
    folder = cache.folder()
    compiler = numba.cfunc(types.void(*kinds), cache=folder is not None, **_OPTIONS)
    if folder is None:
        return compiler(function)
    name = function.__module__.rpartition(".")[2], function.__name__
    with _cache_at(str(folder)), cache.locked(*name):
        known = cache.has(*name)
        if not cache.intact(*name):
            cache.forget(*name)
            known = False
        try:
            made = compiler(function)
        except Exception:
            cache.forget(*name)
            made, known = compiler(function), False
        if not known:
            cache.seal(*name)
        return made


yields: Any = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())
"""The system's function that yields the processor."""


def external(name: str, signature: str, plain: Any) -> Any:
    """A tile function as kernels call it; `plain`, an equivalent kernel, where there are no tiles."""
    if not COMPILED or not llvm.named(name):
        return plain
    return types.ExternalFunction(name, types.void(*(_TYPES[kind] for kind in signature)))


def _pointer(kind: Any, dtype: Any) -> Any:
    """A function from an address to a pointer to elements of a type."""
    if not COMPILED:
        return lambda address: np.asarray(_Memory(int(address), np.dtype(dtype)))
    pointer: Any = types.CPointer(kind)

    @intrinsic  # type: ignore[untyped-decorator]
    def at(typing: Any, address: Any) -> Any:
        def made(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(pointer))

        return pointer(types.int64), made

    return at


class _Memory:
    """Memory from an address on, as a NumPy array of unknown size."""

    def __init__(self, address: int, dtype: np.dtype[Any]) -> None:
        shape = (1 << 40,) if address else (0,)
        self.__array_interface__ = {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


floats, doubles = _pointer(types.float32, np.float32), _pointer(types.float64, np.float64)
ints, longs = _pointer(types.int32, np.int32), _pointer(types.int64, np.int64)
uint8s, int8s = _pointer(types.uint8, np.uint8), _pointer(types.int8, np.int8)
