"""JUnit XML, as GitLab, Jenkins and GitHub's reporters read it: one test case for each output and target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from onnxbridge.diagnostics import one_line
from onnxbridge.reports import wording
from onnxbridge.reports.document import plain
from onnxbridge.reports.sections import Section, sections


def text(document: Mapping[str, Any]) -> str:
    """The document as JUnit XML. A weak verification passes with its reasons as output, unless the command was strict."""
    root = ET.Element("testsuites", name="onnxbridge")
    for section in sections(plain(document)):
        root.append(_suite(section))
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time', 0)) for suite in root):.3f}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(section: Section) -> ET.Element:
    suite = ET.Element("testsuite", name=one_line(section.title))
    _add_properties(suite, section)
    for case in _cases(section):
        suite.append(case)
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len([case for case in cases if case.find(kind) is not None])))
    suite.set("time", f"{section.seconds:.3f}")
    if section.document.get("date"):
        suite.set("timestamp", str(section.document["date"]).partition("+")[0])
    return suite


def _add_properties(suite: ET.Element, section: Section) -> None:
    document, verification = section.document, section.verification
    values = {
        "onnxbridge": document.get("onnxbridge"), "command": " ".join(map(str, document.get("arguments") or ())),
        "verdict": section.verdict, "reference": verification.get("reference"), "candidate": verification.get("candidate"),
        "samples": verification.get("samples"), "seed": verification.get("seed"),
        **{f"version of {name}": version for name, version in (document.get("versions") or {}).items()},
    }  # fmt: skip
    parent = ET.SubElement(suite, "properties")
    for name, value in values.items():
        if value not in (None, ""):
            ET.SubElement(parent, "property", name=name, value=one_line(str(value)))


def _cases(section: Section) -> list[ET.Element]:
    """One case for each output, and one for the whole where it failed or proves little for another reason."""
    cases = [_output_case(section, output) for output in section.outputs]
    own = not any(case.find("failure") is not None for case in cases)
    if not cases or (section.failed and own):
        cases.append(_whole_case(section))
    elif section.verdict == "WEAK":
        for case in cases:
            ET.SubElement(case, "system-out").text = "\n".join(["WEAK", *wording.reasons(section)])
    return cases


def _case(section: Section, name: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", name=one_line(name), classname=one_line(section.title), time=f"{seconds:.3f}")


def _output_case(section: Section, output: Mapping[str, Any]) -> ET.Element:
    case = _case(section, f"{output['name']} {wording.type_of(output)}", section.seconds / len(section.outputs))
    figures = f"max abs {wording.number(output['max_abs'])}, allowed {wording.allowed(output)}"
    details = [figures, wording.worst(output), *output["notes"]]
    if not output["passed"]:
        if section.first_divergence:
            details += ["first divergence:", *wording.divergence_lines(section.first_divergence)]
        failure = ET.SubElement(case, "failure", type="VerificationError", message=one_line(figures))
        failure.text = "\n".join(one_line(str(line)) for line in details if line)
    return case


def _whole_case(section: Section) -> ET.Element:
    """The case of a section that has no outputs, or that failed although its outputs agree."""
    name = "verification" if section.outputs else str(section.document.get("command") or "convert")
    case = _case(section, name, 0.0 if section.outputs else section.seconds)
    if not section.failed:
        return case
    lines = [line for problem in section.problems for line in wording.problem_lines(problem)] + wording.reasons(section)
    failed = section.outputs or section.problems
    message = one_line(str(section.error.get("message") or (lines or [section.verdict])[0]).splitlines()[0])
    kind = str(section.error.get("type") or ("ConversionError" if section.problems else "VerificationError"))
    ET.SubElement(case, "failure" if failed else "error", type=kind, message=message).text = "\n".join(lines)
    return case
