"""Markdown for the step summary of GitHub and for comments of GitLab: verdict, outputs, details folded."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.reports import wording
from onnxbridge.reports.document import plain
from onnxbridge.reports.sections import Section, sections, verdict_of

_MARKS = {"PASSED": "✅", "WEAK": "⚠️", "FAILED": "❌", "ERROR": "❌", "DONE": "☑️"}
_STRUCTURE = frozenset("\\`*_[]<>#|&~@:$^!")
"""Characters that mean something in Markdown or HTML; they are written as entities."""


def text(document: Mapping[str, Any]) -> str:
    """The document as Markdown, in which nothing from a model is read as Markdown or HTML."""
    document = plain(document)
    found = sections(document)
    verdict = verdict_of(found)
    blocks = [f"## {_MARKS[verdict]} onnxbridge: {verdict}"]
    if len(found) > 1:
        rows = [[code(s.title), f"{_MARKS[s.verdict]} {s.verdict}", str(len(s.outputs) or "")] for s in found]
        blocks.append(_table(["models", "verdict", "outputs"], rows))
    for section in found:
        blocks += _section(section, heading=len(found) > 1)
    blocks.append(_details("How to repeat it", _provenance(document)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def escaped(value: Any) -> str:
    """Text in which no character is Markdown or HTML."""
    text = one_line(str(value))
    starts = text[:1] in "-+" or text[:1].isdigit()  # at the start of a line these begin a list
    inside = text[1:] if starts else text
    first = f"&#{ord(text[0])};" if starts and text else ""
    return first + "".join(f"&#{ord(c)};" if c in _STRUCTURE else c for c in inside).replace("www.", "www&#46;")


def code(value: Any) -> str:
    """Text as code, in which GitHub makes no links and mentions nobody."""
    return f"<code>{escaped(value)}</code>"


def _section(section: Section, heading: bool) -> list[str]:
    head = f"### {_MARKS[section.verdict]} {code(section.title)}" if heading else code(section.title)
    blocks = [head, _list(wording.reasons(section))]
    if section.problems:
        blocks.append(_list([line for problem in section.problems for line in _problem(problem)], ready=True))
    if section.outputs:
        blocks.append(_outputs(section))
    if section.first_divergence:
        blocks.append("**First divergence**")
        blocks.append(_list(wording.divergence_lines(section.first_divergence)))
    faults = section.verification.get("sensitivity")
    if faults:
        missed = [f"{m['operator']} {m['node']}: {m['change']}" for m in faults["missed"]]
        blocks.append(f"{faults['caught']} of {faults['planted']} planted faults would have been caught.")
        blocks.append(_details("Faults that would not have been caught", _list(missed)) if missed else "")
    notes = wording.notes(section)
    blocks.append(_details("Notes", _list(notes)) if notes else "")
    return blocks


def _problem(problem: Mapping[str, Any]) -> list[str]:
    first, *more = wording.problem_lines(problem)
    return [f"{code(first)}" + "".join(f"<br>{escaped(line)}" for line in more)]


def _outputs(section: Section) -> str:
    rows = [
        [
            "✅" if o["passed"] else "❌", code(o["name"]), code(wording.type_of(o)), wording.number(o["max_abs"]),
            wording.number(o["max_rel"]), escaped(wording.allowed(o)), escaped(wording.worst(o)) if not o["passed"] else "",
        ]
        for o in section.outputs
    ]  # fmt: skip
    return _table(["", "output", "type", "max abs", "max rel", "allowed", "worst"], rows)


def _provenance(document: Mapping[str, Any]) -> str:
    command = shlex.join(["onnxbridge", *map(str, document.get("arguments") or ())])
    lines = [code(command), f"onnxbridge {escaped(document.get('onnxbridge', ''))}"]
    lines += [f"{escaped(name)} {escaped(version)}" for name, version in (document.get("versions") or {}).items()]
    for file in [*(document.get("source_files") or ()), *(document.get("written_files") or ())]:
        lines.append(f"{code(file['path'])} SHA-256 {code(file['sha256'] or 'unknown')}")
    return _list(lines, ready=True)


def _list(lines: Sequence[str], ready: bool = False) -> str:
    return "\n".join(f"- {line if ready else escaped(line)}" for line in lines)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _details(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
