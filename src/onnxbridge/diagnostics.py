"""Where an operator comes from, and why it cannot be converted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def one_line(text: str) -> str:
    """Text that may hold names from a model, on one line: control characters, newlines too, are written as escapes."""
    return "".join(c if c.isprintable() else "\\n" if c == "\n" else f"\\x{ord(c):02x}" for c in text)


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
        return "\n".join(map(one_line, lines))


def merge(problems: Iterable[Problem]) -> list[Problem]:
    """Join the problems that differ only in their places, in the order in which they were first met."""
    merged: dict[tuple[str, str, str], tuple[Source, ...]] = {}
    for p in problems:
        key = (p.op, p.reason, p.hint)
        merged[key] = merged.get(key, ()) + p.places
    return [Problem(*key, places=places) for key, places in merged.items()]
