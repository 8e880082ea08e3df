"""Reading a kept recording: a header in JSON, then packed weights, numbers and linked code, of which addresses are filled in.

    magic, checksum of the header, its length, length of the file, checksum of the rest | header | (whole pages:) payload

What a header has is made by `write`. Every part is bounded by the file before it is looked at.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from onnxbridge.hub.bounds import Limits
from onnxbridge.runtime.kept import identity, store
from onnxbridge.runtime.native import drive, placed, presence
from onnxbridge.runtime.recording import Aside, Calls, Recording, address

if TYPE_CHECKING:
    from onnxbridge.hub.limits import Budget

MAGIC = b"OBRUN\x001\n"
HEAD = struct.Struct("<8sIIQI")
PAGE = 4096
ALIGNED = 64
_RULES = "onnxbridge.runtime.numpy.ops."  # where steps that Python runs come from
ARENA, CONSTANTS = 0, 1  # what an address is a distance from


class Entry:
    """An entry whose header was read; `recording` reads the rest."""

    def __init__(self, path: Path, header: dict[str, Any], crc: int) -> None:
        self.path, self._header, self._crc = path, header, crc
        self.input_names: list[str] = header["input_names"]
        self.output_names: list[str] = header["output_names"]
        self.fed = [(name, np.dtype(dtype), tuple(shape), tuple(strides)) for name, dtype, shape, strides in header["fed"]]
        self._used = Limits(*header["used"])

    def fits(self, feeds: Mapping[str, Any], limits: Limits) -> list[np.ndarray[Any, Any]] | None:
        """The inputs in order, if they lie in memory as those of the recorded run, and its budget is within the limits."""
        if len(feeds) != len(self.fed) or not limits.allow(self._used):
            return None
        found = []
        for name, dtype, shape, strides in self.fed:
            given = feeds.get(name)
            array = given if isinstance(given, np.ndarray) else np.asarray(given)
            if array.dtype != dtype or array.shape != shape or array.strides != strides:
                return None
            found.append(array)
        return found

    def recording(self) -> Recording | None:
        """The recording, ready to be played; None where the file is not what was written, or cannot be loaded here."""
        file = store.opened(self.path)
        if file is None or not placed.possible():
            return None
        with file:
            found = _header(file)
            if found is None or found[1] != self._crc:
                return None
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        if zlib.crc32(memoryview(memory)[self._header["payload"] :]) != self._crc:
            return None
        made = _made(memory, self._header)
        if made is not None:
            store.used(self.path)
        return made


def find(known: identity.Identity) -> Entry | None:
    """The entry of a model that was used last, if it still holds here."""
    return next(_entries(known.key, known), None)


def other(known: identity.Identity, feeds: Mapping[str, Any], limits: Limits) -> Entry | None:
    """Another entry of the model, which fits these inputs."""
    return next((e for e in _entries(known.key, known) if e.fits(feeds, limits) is not None), None)


def _entries(key: str, known: identity.Identity) -> Any:
    for path in store.find(key):
        file = store.opened(path)
        if file is None:
            continue
        with file:
            found = _header(file)
        # with the same sources it was written by what reads it here, so all the rest is as expected
        if found is None or found[0].get("key") != key or not identity.unchanged(found[0].get("sources", [])):
            continue
        if found[0]["external"]:
            from onnxbridge.runtime.kept import external

            if not external.unchanged(known.path, found[0]["external"]):
                continue
        yield Entry(path, *found)


def _header(file: BinaryIO) -> tuple[dict[str, Any], int] | None:
    """The header and the checksum of the payload, if both are of one whole file."""
    head = file.read(HEAD.size)
    if len(head) != HEAD.size:
        return None
    magic, crc, length, size, payload = HEAD.unpack(head)
    if magic != MAGIC or size != os.fstat(file.fileno()).st_size or length > size:
        return None
    text = file.read(length)
    if len(text) != length or zlib.crc32(text, payload) != crc:
        return None
    header: dict[str, Any] = json.loads(text)
    return header, payload


def _made(memory: mmap.mmap, header: dict[str, Any]) -> Recording | None:
    whole = np.frombuffer(memory, np.uint8)
    bounds = {name: (at, at + size) for name, (at, size) in header["parts"].items()}
    numbers = {name: whole[slice(*bounds[name])].view(np.int64) for name in ("arguments", "rows", "moved", "patches", "sites")}
    buffer = np.empty(header["arena"] + ALIGNED, np.uint8)
    start = -address(buffer) % ALIGNED
    low, high = bounds["constants"]
    bases = np.array([address(buffer) + start, address(whole) + low], np.int64)
    arguments = numbers["arguments"].copy()
    where, base, distance = numbers["moved"].reshape(-1, 3).T
    arguments[where] = bases[base] + distance
    drive.name_functions()
    outer = {at: presence.outside(name) for at, name in header["outer"]}
    if not all(outer.values()):
        return None
    code = placed.placed(memory[slice(*bounds["code"])], header["border"], numbers["sites"].reshape(-1, 2), outer)
    if not code:
        return None
    drive.adopt(tuple(code + at for at in header["drive"]))
    table = numbers["rows"].reshape(-1, 3).copy()
    table[:, 0] += code
    table[:, 1] = address(arguments) + 8 * table[:, 1]
    patches = [(k, slot, distance) for k, slot, distance in numbers["patches"].reshape(-1, 3).tolist()]
    arena, constants = buffer[start:], whole[low:high]
    frame: list[Any] = [None] * len(header["fed"])
    for kind, *rest in header["frame"]:
        frame.append(_given(rest[0]) if kind == "plain" else _view(arena if kind == "arena" else constants, *rest))
    made = Recording(frame, tuple(header["outputs"]))
    for kind, *rest in header["items"]:
        if kind == "calls":
            a, b, c, d, e, f = rest
            made.items.append(Calls(arguments[a:b], table[c:d], patches[e:f]))
        else:
            module, name, attrs, sources, targets, kinds = rest
            function = rule(module, name)
            if function is None:
                return None
            made.quiet = False
            made.items.append(Aside(_performed(function, _given(attrs), sources, targets), targets))
            for target, (dtype, shape, strides) in zip((t for t in targets if t > 0), kinds, strict=True):
                made.shapes[target] = (np.dtype(dtype), tuple(shape), tuple(strides))
    made.tape.kept += [whole, buffer]
    return made


def rule(module: str, name: str) -> Any:
    """A rule of the executor's by its name: a function of ours, or one of NumPy's for elements; None for anything else."""
    if module == "numpy":
        found = getattr(np, name, None)
        return found if isinstance(found, np.ufunc) else None
    return getattr(importlib.import_module(module), name, None) if module.startswith(_RULES) else None


def _performed(
    function: Any, attrs: dict[str, Any], sources: Sequence[int], targets: Sequence[int]
) -> Callable[[list[Any], Budget | None, Any], None]:
    """A step that Python runs, on a frame."""

    def run(frame: list[Any], budget: Budget | None, adapt: Any) -> None:
        results = function(*(frame[s] for s in sources), **attrs)
        for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=False):
            if target > 0:
                frame[target] = np.asarray(result)
                if budget is not None:
                    budget.hold(frame[target])

    return run


def _given(value: Any) -> Any:
    """What JSON gave back, with tuples for its lists."""
    if isinstance(value, dict):
        return {k: _given(v) for k, v in value.items()}
    return tuple(map(_given, value)) if isinstance(value, list) else value


def _view(memory: np.ndarray[Any, Any], at: int, dtype: str, shape: Sequence[int], strides: Sequence[int]) -> Any:
    return np.ndarray(tuple(shape), np.dtype(dtype), memory, at, tuple(strides))


