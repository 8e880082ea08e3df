"""Which operators to keep in float32 so that a conversion in lower precision stays within a limit, and what trying it showed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.runtime.bisect.low_precision.operator_errors import share_text
from onnxbridge.runtime.verify.report import Report

LIMIT = 0.01
"""How far lower precision may move an output by default, as a share of the output's range."""
_SHOWN = 12
_MOST = 0.75
"""A suggestion that keeps a larger share of the operators in float32 is said to gain little."""


@dataclass(frozen=True)
class Suggestion:
    """Operators to keep in float32, and the conversion that was tried with them.

    Attributes:
        limit: how far an output may be off, as a share of its range.
        before, after: how far it is off without and with these operators in float32; `after` is None if nothing was tried.
        option, names: the backend's option and its values: operator types, names of values and patterns. For a file of another
            tool, "" and the names of its nodes.
        operators: the names of the operators that they stand for.
        of: the number of operators that compute in lower precision.
        options: all options of the conversion that was tried.
        report: of that verification; None where nothing was converted.
        runs, tried: the number of runs of the search, and of conversions.
        source, target: the model, and the backend's name.
        reason: why there is nothing to suggest, "" if there is.
    """

    limit: float
    before: float
    after: float | None = None
    option: str = ""
    names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    of: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    report: Report | None = None
    runs: int = 0
    tried: int = 0
    reason: str = ""
    source: str = "MODEL"
    target: str = ""

    @property
    def passed(self) -> bool:
        """Whether the conversion that was tried stays within the limit; for a file of another tool, whether its run with these
        operators in float32 does."""
        agrees = self.report is not None and self.report.agrees if self.option else True
        return agrees and self.after is not None and self.after <= self.limit

    def arguments(self) -> list[str]:
        """The options of `onnxbridge convert` that repeat the conversion, none for a file of another tool."""
        if not self.option:
            return []
        found = ["--to", self.target]
        for name, value in self.options.items():
            if name == "bounds":
                found += [a for dim, (low, high) in value.items() for a in ("--dynamic", f"{dim}={low}..{high}")]
                continue
            flag = "--" + name.replace("_", "-")
            found += [a for item in (value if isinstance(value, (list, tuple)) else [value]) for a in (flag, str(item))]
        return [*found, "--max-drift", share_text(self.limit)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "limit": self.limit, "before": self.before, "after": self.after, "passed": self.passed, "option": self.option,
            "names": list(self.names), "operators": list(self.operators), "of": self.of, "arguments": self.arguments(),
            "runs": self.runs, "conversions_tried": self.tried, "reason": self.reason,
            "verification": None if self.report is None else self.report.as_dict(),
        }  # fmt: skip

    def __str__(self) -> str:
        if self.reason:
            return f"suggestion: {one_line(self.reason)}"
        kept = f"{len(self.operators)} of the {self.of} operators in lower precision stay in float32"
        off = f"outputs are off by {share_text(self.after or 0.0)} of their range, without them by {share_text(self.before)}"
        if not self.passed:
            tried = f"Of {self.tried} conversions tried, in the best" if self.option else "In the best run,"
            return (
                f"suggestion: none that helps. {tried} {kept}, and {off}; "
                f"allowed are {share_text(self.limit)} (--max-drift). Use float32"
            )
        lines = [f"suggestion, tried and within {share_text(self.limit)} (--max-drift): {kept}, and {off}"]
        if self.report is None:
            lines.append("  tried by running these nodes of CANDIDATE in float32; exclude them when the file is made")
            lines.append("  (nodes_to_exclude of onnxruntime.quantization, node_block_list of float16 converters):")
            more = f" and {len(self.names) - _SHOWN} more (--json has all)" if len(self.names) > _SHOWN else ""
            lines.append("  " + ", ".join(map(one_line, self.names[:_SHOWN])) + more)
        else:
            lines.append("  onnxbridge convert " + " ".join(map(shlex.quote, map(one_line, (self.source, *self.arguments())))))
            lines.append(f"  its verification: {str(self.report).splitlines()[0]}")
        if len(self.operators) > _MOST * self.of:
            lines.append("  that is most of the model, so that lower precision gains little")
        return "\n".join(lines)
