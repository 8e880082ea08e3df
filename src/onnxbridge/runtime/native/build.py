"""Calling a loop of `loops/` by its name: from the object file kept for it, compiled where there is none yet.

All loops are entered alike: with the address of their arguments, eight bytes each, the number of the piece of work to do,
and the number of the thread that does it. So a list of calls can be kept and run again without Python (`tape.py`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import struct
from typing import Any

import numpy as np

from onnxbridge.runtime.native import drive, quantized, tape, tile
from onnxbridge.runtime.native.machine import assembled, kept, lanes, loaded, sources

_KINDS = {"i": "q", "p": "q", "f": "d"}
_signatures: dict[int, str] = {}


@functools.cache
def recipe() -> str:
    """What loops are made of: the sources of all loops and of their compiler, and the sizes of tiles."""
    sizes = f"{tile.rows()} {lanes()} {quantized.rows()} {quantized.lanes()}"
    return hashlib.sha256(f"{sizes}\0{sources('compiler', 'loops')}".encode()).hexdigest()


class Loop:
    """A loop's machine code; it runs without Python's lock."""

    __slots__ = ("address", "_pack")

    def __init__(self, address: int, signature: str) -> None:
        self.address = address
        self._pack = struct.Struct("=" + "".join(_KINDS[kind] for kind in signature if kind != "u")).pack

    def __call__(self, *values: Any, units: int = 1) -> None:
        """Run every piece of the work, if there is any, and note the call where a run is being recorded."""
        if units == 0:
            return
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
def loop(module: str, name: str) -> Loop:
    """The function `name` of `loops/module.py`."""
    address, signature = _ready(module, name, symbol_of(module, name), "entered")
    _signatures[address] = signature
    return Loop(address, signature)


def symbol_of(module: str, name: str) -> str:
    """What a loop is called in its object file."""
    return f"onnxbridge_loop_{module}_{name}"


def signature_of(address: int) -> str:
    """The kinds of arguments of a loop that lies at an address."""
    return _signatures[address]


@functools.cache
def _helper(module: str, name: str) -> None:
    """Load a helper of loops that is compiled by itself."""
    _ready(module, name, f"onnxbridge_{module}_{name}", "alone")


def _ready(module: str, name: str, symbol: str, how: str) -> tuple[int, str]:
    """The address and the signature of a function of `loops/`, which are loaded with all that it calls."""

    def make() -> bytes:
        compiler = importlib.import_module("onnxbridge.runtime.native.compiler")
        found = getattr(importlib.import_module(f"onnxbridge.runtime.native.loops.{module}"), name)
        text, needs = getattr(compiler, how)(found, symbol)
        return " ".join([found.signature, *sorted(needs)]).encode() + b"\0" + assembled(text)

    head, _, image = kept(symbol, recipe(), make).partition(b"\0")
    signature, *needs = head.decode().split()
    for other in needs:
        group, _, helper = other.partition(".")
        if helper:
            _helper(group, helper)
        else:
            importlib.import_module(f"onnxbridge.runtime.native.{group}").load()
    (address,) = loaded(image, symbol)
    return address, signature
