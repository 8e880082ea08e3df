"""The budget within which untrusted models are run and folded: bytes, rank, loop trips and time.

Whoever runs a model opens a `Budget` with `limited`; what is about to allocate calls `claim` first. Outside of any budget
the default one counts, without its total.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from onnxbridge.errors import LimitError
from onnxbridge.hub.io.limits import Limits

__all__ = ["COUNTED", "Budget", "Limits", "claim", "claim_broadcast", "current", "limited"]

COUNTED = 1 << 20  # arrays below this size are not counted one by one: loop trips bound them


class Budget:
    """The account of one run against its limits."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.operator = ""
        self.live = 0
        self.work = 0  # operations so far, as the executor counts them
        self._trips = 0
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._deadline = time.monotonic() + self.limits.seconds if self.limits.seconds is not None else math.inf

    def claim(self, shape: Iterable[int], dtype: Any) -> None:
        """Refuse an array of this shape before it is allocated."""
        sizes = [int(n) for n in shape]
        if len(sizes) > self.limits.rank:
            raise LimitError(f"{self._who()} asks for {len(sizes)} dimensions, and the budget is {self.limits.rank}")
        asked = math.prod(sizes) * np.dtype(dtype).itemsize
        if asked > self.limits.tensor_bytes:
            text = "x".join(map(str, sizes))
            raise LimitError(
                f"{self._who()} asks for {asked} bytes (shape {text}), and the budget for one tensor is "
                f"{self.limits.tensor_bytes} bytes"
            )
        if asked + self.live > self.limits.total_bytes:
            raise LimitError(
                f"{self._who()} asks for {asked} bytes while {self.live} are in use, and the budget is "
                f"{self.limits.total_bytes} bytes"
            )

    def hold(self, value: Any) -> None:
        """Count a result for as long as it lives; views count as what they look at."""
        if isinstance(value, list):
            for item in value:
                self.hold(item)
            return
        if not isinstance(value, np.ndarray):
            return
        if value.ndim > self.limits.rank:
            raise LimitError(f"{self._who()} gives {value.ndim} dimensions, and the budget is {self.limits.rank}")
        if value.nbytes < COUNTED:
            return
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        key, size = id(owner), owner.nbytes
        if key in self._held:
            return
        self._held[key] = (weakref.ref(owner, lambda _: self._release(key)), size)
        self.live += size
        if self.live > self.limits.total_bytes:
            raise LimitError(
                f"{self._who()} brings what is in use to {self.live} bytes, and the budget is {self.limits.total_bytes} bytes"
            )

    def _release(self, key: int) -> None:
        self.live -= self._held.pop(key)[1]

    def left(self) -> int:
        """How many more iterations of loops are allowed."""
        return self.limits.trips - self._trips

    def trip(self, many: int = 1) -> None:
        """Count more iterations of a loop."""
        self._trips += many
        if self._trips > self.limits.trips:
            raise LimitError(f"{self._who()} goes beyond {self.limits.trips} loop iterations, which is the budget")

    def grow(self, items: int) -> None:
        """Refuse a sequence of so many items."""
        if items > self.limits.items:
            raise LimitError(f"{self._who()} asks for a sequence of {items} items, and the budget is {self.limits.items}")

    def tick(self) -> None:
        """Refuse to go on after the time that the run was given."""
        if self._deadline is not math.inf and time.monotonic() > self._deadline:
            raise LimitError(f"{self._who()} was reached after {self.limits.seconds} seconds, which is the budget")

    def _who(self) -> str:
        return self.operator or "the model"


_current: ContextVar[Budget | None] = ContextVar("onnxbridge_budget", default=None)


def current() -> Budget:
    """The budget in force; the default one where none was opened."""
    return _current.get() or Budget()


@contextlib.contextmanager
def limited(limits: Limits | None = None) -> Iterator[Budget]:
    """Open a budget for a run; inside another run's budget that one goes on counting, unless limits are given."""
    there = _current.get()
    if there is not None and limits is None:
        yield there
        return
    budget = Budget(limits)
    token = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(token)


def claim(shape: Iterable[int], dtype: Any) -> None:
    """Refuse an array of this shape and type before it is allocated, if it is beyond the budget in force."""
    current().claim(shape, dtype)


def claim_broadcast(*arrays: Any) -> None:
    """Refuse the result of broadcasting arrays, if it is beyond the budget; where they cannot grow nothing is computed."""
    shape = arrays[0].shape
    for a in arrays:
        if a.shape != shape:
            break
    else:
        return
    if math.prod(max(1, a.size) for a in arrays) > COUNTED:
        claim(np.broadcast_shapes(*(a.shape for a in arrays)), max((a.dtype for a in arrays), key=lambda d: d.itemsize))
