"""Calling a loop of `loops/` by its name: from the object file kept for it, compiled by Numba where there is none yet.

All loops are entered alike: with the address of their arguments, eight bytes each, the number of the piece of work to do,
and the number of the thread that does it. So a list of calls can be kept and run again without Python (`tape.py`).
"""

from __future__ import annotations

import functools
import importlib
import struct
from importlib import resources
from typing import Any

import numpy as np

from onnxbridge.runtime.native import drive, quantized, tape, tile
from onnxbridge.runtime.native.machine import kept, lanes, llvm, loaded

_KINDS = {"i": "q", "p": "q", "f": "d"}
_signatures: dict[int, str] = {}


@functools.cache
def _recipe() -> str:
    """Every loop's source text; a change to any makes new object files."""
    folder = resources.files("onnxbridge.runtime.native") / "loops"
    return "\0".join(p.read_text() for p in sorted(folder.iterdir(), key=lambda p: p.name) if p.name.endswith(".py"))


class Loop:
    """A loop's machine code; it runs without Python's lock."""

    __slots__ = ("address", "_pack")

    def __init__(self, address: int, signature: str) -> None:
        self.address = address
        self._pack = struct.Struct("=" + "".join(_KINDS[kind] for kind in signature if kind != "u")).pack

    def __call__(self, *values: Any, units: int = 1) -> None:
        """Run every piece of the work, and note the call where a run is being recorded."""
        packed = self._pack(*values)
        if units == 1 or drive.threads() == 1:
            drive.pieces()(self.address, packed, units)
        else:
            drive.spread(self.address, packed, units)
        recording = tape.recording()
        if recording is not None:
            recording.calls.append((self.address, packed, units))

    def each(self, values: Any, units: int = 1) -> None:
        """One call after the other: a row of whole numbers (int64) for each, as where steps of a sequence follow each other."""
        count, size = values.shape
        base = values.__array_interface__["data"][0]
        table = np.empty((count, drive.COLUMNS), np.int64)
        table[:, 0], table[:, 1], table[:, 2] = self.address, base + 8 * size * np.arange(count), units
        state = np.zeros(count * drive.STATE, np.int64) if units > 1 and drive.threads() > 1 else None
        drive.run(table.__array_interface__["data"][0], count, state)
        recording = tape.recording()
        if recording is not None:
            recording.calls += [(self.address, row.tobytes(), units) for row in values]


@functools.cache
def loop(module: str, name: str, signature: str) -> Loop:
    """The function `name` of `loops/module.py` for arguments of these kinds: i is an int64, p an address or 0, f a float32.

    A last kind of u says that the work comes in pieces: the function also takes the piece's and the thread's number.
    """
    tile.load()
    if module == "integers" and quantized.lanes():
        quantized.load()
    kind = f"{signature}\0{tile.rows()} {lanes()} {quantized.lanes()}\0{_recipe()}"
    symbol, _, image = kept(f"{module}_{name}", kind, lambda: _compiled(module, name, signature)).partition(b"\0")
    (address,) = loaded(image, symbol.decode())
    _signatures[address] = signature
    return Loop(address, signature)


def signature_of(address: int) -> str:
    """The kinds of arguments of a loop that lies at an address."""
    return _signatures[address]


def _compiled(module: str, name: str, signature: str) -> bytes:
    """The loop's symbol, a zero byte, and its object file."""
    llvm()  # so that the functions loaded by now are known to Numba's own linking
    import numba

    from onnxbridge.runtime.native.loops.data import doubles, inline, longs

    source = getattr(importlib.import_module(f"onnxbridge.runtime.native.loops.{module}"), name)
    taken = [f"single(d[{k}])" if kind == "f" else f"a[{k}]" for k, kind in enumerate(signature) if kind != "u"]
    taken += ["unit", "part"] if signature.endswith("u") else []
    text = f"def enter(args, unit, part):\n    a = longs(args)\n    d = doubles(args)\n    body({', '.join(taken)})\n"
    known = {"longs": longs, "doubles": doubles, "single": numba.types.float32, "body": inline(source)}
    exec(text, known)  # Numba has no other way to spread arguments of two kinds
    whole = numba.types.void(*[numba.types.int64] * 3)
    compiled = numba.cfunc(whole, nopython=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})(known["enter"])
    symbol, image = str(compiled.native_name), bytes(compiled._library.serialize_using_object_code()[2][0])
    return symbol.encode() + b"\0" + image
