"""A report of a model's plan: which operators were fused, which algorithm each step uses, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.runtime.executor import record_run
from onnxbridge.runtime.executor.plan import Plan, Step
from onnxbridge.runtime.executor.work import multiply_adds


@dataclass(frozen=True)
class Planned:
    """One step of a plan on inputs of certain sizes.

    `op` is what the step computes, `operators` are those of the model that it replaces, `location` is that of their source.
    `runs` is "compiled kernel", "Python", or "once" for what the shapes of the inputs determine; `pieces` is how many parts
    of a kernel's work threads may take. `bytes` is what it reads and writes besides weights; `flops` counts a multiplication
    and an addition as two and is 0 if unknown.
    """

    op: str
    operators: tuple[str, ...]
    location: str
    algorithm: str
    runs: str
    pieces: int
    shapes: tuple[tuple[int, ...], ...]
    bytes: int
    flops: int


def planned(plan: Plan, frame: list[Any], inputs: Mapping[int, Any], budget: Budget, adapt: Any) -> list[Planned]:
    """The steps of a plan, in order, from running it once on a frame that has its inputs."""
    found: list[Planned] = []

    def seen(step: Step, args: list[Any], results: list[Any], runs: str, pieces: int) -> None:
        shapes = tuple(r.shape for r in results if isinstance(r, np.ndarray))
        moved = sum(a.nbytes for a in (*args, *results) if isinstance(a, np.ndarray))
        algorithm = step.algorithm or ("one pass" if runs == "compiled kernel" else "")
        operators = step.parts or (step.op,)
        location, flops = str(step.location), _flops(step, args, results)
        found.append(Planned(step.op, operators, location, algorithm, runs, pieces, shapes, moved, flops))

    record_run.record(plan, frame, tuple(inputs), budget, adapt, seen)
    return found


def _flops(step: Step, args: list[Any], results: list[Any]) -> int:
    if not results or not isinstance(results[0], np.ndarray):
        return 0
    count = step.work * results[0].size
    if not count and (not step.native or step.op == "Attention"):  # other fused steps have arguments of their own
        count = multiply_adds(step.op, args, results, step.attrs)
    return int(2 * count or (results[0].size if step.native else 0))
