"""Making an entry of a recording: every address in it is traced to what it means, or nothing is kept.

An argument is an address where its loop says so. It may lie in the recording's own memory, whose contents do not matter; in a
constant, which is kept; or in an input, whose address comes with each run.
"""

from __future__ import annotations

import ctypes
import json
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import FunctionType, MethodType
from typing import Any, BinaryIO

import numpy as np

from onnxbridge.hub.limits import Limits
from onnxbridge.runtime.kept import external, identity, store
from onnxbridge.runtime.kept.entry import ALIGNED, ARENA, CONSTANTS, HEAD, MAGIC, PAGE
from onnxbridge.runtime.native import link, machine
from onnxbridge.runtime.native.build import signature_of
from onnxbridge.runtime.plan import Plan
from onnxbridge.runtime.recording import Array, Calls, Recording, address, extent

_LEAST_ADDRESS = 1 << 32  # a number from here on that is in known memory is an address, whatever the loop says
_writers: list[threading.Thread] = []


class _Unkept(Exception):
    """A recording that cannot be kept, and why."""


@dataclass
class _Parts:
    """What an entry is made of, while it is put together."""

    recording: Recording
    constants: list[Array]
    buffers: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, place in the arena
    arena: int = 0
    placed: dict[int, int] = field(default_factory=dict)  # the constants that are kept, by number: place
    size: int = 0  # of these
    pieces: list[link.Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        for buffer in self.recording.tape.buffers:
            low, high = extent(buffer)
            self.arena += (low - self.arena) % ALIGNED
            self.buffers.append((low, high, self.arena))
            self.arena += high - low
        spans = [extent(a) for a in self.constants]
        self._lows = np.array([low for low, _ in spans], np.int64)
        self._highs = np.array([high for _, high in spans], np.int64)

    def find(self, where: int) -> tuple[int, int] | None:
        """What an address is a distance from, and the distance; None if nothing known lies there."""
        found = np.flatnonzero((self._lows <= where) & (where < self._highs))
        if found.size:
            k = int(found[0])
            low = int(self._lows[k])
            if k not in self.placed:
                self.size += (low - self.size) % ALIGNED
                self.placed[k] = self.size
                self.size += int(self._highs[k]) - low
            return CONSTANTS, self.placed[k] + where - low
        for low, high, place in self.buffers:
            if low <= where < high:
                return ARENA, place + where - low
        return None

    def known(self, where: int) -> bool:
        """Whether an address lies in anything known."""
        inside = bool(((self._lows <= where) & (where < self._highs)).any())
        return inside or any(low <= where < high for low, high, _ in self.buffers)


def keep(
    known: identity.Identity, plan: Plan, made: Recording, inputs: Mapping[str, tuple[int, Array]], outputs: list[str],
    used: Limits, beside: Sequence[str], since: float,
) -> bool:  # fmt: skip
    """Write an entry of a recording that was just made, in a thread of its own; tells whether it can be kept.

    `inputs` are the slots and the arrays of the recorded run in the order of the model's, `used` what it took of its budget,
    `beside` the files that hold weights of the model, `since` when it was begun to be read.
    """
    try:
        header, parts, numbers, code = _entry(plan, made, inputs)
    except _Unkept:
        return False
    files = identity.sources()
    if files is None or parts.size > store.most():
        return False
    header |= {
        "input_names": list(inputs), "output_names": outputs, "sources": files,
        "used": used[:-1],
    }  # fmt: skip
    kind = zlib.crc32(json.dumps(header["fed"]).encode())

    def write() -> None:
        there = external.of(known.path, beside, since)
        if there is None:
            return
        header["external"] = there
        size = parts.size + sum(n.nbytes for n in numbers.values()) + len(code) + (1 << 16)
        store.write(f"{known.key}-{kind:08x}", size, lambda file: _written(file, header, parts, numbers, code) and _same(known))

    writer = threading.Thread(target=write, name="onnxbridge-keep")
    _writers[:] = [w for w in _writers if w.is_alive()] + [writer]
    writer.start()
    return True


def finish() -> None:
    """Wait until everything that is being written is there."""
    for writer in list(_writers):
        writer.join()


def _same(known: identity.Identity) -> bool:
    """Whether a model's file is what it was before it was read: nothing is kept of a file that changed meanwhile."""
    return identity.of(known.path, store.most()) == known


def _entry(
    plan: Plan, made: Recording, inputs: Mapping[str, tuple[int, Array]]
) -> tuple[dict[str, Any], _Parts, dict[str, Array], bytes]:
    if not made.items or not all(isinstance(item, Calls) for item in made.items):
        raise _Unkept("a step is run by Python")
    parts = _Parts(made, _constants(plan, made))
    place = {slot: k for k, (slot, _) in enumerate(inputs.values())}
    moved: list[tuple[int, int, int]] = []
    patches: list[tuple[int, int, int]] = []
    rows: list[tuple[int, int, int]] = []
    values: list[int] = []
    code = _Code()
    for item in made.items:
        assert isinstance(item, Calls)
        patched = {k: (slot, distance) for k, slot, distance in item.patches}
        at = 0
        for function, packed, units in item.rows:
            rows.append((code.place(function), len(values), units))
            letters = signature_of(function)
            for k, value in enumerate(np.frombuffer(packed, np.int64).tolist()):
                here = len(values)
                if at + k in patched:
                    slot, distance = patched[at + k]
                    patches.append((here, place[slot], distance))
                    value = 0
                elif letters[k] == "p" and value:
                    found = parts.find(value)
                    if found is None:
                        raise _Unkept("an address of unknown memory")
                    moved.append((here, *found))
                    value = 0
                elif letters[k] == "i" and value >= _LEAST_ADDRESS and parts.known(value):
                    raise _Unkept("an address that is not declared as one")
                values.append(value)
            at += len(packed) // 8
    outputs = [_output(slot, made, parts, place) for slot in made.outputs]
    for k in parts.placed:
        array = parts.constants[k]
        if array.dtype == np.int64 and any(v >= _LEAST_ADDRESS and parts.known(v) for v in array.ravel().tolist()):
            raise _Unkept("a table of addresses")
    image, border, sites, outer = code.linked()
    numbers = {"arguments": [values], "rows": rows, "moved": moved, "patches": patches, "sites": sites}
    header = {
        "fed": [(name, _dtype(a), a.shape, a.strides) for name, (_, a) in inputs.items()],
        "outputs": outputs, "arena": parts.arena, "border": border, "outer": outer,
    }  # fmt: skip
    return header, parts, {name: np.array(v, np.int64).reshape(-1) for name, v in numbers.items()}, image


class _Code:
    """The linked pieces that functions lie in, and those that they call: first what is run of each, then the rest of each."""

    def __init__(self) -> None:
        self._pieces: dict[int, tuple[link.Piece, int, int]] = {}  # by address: where its code lies, and its data
        self._sizes = [0, 0]

    def place(self, where: int) -> int:
        """Where a function lies in the code."""
        piece, code, _ = self._enter(where)
        return code + where - piece.base

    def _enter(self, where: int) -> tuple[link.Piece, int, int]:
        piece = link.piece_of(where)
        if piece is None:
            raise _Unkept("machine code that LLVM loaded")
        if piece.base not in self._pieces:
            self._pieces[piece.base] = (piece, self._sizes[0], self._sizes[1])
            for k, size in enumerate((piece.border, len(piece.memory) - piece.border)):
                self._sizes[k] += size + -size % ALIGNED
        return self._pieces[piece.base]

    def _at(self, where: int) -> int:
        """Where an address of code or data lies in the image."""
        piece, code, data = self._enter(where)
        distance = where - piece.base
        return code + distance if distance < piece.border else self._border() + data + distance - piece.border

    def _border(self) -> int:
        return self._sizes[0] + -self._sizes[0] % PAGE

    def linked(self) -> tuple[bytes, int, list[tuple[int, int]], list[tuple[int, str]]]:
        """The image, where its code ends, its own addresses, and those of functions outside of it."""
        todo, done = list(self._pieces), set[int]()
        while todo:  # until everything that is called is there
            piece = self._pieces[todo.pop()][0]
            if piece.base not in done:
                done.add(piece.base)
                called = (_word(piece, at) for at, _ in piece.sites)
                todo += [self._enter(where)[0].base for where in called if link.piece_of(where) is not None]
        image = bytearray(self._border() + self._sizes[1])
        sites: list[tuple[int, int]] = []
        outer: list[tuple[int, str]] = []
        for piece, code, data in self._pieces.values():
            image[code : code + piece.border] = piece.memory[: piece.border]
            rest = self._border() + data
            image[rest : rest + len(piece.memory) - piece.border] = piece.memory[piece.border :]
            for at, name in piece.sites:
                place, value = self._at(piece.base + at), _word(piece, at)
                inside = link.piece_of(value)
                if inside is not None:
                    sites.append((place, self._at(value)))
                elif name and machine.outside(name) == value:
                    outer.append((place, name))
                else:
                    raise _Unkept("code that names what only this process knows")
        return bytes(image), self._border(), sites, outer


def _word(piece: link.Piece, at: int) -> int:
    return int.from_bytes(piece.memory[at : at + 8], "little")


def _output(slot: int, made: Recording, parts: _Parts, place: Mapping[int, int]) -> tuple[Any, ...]:
    """Where an output lies: in an input, in the arena or among the constants."""
    if slot in place:
        return "input", place[slot]
    value = made.frame[slot]
    if value is None:
        return ("nothing",)
    if not isinstance(value, np.ndarray):
        raise _Unkept("an output that is no array")
    if not value.size:
        return "arena", 0, _dtype(value), value.shape, value.strides
    found = parts.find(address(value))
    if found is None:
        raise _Unkept("an output of unknown memory")
    kind, at = found
    return {ARENA: "arena", CONSTANTS: "constants"}[kind], at, _dtype(value), value.shape, value.strides


def _dtype(array: Array) -> str:
    """A type by a name that NumPy alone understands."""
    if array.dtype.hasobject or array.dtype != np.dtype(array.dtype.str):
        raise _Unkept(f"an array of {array.dtype}")
    return str(array.dtype.str)


def _constants(plan: Plan, made: Recording) -> list[Array]:
    """Every array that steps hold, whole, and what the shapes of the inputs determined; none of the recording's other memory."""
    settled = [made.frame[slot] for slot in made.settled]
    found: dict[int, Array] = {}
    seen: set[int] = set()
    _collect([plan.frame, made.tape.kept, *(step.run for step in plan.steps)], found, seen)
    spans = [extent(b) for b in made.tape.buffers]
    kept = [a for a in found.values() if not any(low <= address(a) < high for low, high in spans)]
    return [a for a in settled if isinstance(a, np.ndarray) and a.size and not a.dtype.hasobject] + kept


def _collect(value: Any, found: dict[int, Array], seen: set[int]) -> None:
    """The arrays that a value reaches: through functions' variables, collections and our own records."""
    todo = [value]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            while isinstance(value.base, np.ndarray):
                value = value.base
            if value.size and not value.dtype.hasobject:
                found[id(value)] = value
        elif isinstance(value, FunctionType):
            for cell in value.__closure__ or ():
                try:
                    todo.append(cell.cell_contents)
                except ValueError:  # not filled yet
                    continue
            todo += list(value.__dict__.values())
        elif isinstance(value, MethodType):
            todo += [value.__self__, value.__func__]
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            todo += value
        elif is_dataclass(value) and not isinstance(value, type):
            todo += [getattr(value, f.name) for f in fields(value)]


def _written(file: BinaryIO, header: dict[str, Any], parts: _Parts, numbers: Mapping[str, Array], code: bytes) -> bool:
    """Write an entry: first the payload, with a checksum that is counted on the way, then the header."""
    sizes = {name: n.nbytes for name, n in numbers.items()} | {"code": len(code), "constants": parts.size}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, size in sizes.items():
        end += -end % PAGE if name == "constants" else -end % ALIGNED
        places[name] = (end, size)
        end += size
    text = _text(header, places, 0)
    start = HEAD.size + len(text) + 64  # room for the numbers to grow
    start += -start % PAGE
    text = _text(header, places, start).ljust(len(text) + 64)
    file.seek(start)
    crc = at = 0
    for place, piece in _pieces(parts, numbers, code, places):
        for part in (bytes(place - at), piece):
            file.write(part)
            crc = zlib.crc32(part, crc)
        at = place + len(piece)
    tail = bytes(end - at)
    file.write(tail)
    crc = zlib.crc32(tail, crc)
    file.seek(0)
    file.write(HEAD.pack(MAGIC, zlib.crc32(text, crc), len(text), start + end, crc) + text)
    return True


def _text(header: dict[str, Any], places: Mapping[str, tuple[int, int]], start: int) -> bytes:
    whole = {**header, "parts": {name: (start + at, size) for name, (at, size) in places.items()}, "payload": start}
    return json.dumps(whole, separators=(",", ":")).encode()


def _pieces(
    parts: _Parts, numbers: Mapping[str, Array], code: bytes, places: Mapping[str, tuple[int, int]]
) -> Iterable[tuple[int, memoryview]]:
    for name, values in numbers.items():
        if values.size:
            yield places[name][0], _bytes(values)
    if code:
        yield places["code"][0], memoryview(code)
    for k, place in sorted(parts.placed.items(), key=lambda item: item[1]):
        yield places["constants"][0] + place, _bytes(parts.constants[k])


def _bytes(array: Array) -> memoryview:
    """All the memory that an array spans."""
    low, high = extent(array)
    return memoryview((ctypes.c_char * (high - low)).from_address(low)).cast("B")
