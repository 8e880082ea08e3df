"""The memory that a recording uses: what is constant and has to be kept, and what is its own and may be any other."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from onnxbridge.runtime.kept.entry import ALIGNED, ARENA, CONSTANTS
from onnxbridge.runtime.plan import Plan
from onnxbridge.runtime.recording import Array, Recording, address, extent

_LEAST_ADDRESS = 1 << 32  # a number from here on that is in known memory is an address, whatever the loop says


class Unkept(Exception):
    """A recording that cannot be kept, and why."""


class Memory:
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
            raise Unkept("an address of unknown memory")
        for j in np.unique(k[self._places[k] < 0]).tolist():
            self.size = self._place(j, self.size)
        return np.where(self._kept[k], CONSTANTS, ARENA), self._places[k] + where - self._lows[k]

    def constants(self) -> list[tuple[int, int, int]]:
        """What is kept: the place among the constants, and from where to where it lies now."""
        chosen = np.flatnonzero(self._kept & (self._places >= 0))
        columns = (self._places[chosen], self._lows[chosen], self._highs[chosen])
        return sorted(zip(*(c.tolist() for c in columns), strict=True))


def constants_of(plan: Plan, made: Recording) -> list[Array]:
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
        elif isinstance(value, functools.partial):
            todo += [value.func, *value.args, *value.keywords.values()]
        elif type(value).__module__.startswith("onnxbridge."):
            names = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
            todo += [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)]
