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
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from onnxbridge.hub.bounds import Limits
from onnxbridge.runtime.kept import entry, external, identity, store
from onnxbridge.runtime.kept.code import Code
from onnxbridge.runtime.kept.entry import ALIGNED, ARENA, HEAD, MAGIC, PAGE
from onnxbridge.runtime.kept.memory import Memory, Unkept, constants_of
from onnxbridge.runtime.native import drive
from onnxbridge.runtime.native.build import signature_of
from onnxbridge.runtime.plan import Plan
from onnxbridge.runtime.recording import Array, Aside, Calls, Recording, address

_writers: list[threading.Thread] = []


@dataclass
class _Parts:
    """What an entry is made of; `constants` are places, and from where to where memory lies that `alive` keeps."""

    header: dict[str, Any]
    numbers: dict[str, Array]
    constants: list[tuple[int, int, int]]
    size: int  # of the constants
    code: bytes
    alive: list[Array]


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
    except Unkept:
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
    constants = constants_of(plan, made)
    memory, code = Memory(constants, made.tape.buffers), Code()
    frame = _Frame(made, memory, [slot for slot, _ in inputs.values()])
    groups = [item for item in made.items if isinstance(item, Calls)]
    rows = [row for group in groups for row in group.rows]
    if not rows:
        raise Unkept("no machine code")
    values = np.frombuffer(b"".join(packed for _, packed, _ in rows), np.int64).copy()
    letters = np.frombuffer("".join(signature_of(f).removesuffix("u") for f, _, _ in rows).encode(), "S1")
    items: list[Any] = []
    patches: list[tuple[int, int, int]] = []
    begin = first = 0
    for item in made.items:
        if isinstance(item, Calls):
            end, last, before = begin + len(item.arguments), first + len(item.rows), len(patches)
            for k, slot, distance in item.patches:
                values[begin + k] = 0
                patches.append((k, frame.place(slot), distance))
            items.append(("calls", begin, end, first, last, before, len(patches)))
            begin, first = end, last
        else:
            items.append(("step", *_step(item, frame, made)))
    moved = np.flatnonzero((letters == b"p") & (values != 0))
    base, distances = memory.find(values[moved])
    values[moved] = 0
    if memory.knows(values[letters == b"i"]):
        raise Unkept("an address that is not declared as one")
    outputs = [frame.place(slot) for slot in made.outputs]
    kept = memory.constants()
    starts = {low for _, low, _ in kept}
    if any(a.dtype == np.int64 and address(a) in starts and memory.knows(a) for a in constants):
        raise Unkept("a table of addresses")
    starts_at = np.cumsum([0, *(len(packed) // 8 for _, packed, _ in rows)])
    table = [(code.place(f), at, units) for (f, _, units), at in zip(rows, starts_at.tolist(), strict=False)]
    drives = [code.place(where) for where in drive.addresses()]
    image, border, sites, outer = code.linked()
    numbers = {
        "arguments": values, "rows": _numbers(table), "moved": np.stack([moved, base, distances], 1),
        "patches": _numbers(patches), "sites": _numbers(sites),
    }  # fmt: skip
    header = {
        "fed": [(name, _dtype(a), a.shape, a.strides) for name, (_, a) in inputs.items()],
        "items": items, "frame": frame.views, "outputs": outputs, "arena": memory.arena, "border": border, "outer": outer,
        "drive": drives,
    }  # fmt: skip
    return _Parts(header, numbers, kept, memory.size, image, constants)


class _Frame:
    """The slots that a kept recording needs: the inputs, then what is read of the frame and what steps fill."""

    def __init__(self, made: Recording, memory: Memory, inputs: Sequence[int]) -> None:
        self._made, self._memory = made, memory
        self._places = {slot: k for k, slot in enumerate(inputs)}
        self.views: list[tuple[Any, ...]] = []  # behind the inputs: where arrays lie

    def place(self, slot: int) -> int:
        """The place of a slot."""
        return self._places[slot] if slot in self._places else self._add(slot, self._view(self._made.frame[slot]))

    def fill(self, slot: int) -> int:
        """The place of a slot that a step fills, -1 for none."""
        return self._add(slot, ("plain", None)) if slot > 0 else -1

    def _add(self, slot: int, view: tuple[Any, ...]) -> int:
        if slot not in self._places:
            self.views.append(view)
            self._places[slot] = len(self._places)
        return self._places[slot]

    def _view(self, value: Any) -> tuple[Any, ...]:
        """A value by itself, or where an array lies: in the arena or among the constants."""
        if _plain(value):
            return "plain", value
        if not isinstance(value, np.ndarray):
            raise Unkept("a value that is no array")
        if not value.size:
            return "arena", 0, _dtype(value), value.shape, value.strides
        (kind,), (at,) = self._memory.find(np.array([address(value)], np.int64))
        return "arena" if kind == ARENA else "constants", int(at), _dtype(value), value.shape, value.strides


def _step(item: Aside, frame: _Frame, made: Recording) -> tuple[Any, ...]:
    """A step that Python runs, by the name of its rule; what passes made cannot be named."""
    step = item.step
    if step.forms or step.bodies or not _plain(step.attrs):
        raise Unkept(f"{step.op} with attributes that are no plain values")
    module, name = _rule(step.run)
    sources = [frame.place(slot) for slot in step.sources]
    targets = [frame.fill(slot) for slot in step.targets]
    kinds = [made.shapes[slot] for slot in step.targets if slot > 0]
    if not all(isinstance(kind, tuple) for kind in kinds):
        raise Unkept("a result that is no array")
    return module, name, step.attrs, sources, targets, [(_name(dtype), shape, strides) for dtype, shape, strides in kinds]


def _rule(run: Any) -> tuple[str, str]:
    """Where a rule is found again: one of our own, or NumPy's."""
    module = "numpy" if isinstance(run, np.ufunc) else getattr(run, "__module__", "")
    name = getattr(run, "__name__", "")
    if entry.rule(module, name) is not run:
        raise Unkept("a step that has no name")
    return module, name


def _plain(value: Any) -> bool:
    """Whether JSON gives a value back, lists as tuples."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _plain(v) for k, v in value.items())
    return type(value) in (int, float, str, bool, type(None)) or (type(value) is tuple and all(map(_plain, value)))


def _numbers(rows: Sequence[tuple[int, ...]]) -> Array:
    return np.array(rows, np.int64)


def _dtype(array: Array) -> str:
    return _name(array.dtype)


def _name(dtype: np.dtype[Any]) -> str:
    """A type's name that NumPy alone understands."""
    if dtype.hasobject or dtype != np.dtype(dtype.str):
        raise Unkept(f"an array of {dtype}")
    return str(dtype.str)


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
