"""SARIF 2.1.0: what cannot be converted and what diverges, at the user's own source lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from onnxbridge.diagnostics import one_line
from onnxbridge.reports import wording
from onnxbridge.reports.document import plain
from onnxbridge.reports.sections import Section, sections

Values = Mapping[str, Any]
_SCHEMA_URI = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_RULES = {
    "missing-rule": ("error", "There is no rule for an operator, so it cannot be converted."),
    "unsupported-case": ("error", "A case of an operator cannot be converted."),
    "missing-framework": ("error", "A framework has to be installed first."),
    "verification-failed": ("error", "The two models do not compute the same."),
    "verification-weak": ("warning", "The two models agree, which proves little."),
    "command-failed": ("error", "The command ended with an error."),
}
"""The kinds of results: level and description."""


def text(document: Mapping[str, Any]) -> str:
    """The document as SARIF: one result for each location of each problem, and one for each verification that failed."""
    found: dict[str, dict[str, Any]] = {}
    for section in sections(plain(document)):
        for result in _results(section):
            found.setdefault(result["partialFingerprints"]["onnxbridge/v1"], result)
    used = list(dict.fromkeys(result["ruleId"] for result in found.values()))
    driver = {
        "name": "onnxbridge", "version": str(document.get("onnxbridge", "")), "rules": [_rule(name) for name in used],
    }  # fmt: skip
    succeeded = document.get("exit_code") in (0, 1, 3)
    run = {
        "tool": {"driver": driver}, "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": succeeded, "exitCode": int(document.get("exit_code") or 0)}],
        "results": [{**result, "ruleIndex": used.index(result["ruleId"])} for result in found.values()],
    }  # fmt: skip
    return json.dumps({"$schema": _SCHEMA_URI, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str) -> dict[str, Any]:
    level, description = _RULES[name]
    return {"id": name, "shortDescription": {"text": description}, "defaultConfiguration": {"level": level}}


def _results(section: Section) -> Iterator[dict[str, Any]]:
    for problem in section.problems:
        reason = str(problem["reason"])
        rule = "missing-rule" if "no rule" in reason else "unsupported-case"
        if "is not installed" in reason:
            rule = "missing-framework"
        message = "; ".join([f"{problem['op']}: {reason}", *([f"hint: {problem['hint']}"] if problem.get("hint") else [])])
        for location in problem["locations"] or [{}]:
            yield _result(rule, message, location, section)
    if section.verdict == "FAILED" and not section.problems:
        lines = [f"{o['name']}: max abs {wording.number(o['max_abs'])}, allowed {wording.allowed(o)}"
                 for o in section.outputs if not o["passed"]]  # fmt: skip
        first = section.first_divergence
        lines += [f"first divergence: {line}" for line in wording.divergence_lines(first)[:1]] if first else []
        yield _result("verification-failed", "; ".join(lines or wording.reasons(section)), first.get("location") or {}, section)
    elif section.verdict == "WEAK":
        yield _result("verification-weak", "; ".join(wording.reasons(section)), {}, section)
    elif section.verdict == "ERROR" and not section.problems:
        yield _result("command-failed", str(section.error.get("message", "")), {}, section)


def _result(rule: str, message: str, location: Values, section: Section) -> dict[str, Any]:
    message = one_line(f"{section.title}: {message}")
    identity = json.dumps([rule, message, location], sort_keys=True)
    return {
        "ruleId": rule, "level": _RULES[rule][0], "message": {"text": message}, "locations": [_location(location, section)],
        "partialFingerprints": {"onnxbridge/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }  # fmt: skip


def _location(location: Values, section: Section) -> dict[str, Any]:
    """The user's source line; where there is none, the model's file."""
    files = [str(file["path"]) for file in section.document.get("source_files") or ()]
    file = str(location.get("file") or (files or [section.document.get("source") or "model"])[0])
    physical: dict[str, Any] = {"artifactLocation": _uri(file)}
    if location.get("line"):
        physical["region"] = {"startLine": int(location["line"])}
    found: dict[str, Any] = {"physicalLocation": physical}
    logical = [
        {"name": one_line(str(location[key])), "fullyQualifiedName": one_line(str(location[key])), "kind": kind}
        for key, kind in (("scope", "module"), ("node", "member")) if location.get(key)
    ]  # fmt: skip
    return {**found, "logicalLocations": logical} if logical else found


def _uri(file: str) -> dict[str, str]:
    """The URI of a file: relative to the working directory where it is below it."""
    path = Path(file)
    try:
        path = path.resolve().relative_to(Path.cwd().resolve()) if path.is_absolute() else path
    except ValueError:
        return {"uri": path.as_uri()}
    return {"uri": quote(path.as_posix()), "uriBaseId": "%SRCROOT%"}
