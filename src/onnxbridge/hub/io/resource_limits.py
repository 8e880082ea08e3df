"""Resource budget for running and folding untrusted models: memory, rank, loop iterations and time.

Code that runs a model opens a `Budget` with `limited`; code that allocates calls `claim` first. Without an open budget the
default limits apply to each tensor, but not their total.
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
from onnxbridge.hub.io.limits import Limits, present_limits

__all__ = [
    "MIN_TRACKED_BYTES", "Budget", "Limits", "claim", "claim_broadcast", "current", "folding", "folding_limited", "limited",
]  # fmt: skip

MIN_TRACKED_BYTES = (
    1 << 20
)  # arrays below this size in bytes are not tracked one by one: the limit of loop iterations bounds them


class Budget:
    """Tracks the resource use of one run against its limits."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or present_limits()
        self.operator = ""
        self.live = 0
        self.work = 0  # operations so far, as the executor counts them
        self._iterations = 0
        self._tracked: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._deadline = time.monotonic() + self.limits.seconds if self.limits.seconds is not None else math.inf

    def claim(self, shape: Iterable[int], dtype: Any) -> None:
        """Check that an array of this shape may be allocated.

        Raises:
            LimitError: if it exceeds the limits.
        """
        sizes = [int(n) for n in shape]
        if len(sizes) > self.limits.rank:
            raise LimitError(f"{self._subject()} requests {len(sizes)} dimensions, and the limit is {self.limits.rank}")
        requested = math.prod(sizes) * np.dtype(dtype).itemsize
        if requested > self.limits.tensor_bytes:
            text = "x".join(map(str, sizes))
            raise LimitError(
                f"{self._subject()} requests {requested} bytes (shape {text}), and the limit for one tensor is "
                f"{self.limits.tensor_bytes} bytes (--limits tensor=SIZE)"
            )
        if requested + self.live > self.limits.total_bytes:
            raise LimitError(
                f"{self._subject()} requests {requested} bytes while {self.live} are in use, and the limit is "
                f"{self.limits.total_bytes} bytes (--limits total=SIZE)"
            )

    def track(self, value: Any) -> None:
        """Track the memory of a result until it is freed; a view counts as its base array."""
        if isinstance(value, list):
            for item in value:
                self.track(item)
            return
        if not isinstance(value, np.ndarray):
            return
        if value.ndim > self.limits.rank:
            raise LimitError(f"{self._subject()} returns {value.ndim} dimensions, and the limit is {self.limits.rank}")
        if value.nbytes < MIN_TRACKED_BYTES:
            return
        owner = value
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        key, size = id(owner), owner.nbytes
        if key in self._tracked:
            return
        self._tracked[key] = (weakref.ref(owner, lambda _: self._release(key)), size)
        self.live += size
        if self.live > self.limits.total_bytes:
            raise LimitError(
                f"{self._subject()} raises the memory in use to {self.live} bytes; the limit is {self.limits.total_bytes} bytes"
            )

    def _release(self, key: int) -> None:
        self.live -= self._tracked.pop(key)[1]

    def iterations_left(self) -> int:
        """The number of loop iterations still allowed."""
        return self.limits.loop_iterations - self._iterations

    def count_iterations(self, many: int = 1) -> None:
        """Count loop iterations."""
        self._iterations += many
        if self._iterations > self.limits.loop_iterations:
            raise LimitError(f"{self._subject()} exceeds the limit of {self.limits.loop_iterations} loop iterations")

    def check_items(self, items: int) -> None:
        """Check the length of a sequence."""
        if items > self.limits.items:
            raise LimitError(f"{self._subject()} requests a sequence of {items} items, and the limit is {self.limits.items}")

    def check_time(self) -> None:
        """Check the time limit."""
        if self._deadline is not math.inf and time.monotonic() > self._deadline:
            raise LimitError(f"{self._subject()} was reached after the time limit of {self.limits.seconds} seconds")

    def _subject(self) -> str:
        return self.operator or "the model"


_current: ContextVar[Budget | None] = ContextVar("onnxbridge_budget", default=None)


def current() -> Budget:
    """The active budget, or a default one."""
    return _current.get() or Budget()


@contextlib.contextmanager
def limited(limits: Limits | None = None) -> Iterator[Budget]:
    """Open a budget for a run; a nested run without its own limits shares the outer budget."""
    outer = _current.get()
    if outer is not None and limits is None:
        yield outer
        return
    budget = Budget(limits)
    token = _current.set(budget)
    try:
        yield budget
    finally:
        _current.reset(token)


def claim(shape: Iterable[int], dtype: Any) -> None:
    """Check an allocation against the active budget."""
    current().claim(shape, dtype)


def claim_broadcast(*arrays: Any) -> None:
    """Check the result of broadcasting arrays against the active budget; cheap where the result cannot be large."""
    shape = arrays[0].shape
    for a in arrays:
        if a.shape != shape:
            break
    else:
        return
    if math.prod(max(1, a.size) for a in arrays) > MIN_TRACKED_BYTES:
        claim(np.broadcast_shapes(*(a.shape for a in arrays)), max((a.dtype for a in arrays), key=lambda d: d.itemsize))


class FoldingTime:
    """The time that constant folding has taken while one model is read or converted."""

    def __init__(self) -> None:
        self._limit, self._taken = present_limits().folding_seconds, 0.0

    @contextlib.contextmanager
    def measured(self, operator: str) -> Iterator[None]:
        """Count the time of this block.

        Raises:
            LimitError: if it is more than the limit, with the blocks before.
        """
        if self._taken > self._limit:
            raise LimitError(
                f"{operator}: constant folding took more than the limit of {self._limit:g} seconds (--limits time=SECONDS)"
            )
        start = time.monotonic()
        try:
            yield
        finally:
            self._taken += time.monotonic() - start


_folding: ContextVar[FoldingTime | None] = ContextVar("onnxbridge_folding", default=None)


@contextlib.contextmanager
def folding_limited() -> Iterator[None]:
    """Limit the time of constant folding in this block; an inner block shares the time of the outer one."""
    if _folding.get() is not None:
        yield
        return
    token = _folding.set(FoldingTime())
    try:
        yield
    finally:
        _folding.reset(token)


def folding(operator: str) -> contextlib.AbstractContextManager[None]:
    """Count the time of folding an operator, where it is limited."""
    present = _folding.get()
    return contextlib.nullcontext() if present is None else present.measured(operator)
