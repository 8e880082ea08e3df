"""What a bisection found, as text, as a dictionary and as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnxbridge.diagnostics import SourceLocation, one_line
from onnxbridge.runtime.bisect.align import summary
from onnxbridge.runtime.bisect.low_precision.operator_errors import OperatorErrors
from onnxbridge.runtime.bisect.low_precision.suggestion import Suggestion
from onnxbridge.runtime.bisect.neighbourhood import Neighbourhood
from onnxbridge.runtime.bisect.reproduction import Part, write
from onnxbridge.runtime.verify.compare import Comparison
from onnxbridge.runtime.verify.layer_error import LayerError
from onnxbridge.runtime.verify.report import Report

_MOST_SHOWN = 5


@dataclass(frozen=True)
class FirstDivergence:
    """The first value that differs by more than rounding explains, although everything that it is computed from agrees.

    Attributes:
        name, candidate_name: of the value in the reference and in the candidate.
        op, candidate_op: the operators that compute it.
        location: the reference's source line, module path or node name.
        reference, candidate: the two arrays, each in its own layout.
        comparison: the largest difference and the tolerance derived at this value; None where the sizes differ.
        causes: what differs between the two operators: attributes, constants.
        others: names of other values that differ although what they are computed from agrees.
    """

    name: str
    candidate_name: str
    op: str
    candidate_op: str
    location: SourceLocation
    reference: np.ndarray[Any, Any]
    candidate: np.ndarray[Any, Any]
    comparison: Comparison | None
    causes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "candidate_name": self.candidate_name, "op": self.op, "candidate_op": self.candidate_op,
            "location": self.location.as_dict(), "reference": summary(self.reference), "candidate": summary(self.candidate),
            "comparison": None if self.comparison is None else self.comparison.as_dict(), "causes": list(self.causes),
            "others": list(self.others),
        }  # fmt: skip

    def __str__(self) -> str:
        op = self.op if self.op == self.candidate_op else f"{self.op} in the reference, {self.candidate_op} in the candidate"
        lines = [f"{self.name} ({op})"]
        if self.candidate_name != self.name:
            lines[0] += f", in the candidate {self.candidate_name}"
        lines.append(f"  at {self.location}")
        lines.append(f"  reference: {summary(self.reference)}")
        lines.append(f"  candidate: {summary(self.candidate)}")
        c = self.comparison
        if c is not None:
            lines.append(f"  max abs {c.max_abs:.2g}, max rel {c.max_rel:.2g}; rounding explains {c.tolerance.atol:.2g} here")
        lines += [f"  {cause}" for cause in self.causes]
        if self.others:
            more = f" and {len(self.others) - _MOST_SHOWN} more" if len(self.others) > _MOST_SHOWN else ""
            lines.append(f"  independent of it, these differ too: {', '.join(self.others[:_MOST_SHOWN])}{more}")
        return "\n".join(map(one_line, lines))


@dataclass(frozen=True)
class Bisection:
    """The result of `bisect`.

    Attributes:
        first: where the two models diverge first; None if they agree, or if `reason` says why no value could be named.
        runs: how often the model that was run most often was run; `runs_of` has both.
        paired: how values were paired: "by name" or "by what they hold".
        values: the number of values of the reference and the candidate that were compared.
        report: the verification that showed the difference.
        reason: in words: which of the two models is to blame, or why nothing was found.
        feeds: the inputs of the run.
        operators: those that add error, for a candidate of lower precision.
        suggestion: which of them to keep in float32, if that was asked for.
        layers: the error of each value that both models have; without common names, of those that agree.
        graph: the operators around the first divergence.
    """

    report: Report
    first: FirstDivergence | None = None
    runs: int = 0
    runs_of: tuple[int, int] = (0, 0)
    paired: str = ""
    values: tuple[int, int] = (0, 0)
    reason: str = ""
    feeds: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parts: tuple[Part, ...] = field(default=(), repr=False)
    command: str = ""
    operators: OperatorErrors | None = None
    suggestion: Suggestion | None = None
    layers: tuple[LayerError, ...] = field(default=(), repr=False)
    graph: Neighbourhood | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "first": None if self.first is None else self.first.as_dict(), "reason": self.reason, "runs": list(self.runs_of),
            "paired": self.paired, "values": list(self.values), "verification": self.report.as_dict(),
            "operators": None if self.operators is None else self.operators.as_dict(),
            "suggestion": None if self.suggestion is None else self.suggestion.as_dict(),
        }  # fmt: skip

    def __repr__(self) -> str:
        if self.first is not None:
            found = f"first divergence {self.first.name} ({self.first.op})"
        elif self.operators is not None:
            found = f"{len(self.operators.rows)} operators in lower precision"
        else:
            found = "the models agree" if self.report.agrees else self.reason
        return one_line(f"Bisection({found})")

    def _repr_html_(self) -> str:
        from onnxbridge.reports.notebook import html_of

        return html_of(self, "bisect")

    def __str__(self) -> str:
        if self.operators is not None:
            return "\n".join(map(str, filter(None, (self.report, self.operators, self.suggestion))))
        if self.report.agrees:
            return f"the two models agree, so there is nothing to find\n{self.report}"
        lines = [f"first divergence: {self.first}"] if self.first is not None else []
        lines += [one_line(self.reason)] if self.reason else []
        if self.paired:
            a, b = self.runs_of
            counted = f"{self.values[0]} and {self.values[1]} values paired {self.paired}"
            lines.append(f"{counted}, in {a} runs of the reference and {b} of the candidate")
        return "\n".join(lines)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write a minimal reproduction and return its files: both operators as ONNX files with their inputs, and a script.

        Raises:
            UsageError: if nothing was found, or the folder exists and `force` is not given.
        """
        return write(Path(folder), self.parts, str(self), self.command, force)
