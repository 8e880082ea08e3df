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
from dataclasses import dataclass, fields, is_dataclass
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
    """What an entry is made of; `constants` are places, and from where to where memory lies that `alive` keeps."""

    header: dict[str, Any]
    numbers: dict[str, Array]
    constants: list[tuple[int, int, int]]
    size: int  # of the constants
    code: bytes
    alive: list[Array]


class _Memory:
    """Known memory by address: constants, of which those that are needed are kept, and the recording's own."""

    def __init__(self, constants: Sequence[Array], buffers: Sequence[Array]) -> None:
        spans: list[list[int]] = []
        for low, high in sorted(map(extent, constants)):
            if spans and low < spans[-1][1]:  # two looks at the same memory
                spans[-1][1] = max(spans[-1][1], high)
            else:
                spans.append([low, high])
        own = [extent(b) for b in buffers]
        whole = np.array([*own, *spans], np.int64).reshape(-1, 2)
        order = np.argsort(whole[:, 0], kind="stable")  # a constant that lies at the beginning of a buffer comes after it
        self._lows, self._highs = whole[order].T
        self._kept = order >= len(own)
        self._places = np.full(len(order), -1, np.int64)
        self.arena = self.size = 0
        for k in np.flatnonzero(~self._kept).tolist():
            self.arena = self._place(k, self.arena)

    def _place(self, k: int, end: int) -> int:
        low, high = int(self._lows[k]), int(self._highs[k])
        self._places[k] = end + (low - end) % ALIGNED  # as it is aligned now
        return int(self._places[k]) + high - low

    def _spans(self, where: Array) -> Array:
        """The number of the span of each address, -1 for memory that is not known."""
        k = np.searchsorted(self._lows, where, "right") - 1
        return np.where((k >= 0) & (where < self._highs[k]), k, -1)

    def knows(self, numbers: Array) -> bool:
        """Whether any of these numbers is an address of known memory."""
        large = numbers[numbers >= _LEAST_ADDRESS]
        return bool(large.size and (self._spans(large) >= 0).any())

    def find(self, where: Array) -> tuple[Array, Array]:
        """What addresses are distances from, and the distances; constants among them will be kept."""
        k = self._spans(where)
        if (k < 0).any():
            raise _Unkept("an address of unknown memory")
        for j in np.unique(k[self._places[k] < 0]).tolist():
            self.size = self._place(j, self.size)
        return np.where(self._kept[k], CONSTANTS, ARENA), self._places[k] + where - self._lows[k]

    def constants(self) -> list[tuple[int, int, int]]:
        """What is kept: the place among the constants, and from where to where it lies now."""
        chosen = np.flatnonzero(self._kept & (self._places >= 0))
        columns = (self._places[chosen], self._lows[chosen], self._highs[chosen])
        return sorted(zip(*(c.tolist() for c in columns), strict=True))


def keep(
    known: identity.Identity, plan: Plan, made: Recording, inputs: Mapping[str, tuple[int, Array]], outputs: list[str],
    used: Limits, beside: Sequence[str], since: float,
) -> bool:  # fmt: skip
    """Write an entry of a recording that was just made, in a thread of its own; tells whether it can be kept.

    `inputs` are the slots and the arrays of the recorded run in the order of the model's, `used` what it took of its budget,
    `beside` the files that hold weights of the model, `since` when it was begun to be read.
    """
    try:
        parts = _entry(plan, made, inputs)
    except _Unkept:
        return False
    files = identity.sources()
    if files is None or parts.size > store.most():
        return False
    names = {"input_names": list(inputs), "output_names": outputs}
    parts.header |= {"key": known.key, **names, "sources": files, "used": used[:-1]}
    kind = zlib.crc32(json.dumps(parts.header["fed"]).encode())

    def write() -> None:
        there = external.of(known.path, beside, since)
        if there is None:
            return
        parts.header["external"] = there
        size = parts.size + sum(n.nbytes for n in parts.numbers.values()) + len(parts.code) + (1 << 16)
        store.write(f"{known.key}-{kind:08x}", size, lambda file: _written(file, parts) and _same(known))

    writer = threading.Thread(target=write, name="onnxbridge-keep")
    _writers[:] = [w for w in _writers if w.is_alive()]
    try:
        writer.start()
    except RuntimeError:  # no more threads, or the process is about to end
        return False
    _writers.append(writer)
    return True


def finish() -> None:
    """Wait until everything that is being written is there."""
    for writer in list(_writers):
        writer.join()


def _same(known: identity.Identity) -> bool:
    """Whether a model's file is what it was before it was read: nothing is kept of a file that changed meanwhile."""
    return identity.of(known.path, store.most()) == known


def _entry(plan: Plan, made: Recording, inputs: Mapping[str, tuple[int, Array]]) -> _Parts:
    if not made.items or not all(isinstance(item, Calls) for item in made.items):
        raise _Unkept("a step is run by Python")
    constants = _constants(plan, made)
    memory, code = _Memory(constants, made.tape.buffers), _Code()
    place = {slot: k for k, (slot, _) in enumerate(inputs.values())}
    rows = [row for item in made.items if isinstance(item, Calls) for row in item.rows]
    values = np.frombuffer(b"".join(packed for _, packed, _ in rows), np.int64).copy()
    letters = np.frombuffer("".join(signature_of(f).removesuffix("u") for f, _, _ in rows).encode(), "S1")
    patches, begin = [], 0
    for item in made.items:
        assert isinstance(item, Calls)
        patches += [(begin + k, place[slot], distance) for k, slot, distance in item.patches]
        begin += len(item.arguments)
    values[[k for k, _, _ in patches]] = 0
    moved = np.flatnonzero((letters == b"p") & (values != 0))
    base, distance = memory.find(values[moved])
    values[moved] = 0
    if memory.knows(values[letters == b"i"]):
        raise _Unkept("an address that is not declared as one")
    outputs = [_output(slot, made, memory, place) for slot in made.outputs]
    kept = memory.constants()
    starts = {low for _, low, _ in kept}
    if any(a.dtype == np.int64 and address(a) in starts and memory.knows(a) for a in constants):
        raise _Unkept("a table of addresses")
    starts_at = np.cumsum([0, *(len(packed) // 8 for _, packed, _ in rows)])
    table = [(code.place(f), at, units) for (f, _, units), at in zip(rows, starts_at.tolist(), strict=False)]
    image, border, sites, outer = code.linked()
    numbers = {
        "arguments": values, "rows": _numbers(table), "moved": np.stack([moved, base, distance], 1), "patches": _numbers(patches),
        "sites": _numbers(sites),
    }  # fmt: skip
    header = {
        "fed": [(name, _dtype(a), a.shape, a.strides) for name, (_, a) in inputs.items()],
        "outputs": outputs, "arena": memory.arena, "border": border, "outer": outer,
    }  # fmt: skip
    return _Parts(header, numbers, kept, memory.size, image, constants)


def _numbers(rows: Sequence[tuple[int, ...]]) -> Array:
    return np.array(rows, np.int64)


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


def _output(slot: int, made: Recording, memory: _Memory, place: Mapping[int, int]) -> tuple[Any, ...]:
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
    (kind,), (at,) = memory.find(np.array([address(value)], np.int64))
    return {ARENA: "arena", CONSTANTS: "constants"}[int(kind)], int(at), _dtype(value), value.shape, value.strides


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
    spans = np.array(sorted(map(extent, made.tape.buffers)), np.int64).reshape(-1, 2)
    arrays = list(found.values())
    where = np.array([address(a) for a in arrays], np.int64)
    k = np.searchsorted(spans[:, 0], where, "right") - 1
    inside = (k >= 0) & (where < spans[k, 1]) if len(spans) else np.zeros(len(arrays), bool)
    kept = [a for a, own in zip(arrays, inside.tolist(), strict=True) if not own]
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


def _written(file: BinaryIO, parts: _Parts) -> bool:
    """Write an entry: first the payload, with a checksum that is counted on the way, then the header."""
    sizes = {name: n.nbytes for name, n in parts.numbers.items()} | {"code": len(parts.code), "constants": parts.size}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, size in sizes.items():
        end += -end % ALIGNED
        places[name] = (end, size)
        end += size
    text = _text(parts.header, places, 0)
    start = HEAD.size + len(text) + 64  # room for the numbers to grow
    start += -start % PAGE
    text = _text(parts.header, places, start).ljust(len(text) + 64)
    file.seek(start)
    crc = at = 0
    for place, piece in _pieces(parts, places):
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


def _pieces(parts: _Parts, places: Mapping[str, tuple[int, int]]) -> Iterable[tuple[int, bytes | memoryview]]:
    for name, values in parts.numbers.items():
        yield places[name][0], values.tobytes()
    yield places["code"][0], parts.code
    for place, low, high in parts.constants:
        yield places["constants"][0] + place, memoryview((ctypes.c_char * (high - low)).from_address(low)).cast("B")
