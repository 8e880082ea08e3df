"""Everything that onnxbridge can report or raise.

    OnnxbridgeError            any error that the user can act on; carries the exit code of the command line
    ├── VerificationError      1   source and target do not compute the same
    ├── UsageError             2   a wrong argument, or one that is missing
    ├── ConversionError        3   every operator that is in the way, as a list of problems
    ├── UnsafeFileError        4   a file that is corrupt, or that reaches for what it must not
    ├── MissingFrameworkError  5   a framework has to be installed first
    └── LimitError             6   the work would take more than the budget allows

`Unsupported` is what a rule raises for a case that it does not cover; the walker turns it into a `Problem`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class OnnxbridgeError(Exception):
    """An error that the user can act on."""

    exit_code: ClassVar[int] = 70


class VerificationError(OnnxbridgeError):
    """Source and target do not compute the same; `report` says where, `conversion` holds what was made all the same."""

    exit_code = 1

    def __init__(self, message: str, report: Any = None, conversion: Any = None) -> None:
        super().__init__(message)
        self.report = report
        self.conversion = conversion


class UsageError(OnnxbridgeError):
    """A wrong or missing argument."""

    exit_code = 2


class UnsafeFileError(OnnxbridgeError):
    """A file that is corrupt, or that reaches for what a model must not reach for."""

    exit_code = 4


class MissingFrameworkError(OnnxbridgeError):
    """A framework that the work needs is not installed; the message has the command that installs it."""

    exit_code = 5


class LimitError(OnnxbridgeError):
    """The work would take more bytes, steps or time than the budget allows."""

    exit_code = 6


class LossyStep(UserWarning):
    """A step of an opset conversion that does not keep every number, made because it was allowed."""


class Unsupported(Exception):
    """Raised by a rule for a case that it does not cover: `reason` in a few words, `hint` with the way out."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class Source:
    """Where an operator comes from, in the user's terms: `file:line in scope`, or the framework's own node name."""

    file: str = ""
    line: int = 0
    scope: str = ""
    node: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else f"node {self.node!r}" if self.node else ""
        return " in ".join(part for part in (place, self.scope) if part) or "an unknown place"

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "scope": self.scope, "node": self.node}


@dataclass(frozen=True)
class Problem:
    """One reason why an operator cannot be converted, with every place where it occurs."""

    op: str
    reason: str
    hint: str = ""
    places: tuple[Source, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "reason": self.reason,
            "hint": self.hint,
            "count": len(self.places),
            "places": [place.as_dict() for place in self.places],
        }

    def __str__(self) -> str:
        lines = [f"  {self.op} x{len(self.places)}: {self.reason}"]
        if self.places:
            more = len(self.places) - 1
            lines.append(f"      at {self.places[0]}" + (f", and {more} more" if more else ""))
        if self.hint:
            lines.append(f"      hint: {self.hint}")
        return "\n".join(lines)


def merge(problems: Iterable[Problem]) -> list[Problem]:
    """Join the problems that differ only in their places, in the order in which they were first met."""
    merged: dict[tuple[str, str, str], tuple[Source, ...]] = {}
    for p in problems:
        key = (p.op, p.reason, p.hint)
        merged[key] = merged.get(key, ()) + p.places
    return [Problem(*key, places=places) for key, places in merged.items()]


class ConversionError(OnnxbridgeError):
    """Every operator that is in the way of a conversion, all at once.

    `direction` reads like "PyTorch to ONNX"; `problems` holds one `Problem` for each operator and reason.
    """

    exit_code = 3

    def __init__(self, direction: str, problems: Sequence[Problem]) -> None:
        self.direction = direction
        self.problems = list(problems)
        super().__init__(str(self))

    def __str__(self) -> str:
        ops = len({p.op for p in self.problems})
        head = f"{self.direction}: {ops} operator{'s' if ops != 1 else ''} cannot be converted"
        return "\n".join([head, *map(str, self.problems)])

    def as_dict(self) -> dict[str, Any]:
        return {"direction": self.direction, "problems": [p.as_dict() for p in self.problems]}
