"""Which operators add error where a model computes in lower precision: each is run from the reference's own inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.diagnostics import SourceLocation, one_line
from onnxbridge.runtime.bisect.low_precision.operator_runs import Operator, OperatorRuns
from onnxbridge.runtime.bisect.low_precision.output_error import error_share
from onnxbridge.runtime.bisect.low_precision.round_to import RoundTo

WORST = 32
"""For so many operators of the largest error, a run shows how far each moves the outputs by itself."""
SECONDS = 20.0
"""The time that these runs may take together."""
_SHOWN = 12
_OF_SIZES = frozenset({"Shape", "Size"})
"""Operators whose results do not depend on the numbers that they read."""


@dataclass(frozen=True)
class OperatorError:
    """What an operator adds to the error when its inputs, constants and results are rounded to the lower precision.

    Attributes:
        name: of its first result.
        error: the largest difference of its results, computed from exact inputs, as a share of the largest result.
        largest: the largest magnitude of its inputs and results.
        overflow: the number of results that are infinite or NaN only in the lower precision.
        moves: how far this operator alone moves an output, as a share of the output's range; None if it was not tried.
    """

    name: str
    op: str
    location: SourceLocation
    error: float
    largest: float
    overflow: int
    moves: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "op": self.op, "location": self.location.as_dict(), "error": self.error, "largest": self.largest,
            "overflow": self.overflow, "moves": self.moves,
        }  # fmt: skip


@dataclass(frozen=True)
class OperatorErrors:
    """The operators that add error, the worst first.

    Attributes:
        rows: one for each operator that computes in the lower precision.
        together: how far all of them together move an output, as a share of its range.
        in_float32: how many operators with floating-point results stay in float32 already.
        runs: how often the model, or the part of it that changes, was run.
    """

    rows: tuple[OperatorError, ...]
    together: float
    in_float32: int
    runs: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "operators": [row.as_dict() for row in self.rows], "together": self.together, "in_float32": self.in_float32,
            "runs": self.runs,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"{len(self.rows)} operators compute in lower precision, {self.in_float32} in float32. Together they move an output "
            f"{moved_text(self.together)} ({self.runs} runs in float64).",
            "The worst, each rounded by itself:",
            f"  {'moves':>8} {'adds':>8} {'largest':>9} {'overflow':>8}  operator",
        ]
        for row in self.rows[:_SHOWN]:
            moves = "-" if row.moves is None else share_text(row.moves)
            lines.append(
                f"  {moves:>8} {share_text(row.error):>8} {row.largest:>9.3g} {row.overflow or '-':>8}"
                f"  {row.op} {one_line(row.name)}"
            )
            if row.location.file or row.location.scope:
                lines.append(f"  {'':>36}  at {row.location}")
        if len(self.rows) > _SHOWN:
            lines.append(f"  and {len(self.rows) - _SHOWN} more (--json has all)")
        lines.append(
            "moves: how far it alone moves an output, as a share of the output's range; "
            "adds: the error of its result from exact inputs"
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Measured:
    """The table, and the runs that it comes from, for searching."""

    errors: OperatorErrors
    runs: tuple[OperatorRuns, ...]
    rounding: RoundTo
    ranges: Mapping[str, float]

    def share(self, low: Collection[str]) -> float:
        """How far an output is off at most, over all samples, when the operators of these names are rounded."""
        return max(error_share(runs.outputs, runs.rounded(low, self.rounding), self.ranges) for runs in self.runs)

    @property
    def count(self) -> int:
        """The number of runs so far."""
        return sum(runs.runs for runs in self.runs)


def measure(
    model: ir.Model, feeds: Sequence[Mapping[str, Any]], unit: float, in_float32: Collection[str], ranges: Mapping[str, float],
    progress: Callable[[str], None], operators: Sequence[Operator] = (),
) -> Measured:  # fmt: skip
    """Measure the error that each operator adds.

    Args:
        feeds: samples; each operator by itself is run on the first one only.
        unit: the unit roundoff of the lower precision.
        in_float32: names of values whose operators are not rounded.
        ranges: of the outputs.
        operators: what is run in place of the model's own operators (`paired_parts`).
    """
    rounding = RoundTo(unit)
    rows: list[OperatorError] = []
    exempt = frozenset(in_float32)
    wide = [0]

    def see(op: Operator, values: Mapping[str, Any], results: list[Any]) -> None:
        if any(name in exempt for name in op.outputs):
            wide[0] += 1
        elif op.op not in _OF_SIZES and any(_is_float(v) for v in (*(values[name] for name in op.inputs), *results)):
            rows.append(_row(op, values, results, op.run(values, rounding)))

    progress("running each operator from exact inputs")
    runs = OperatorRuns(model, feeds[0], see, tuple(operators))
    others = [OperatorRuns(model, feed, lambda *seen: None, runs.operators) for feed in feeds[1:]]
    ordered = sorted(rows, key=lambda row: (-row.overflow, -row.error))
    measured = Measured(OperatorErrors((), 0.0, wide[0], 0), (runs, *others), rounding, ranges)
    together = measured.share([row.name for row in rows])
    start, moved = time.monotonic(), []
    for i, row in enumerate(ordered[:WORST]):
        if time.monotonic() - start > SECONDS or not row.error:
            break
        progress(f"rounding one operator {i + 1}/{min(WORST, len(ordered))}")
        moved.append(replace(row, moves=error_share(runs.outputs, runs.rounded([row.name], rounding), ranges)))
    moved.sort(key=lambda row: -(row.moves or 0.0))
    table = OperatorErrors((*moved, *ordered[len(moved) :]), together, wide[0], measured.count)
    return replace(measured, errors=table)


def _row(op: Operator, values: Mapping[str, Any], exact: list[Any], rounded: list[Any]) -> OperatorError:
    floats = [v for v in (*(values[name] for name in op.inputs), *exact) if _is_float(v)]
    largest = max((_largest(v) for v in floats), default=0.0)
    error, overflow = 0.0, 0
    for a, b in zip(exact, rounded, strict=True):
        if isinstance(a, np.ndarray) and a.shape == np.shape(b) and a.size and a.dtype.kind in "fiub":
            if a.dtype.kind == "f":
                overflow += int((np.isfinite(a) & ~np.isfinite(b)).sum())
            error = max(error, _relative(a, b))
    return OperatorError(op.name, op.op, op.location, error, largest, overflow)


def _relative(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The largest difference as a share of the largest element, infinite if only one of the two is finite."""
    with np.errstate(all="ignore"):
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
    distance = np.where(np.isfinite(a) & ~np.isfinite(b), np.inf, np.where(np.isfinite(distance), distance, 0.0))
    most = float(distance.max(initial=0.0))
    return 0.0 if not most else most / (_largest(a) or most)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _largest(array: np.ndarray[Any, Any]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) if array.size else 0.0


def moved_text(share: float) -> str:
    """Such as "by 3.7% of its range"."""
    return f"by {share_text(share)} of its range" if np.isfinite(share) else "to infinity or NaN"


def share_text(share: float) -> str:
    """Such as "3.7%"."""
    return "infinite" if not np.isfinite(share) else f"{share:.2g}" if share >= 10 else f"{100 * share:.2g}%"
