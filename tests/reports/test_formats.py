"""JSON, JUnit, SARIF and Markdown: valid for their readers, whatever a command found and whatever names a model has."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from junitparser import Failure, JUnitXml
from lxml import etree

from tests.reports.conftest import COMMANDS, FAIL, HOSTILE

SCHEMAS = Path(__file__).parent / "schemas"
OWN = json.loads(resources.files("onnxbridge.reports").joinpath("report.schema.json").read_text())
SARIF = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_format_is_valid(written, name):
    texts, code = written(name, ".json", ".xml", ".sarif", ".md")
    assert bool(code) == (name in FAIL)
    document = json.loads(texts[".json"])
    jsonschema.Draft202012Validator(OWN).validate(document)
    for job in document.get("jobs", []):
        jsonschema.Draft202012Validator(OWN).validate(job)
    assert document["exit_code"] == code
    etree.XMLSchema(file=SCHEMAS / "junit-10.xsd").assertValid(etree.fromstring(texts[".xml"].encode()))
    jsonschema.Draft7Validator(SARIF).validate(json.loads(texts[".sarif"]))
    assert texts[".md"].startswith("## ")


@pytest.mark.parametrize("name", COMMANDS)
def test_junit_is_red_where_the_command_fails(written, name):
    texts, code = written(name, ".xml")
    xml = JUnitXml.fromstring(texts[".xml"].encode())
    cases = [case for suite in xml for case in suite]
    assert cases
    red = [case for case in cases if case.result]
    assert bool(red) == bool(code)
    assert xml.tests == len(cases) and xml.failures + xml.errors == len(red)


def test_junit_has_a_case_for_each_output_and_says_where_it_diverges(written):
    texts, _ = written("bisected", ".xml")
    (case,) = [case for suite in JUnitXml.fromstring(texts[".xml"].encode()) for case in suite]
    (failure,) = case.result
    assert case.name.startswith("y float32") and isinstance(failure, Failure)
    assert "first divergence" in failure.text and "MatMul" in failure.text and "1.5 times as large" in failure.text


def test_sarif_names_the_node_and_the_file_of_each_problem(written):
    texts, _ = written("unsupported", ".sarif")
    (run,) = json.loads(texts[".sarif"])["runs"]
    assert [r["ruleId"] for r in run["results"]] == ["unsupported-case", "missing-rule"]  # for ONNX and Core ML
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "unknown.onnx"
    assert location["logicalLocations"][0]["name"] == "act y"


def test_sarif_has_source_lines_of_a_pytorch_program(tmp_path, cli, monkeypatch):
    (tmp_path / "odd_net.py").write_text(
        "import torch\n\n\nclass Odd(torch.nn.Module):\n    def forward(self, x):\n        x = torch.relu(x)\n"
        "        return torch.linalg.eig(x)[0].real\n\n\ndef make():\n    return Odd()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ran = cli("check", "odd_net:make", "--to", "coreml", "--inputs", "x:float32[3,3]", "--report", "r.sarif")
    assert ran.code == 3
    (run,) = json.loads(Path("r.sarif").read_text())["runs"]
    jsonschema.Draft7Validator(SARIF).validate(json.loads(Path("r.sarif").read_text()))
    lines = {
        (r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
         r["locations"][0]["physicalLocation"].get("region", {}).get("startLine"))
        for r in run["results"]
    }  # fmt: skip
    assert ("odd_net.py", 7) in lines


def test_markdown_shows_names_as_text(written):
    texts, _ = written("hostile", ".md")
    markdown = texts[".md"]
    assert "<img" not in markdown and "<script" not in markdown and "\n::error" not in markdown and "\x1b" not in markdown
    tags = set(re.findall(r"</?[a-z]+", markdown))
    assert tags <= {"<code", "</code", "<details", "</details", "<summary", "</summary"}


def test_junit_and_sarif_carry_hostile_names_whole(written):
    from onnxbridge.diagnostics import one_line

    texts, _ = written("hostile", ".xml", ".sarif")
    case = next(case for suite in JUnitXml.fromstring(texts[".xml"].encode()) for case in suite)
    assert case.name.startswith(one_line(HOSTILE))
    assert one_line(HOSTILE) in json.loads(texts[".sarif"])["runs"][0]["results"][0]["message"]["text"]


def test_a_weak_verification_is_green_and_says_why(written):
    texts, code = written("weak", ".xml", ".sarif", ".md")
    assert code == 0
    case = next(case for suite in JUnitXml.fromstring(texts[".xml"].encode()) for case in suite)
    assert not case.result and "constant" in case.system_out
    result = json.loads(texts[".sarif"])["runs"][0]["results"][0]
    assert result["level"] == "warning" and "constant" in result["message"]["text"]
    assert "constant" in texts[".md"]


def test_wrong_arguments_are_reported_too(cli, nets):
    ran = cli("verify", "net.onnx", "wrong.onnx", "--metric", "beauty", "--report", "r.xml")
    assert ran.code == 2
    case = next(case for suite in JUnitXml.fromfile("r.xml") for case in suite)
    assert "beauty" in case.result[0].message
