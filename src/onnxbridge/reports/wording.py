"""Numbers and reasons of a document in words, the same in each format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.reports.sections import Section, location_text

Values = Mapping[str, Any]


def number(value: Any) -> str:
    """A number in a few digits; numbers that JSON lacks are strings."""
    if value is None:
        return ""
    return f"{float(value):.3g}" if isinstance(value, (int, float, str)) else str(value)


def size(count: int) -> str:
    """A number of bytes."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def type_of(output: Values) -> str:
    return f"{output['dtype']}{list(output['shape'])}"


def allowed(output: Values) -> str:
    """The tolerance of an output."""
    relative = f" + {number(output['rtol'])} relative" if float(output["rtol"]) else ""
    return f"{number(output['atol'])}{relative} ({output['tolerance']})"


def worst(output: Values) -> str:
    """The element that differs most."""
    at = output.get("worst")
    if not at or at["candidate"] == at["reference"]:
        return ""
    candidate, reference = (f"{v:.9g}" if isinstance(v, float) else repr(v) for v in (at["candidate"], at["reference"]))
    return f"sample {at['sample'] + 1}, element {at['index']}: {candidate} instead of {reference}"


def reasons(section: Section) -> list[str]:
    """Why a section has its verdict: the error, what is weak, limits that are exceeded, notes."""
    found = [str(section.error["message"])] if section.error and not section.problems else []
    found += [f"weak: {reason}" for reason in section.verification.get("weak") or ()]
    found += [f"limit exceeded: {reason}" for reason in section.verification.get("beyond_limits") or ()]
    return [one_line(reason) for reason in found]


def notes(section: Section) -> list[str]:
    own = section.verification.get("notes") or ()
    return [one_line(str(note)) for note in dict.fromkeys([*own, *(section.document.get("notes") or ())])]


def problem_lines(problem: Values) -> list[str]:
    """A problem, its locations and its hint."""
    lines = [f"{problem['op']} x{problem['count']}: {problem['reason']}"]
    lines += [f"at {location_text(location)}" for location in problem["locations"]]
    lines += [f"hint: {problem['hint']}"] if problem.get("hint") else []
    return [one_line(line) for line in lines]


def divergence_lines(first: Values) -> list[str]:
    """Where two models diverge first."""
    candidate = f" ({first['candidate_name']} in the candidate)" if first["candidate_name"] != first["name"] else ""
    lines = [f"{first['name']}{candidate}, {first['op']}", f"at {location_text(first['location'])}"]
    comparison = first.get("comparison")
    if comparison:
        lines.append(f"max abs {number(comparison['max_abs'])}; rounding explains {number(comparison['atol'])} here")
    return [one_line(line) for line in [*lines, *first.get("causes", ())]]
