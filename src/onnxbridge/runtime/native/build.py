"""Calling a loop of `loops/` by its name: from the object file kept for it, compiled by Numba where there is none yet."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from importlib import resources
from typing import Any

from onnxbridge.runtime.native import tile
from onnxbridge.runtime.native.machine import kept, lanes, loaded

_KINDS: dict[str, Any] = {"i": ctypes.c_int64, "f": ctypes.c_float}


@functools.cache
def _recipe() -> str:
    """Every loop's source text; a change to any makes new object files."""
    folder = resources.files("onnxbridge.runtime.native") / "loops"
    return "\0".join(p.read_text() for p in sorted(folder.iterdir(), key=lambda p: p.name) if p.name.endswith(".py"))


@functools.cache
def loop(module: str, name: str, signature: str) -> Callable[..., None]:
    """The function `name` of `loops/module.py` for arguments of these kinds: i is an int64 or an address, f a float32.

    It runs without Python's lock.
    """
    tile.load()
    kind = f"{signature}\0{tile.rows()} {lanes()}\0{_recipe()}"
    symbol, _, image = kept(f"{module}_{name}", kind, lambda: _compiled(module, name, signature)).partition(b"\0")
    (address,) = loaded(image, symbol.decode())
    function: Callable[..., None] = ctypes.CFUNCTYPE(None, *(_KINDS[kind] for kind in signature))(address)
    return function


def _compiled(module: str, name: str, signature: str) -> bytes:
    """The loop's symbol, a zero byte, and its object file."""
    import numba

    source = getattr(importlib.import_module(f"onnxbridge.runtime.native.loops.{module}"), name)
    kinds = {"i": numba.types.int64, "f": numba.types.float32}
    whole = numba.types.void(*(kinds[kind] for kind in signature))
    compiled = numba.cfunc(whole, nopython=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})(source)
    symbol, image = str(compiled.native_name), bytes(compiled._library.serialize_using_object_code()[2][0])
    return symbol.encode() + b"\0" + image
