"""Searches for few operators that have to stay in float32, by runs of the hub model in which all others are rounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from onnxbridge.runtime.bisect.low_precision.operator_errors import Measured

SECONDS = 40.0
"""The time that the search may take."""


@dataclass(frozen=True)
class Kept:
    """Operators that stay in float32.

    Attributes:
        names: of the operators' first results.
        share: how far the outputs move when all others are rounded, as a share of their range.
        runs: the number of runs of the search.
    """

    names: tuple[str, ...]
    share: float
    runs: int


def search(measured: Measured, limit: float, progress: Callable[[str], None]) -> Kept:
    """The smallest set that was found with which the outputs move by at most `limit` of their range.

    The operators are put into several orders: by how far each moves the outputs, and as they are executed (in a model that
    quantizes while it runs, any rounding before a quantization matters). By bisection of each order, the shortest beginning that
    is enough is found, and then what it does not need is dropped from it, in halves, quarters and so on.
    """
    low = [row.name for row in measured.errors.rows]
    start, count = time.monotonic(), measured.count
    seen: dict[frozenset[str], float] = {}

    def share(kept: Iterable[str]) -> float:
        chosen = frozenset(kept)
        if chosen not in seen:
            progress(f"searching operators to keep in float32, run {measured.count - count + 1}")
            seen[chosen] = measured.share([name for name in low if name not in chosen])
        return seen[chosen]

    best: Sequence[str] = low
    for order in _orders(measured):
        shortest = _shortest(order, len(best), lambda k, order=order: share(order[:k]) <= limit)  # type: ignore[misc]
        best = order[:shortest] if shortest < len(best) else best
    best = _without_needless(list(best), lambda kept: share(kept) <= limit, lambda: time.monotonic() - start > SECONDS)
    return Kept(tuple(best), share(best), measured.count - count)


def _orders(measured: Measured) -> list[list[str]]:
    rows = measured.errors.rows
    by_influence = [row.name for row in rows]
    position = {op.name: i for i, op in enumerate(measured.runs[0].operators)}
    overflowing = [row.name for row in rows if row.overflow]
    executed = sorted(by_influence, key=position.__getitem__)
    first = set(overflowing)
    return [by_influence, overflowing + [name for name in executed if name not in first]]


def _shortest(order: Sequence[str], most: int, enough: Callable[[int], bool]) -> int:
    """The length of the shortest beginning that is enough, by bisection; `most` if none shorter than that is."""
    low, high = 0, most
    if enough(0):
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _without_needless(kept: list[str], enough: Callable[[list[str]], bool], late: Callable[[], bool]) -> list[str]:
    size = len(kept) // 2
    while size and not late():
        start = 0
        while start < len(kept) and not late():
            fewer = kept[:start] + kept[start + size :]
            if enough(fewer):
                kept = fewer
            else:
                start += size
        size //= 2
    return kept
