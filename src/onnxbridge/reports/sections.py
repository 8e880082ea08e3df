"""A document as sections, which all formats but JSON show: one for each comparison of two models, or attempt of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.diagnostics import SourceLocation

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: the models, such as "net.pt2 to coreml".
        verdict: PASSED, WEAK or FAILED; ERROR where an error came before a verdict, and DONE where nothing was verified.
        failed: whether it counts as failed: WEAK does if the command was strict.
        verification: that of two models, with `outputs`; empty where there is none.
        problems: operators that cannot be converted.
        error: what ended it, with `type` and `message`; empty if nothing did.
        bisection: with `first`, where the models diverge; empty where none was made.
        plots: what HTML reports draw: elements of outputs, errors of layers, a graph.
        document: of the command that it belongs to.
    """

    title: str
    verdict: str
    failed: bool
    verification: Values = field(default_factory=dict)
    problems: tuple[Values, ...] = ()
    error: Values = field(default_factory=dict)
    bisection: Values = field(default_factory=dict)
    document: Values = field(default_factory=dict)
    plots: Values = field(default_factory=dict)

    @property
    def outputs(self) -> list[Values]:
        return list(self.verification.get("outputs") or ())

    @property
    def seconds(self) -> float:
        """Those of the verification, or of the whole command."""
        own = self.verification.get("seconds")
        return float((self.document.get("seconds_by_stage") or {}).get("total", 0.0) if own is None else own)

    @property
    def first_divergence(self) -> Values:
        return self.bisection.get("first") or {}


def sections(document: Values, name: str = "") -> list[Section]:
    """The sections of a document; those of a batch are the sections of its jobs."""
    if document.get("jobs") is not None:
        return [s for i, job in enumerate(document["jobs"]) for s in sections(job, str(job.get("name") or f"job {i + 1}"))]
    if document.get("steps") is not None:
        return list(_steps(document, name))
    if document.get("command") == "check" and document.get("problems") is not None:
        return list(_targets(document, name))
    return [_single(document, name)]


def verdict_of(found: list[Section]) -> str:
    """The worst verdict."""
    verdicts = {section.verdict for section in found}
    return next((v for v in ("FAILED", "ERROR", "WEAK", "PASSED") if v in verdicts), "DONE")


def _single(document: Values, name: str) -> Section:
    verification = document.get("verification") or (document if document.get("outputs") is not None else {})
    error = document.get("error") or {}
    verdict = str(verification.get("verdict") or ("ERROR" if error else "DONE"))
    failed = verdict in ("FAILED", "ERROR") or bool(verdict == "WEAK" and document.get("exit_code"))
    bisection = document if document.get("command") == "bisect" else document.get("bisection") or {}
    problems = tuple(error.get("problems") or ())
    title, plots = name or _title(document, verification), document.get("plots") or {}
    return Section(title, verdict, failed, verification, problems, error, bisection, document, plots)


def _title(document: Values, verification: Values) -> str:
    files = [str(file["path"]) for file in document.get("source_files") or ()]
    if document.get("target"):
        return f"{files[0] if files else document.get('source')} to {document['target']}"
    if len(files) > 1:
        return f"{files[0]} against {files[-1]}"
    if verification:
        return f"{verification['reference']} against {verification['candidate']}"
    words = [a for a in document.get("arguments") or () if not str(a).startswith("-")]
    return " ".join(map(str, words)) or "onnxbridge"


def _steps(document: Values, name: str) -> Iterator[Section]:
    path = name or str(document.get("source", "model"))
    drawn = (document.get("plots") or {}).get("steps") or [{}] * len(document["steps"])
    for step, plots in zip(document["steps"], drawn, strict=True):
        path += f" -> {step['name']}"
        verdict = step["verdict"] or "ERROR"
        message = step["error"] or ("" if step["verdict"] else "not reached: an earlier conversion failed")
        error = {"type": "OnnxbridgeError", "message": message} if message else {}
        failed = verdict in ("FAILED", "ERROR") or bool(verdict == "WEAK" and document.get("exit_code"))
        yield Section(path, verdict, failed, step["verification"] or {}, error=error, document=document, plots=plots)


def _targets(document: Values, name: str) -> Iterator[Section]:
    """Those of `check`; a problem of reading the source has no target and belongs to all."""
    for target in document.get("targets") or ():
        problems = tuple(p for p in document["problems"] if p.get("target") in (None, target))
        title = f"{name or document.get('source', 'model')} to {target}"
        yield Section(title, "FAILED" if problems else "PASSED", bool(problems), problems=problems, document=document)


def location_text(location: Values) -> str:
    """A source location in words."""
    file, line, scope, node = (location.get(key) for key in ("file", "line", "scope", "node"))
    return str(SourceLocation(file or "", line or 0, scope or "", node or ""))
