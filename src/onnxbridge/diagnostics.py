"""Diagnostics: source locations of operators, and problems that prevent their conversion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def one_line(text: str) -> str:
    """The text on one line: control characters, newlines too, are escaped. It may contain names from a model."""
    return "".join(c if c.isprintable() else "\\n" if c == "\n" else f"\\x{ord(c):02x}" for c in text)


@dataclass(frozen=True)
class SourceLocation:
    """The source location of an operator: `file:line in scope`, or the framework's node name."""

    file: str = ""
    line: int = 0
    scope: str = ""
    node: str = ""

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.file else f"node {self.node!r}" if self.node else ""
        return " in ".join(part for part in (location, self.scope) if part) or "an unknown location"

    def as_dict(self) -> dict[str, Any]:
        return {"file": self.file, "line": self.line, "scope": self.scope, "node": self.node}


@dataclass(frozen=True)
class Problem:
    """One reason why an operator cannot be converted, with the location of every occurrence."""

    op: str
    reason: str
    hint: str = ""
    locations: tuple[SourceLocation, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "reason": self.reason,
            "hint": self.hint,
            "count": len(self.locations),
            "locations": [location.as_dict() for location in self.locations],
        }

    def __str__(self) -> str:
        lines = [f"  {self.op} x{len(self.locations)}: {self.reason}"]
        if self.locations:
            more = len(self.locations) - 1
            lines.append(f"      at {self.locations[0]}" + (f", and {more} more" if more else ""))
        if self.hint:
            lines.append(f"      hint: {self.hint}")
        return "\n".join(map(one_line, lines))


def merge(problems: Iterable[Problem]) -> list[Problem]:
    """Join problems that differ only in their locations, in the order of their first occurrence."""
    merged: dict[tuple[str, str, str], tuple[SourceLocation, ...]] = {}
    for p in problems:
        key = (p.op, p.reason, p.hint)
        merged[key] = merged.get(key, ()) + p.locations
    return [Problem(*key, locations=found) for key, found in merged.items()]
