"""The exceptions, each with the exit code of the command line.

    OnnxbridgeError            any error that the user can act on
    ├── VerificationError      1   source and target do not compute the same
    ├── UsageError             2   a wrong or missing argument
    ├── ConversionError        3   operators that cannot be converted, all of them
    ├── UnsafeFileError        4   a file that is corrupt or unsafe to load
    ├── MissingFrameworkError  5   a framework has to be installed first
    └── LimitError             6   more memory, steps or time than the limits allow

A rule raises `Unsupported` for a case that it does not cover; the walker turns it into a `Problem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from onnxbridge.diagnostics import Problem, SourceLocation, merge

__all__ = [
    "ConversionError", "LimitError", "LossyStep", "MissingFrameworkError", "OnnxbridgeError", "Problem", "SourceLocation",
    "UnsafeFileError", "Unsupported", "UsageError", "VerificationError", "first_line", "merge",
]  # fmt: skip


def first_line(error: BaseException | str) -> str:
    """The first line of an error's message."""
    return next(iter(str(error).strip().splitlines()), "no message")


def __getattr__(name: str) -> Any:
    """Imports the classes of diagnostics lazily."""
    if name in ("Problem", "SourceLocation", "merge"):
        from onnxbridge import diagnostics

        return getattr(diagnostics, name)
    raise AttributeError(f"module 'onnxbridge.errors' has no attribute {name!r}")


class OnnxbridgeError(Exception):
    """An error that the user can act on."""

    exit_code: ClassVar[int] = 70

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values, as reports have it."""
        return {"type": type(self).__name__, "message": str(self), "exit_code": self.exit_code}


class VerificationError(OnnxbridgeError):
    """Source and target do not compute the same, or one of them cannot be run.

    Attributes:
        report: the `Report`, if the comparison was made.
        conversion: the `Conversion` that failed, if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, report: Any = None, conversion: Any = None) -> None:
        super().__init__(message)
        self.report = report
        self.conversion = conversion


class UsageError(OnnxbridgeError):
    """A wrong or missing argument."""

    exit_code = 2


class UnsafeFileError(OnnxbridgeError):
    """A file that is corrupt, or that is unsafe to load: pickled code, external data outside its folder, file operators."""

    exit_code = 4


class MissingFrameworkError(OnnxbridgeError):
    """A framework is not installed. The message has the command that installs it."""

    exit_code = 5


class LimitError(OnnxbridgeError):
    """The work takes more memory, steps or time than the limits allow."""

    exit_code = 6


class LossyStep(UserWarning):
    """Warning: a step of an opset conversion that can change results, made because of `allow_lossy`."""


class Unsupported(Exception):
    """Raised by a rule for a case that it does not cover: `reason` in a few words, `hint` with what to do instead."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class UnsupportedDtype(Unsupported, TypeError):
    """An operator does not take tensors of a dtype."""


class ConversionError(OnnxbridgeError):
    """Operators cannot be converted. All of them are reported at once.

    Attributes:
        direction: the step that failed, such as "PyTorch to ONNX".
        problems: a list of `Problem`, one for each operator and reason.
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
        return {**super().as_dict(), "direction": self.direction, "problems": [p.as_dict() for p in self.problems]}
