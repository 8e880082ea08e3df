"""Which faults are planted where not all can be: spread evenly over kinds and depth, so that their share stands for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxbridge.runtime.mutation.fault import Fault
from onnxbridge.runtime.mutation.faults import KINDS


def spread(faults: Sequence[Fault]) -> Iterator[Fault]:
    """All of the faults, in an order of which every beginning is spread: kinds take turns, and within a kind each next fault is
    far from those before it."""
    by_kind = [[f for f in faults if f.kind == kind] for kind in KINDS]
    queues = [iter(_spread_out(of_kind)) for of_kind in by_kind if of_kind]
    while queues:
        for queue in list(queues):
            fault = next(queue, None)
            if fault is None:
                queues.remove(queue)
            else:
                yield fault


def _spread_out(faults: Sequence[Fault]) -> list[Fault]:
    """The middle one, then those of the quarters, then of the eighths, and so on."""
    found: dict[int, Fault] = {}
    parts = 2
    while len(found) < len(faults):
        for part in range(1, parts, 2):
            index = part * len(faults) // parts
            found.setdefault(index, faults[index])
        parts *= 2
        if parts > 4 * len(faults):
            found |= {i: f for i, f in enumerate(faults) if i not in found}
    return list(found.values())
