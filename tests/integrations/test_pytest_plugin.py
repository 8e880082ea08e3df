"""The pytest plugin, in runs of pytest of its own: what a failure says, markers, reports, and xdist."""

from __future__ import annotations

import json

import pytest
from lxml import etree

pytest_plugins = ["pytester"]

NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.fc = torch.nn.Linear(8 * 36, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.fc(x.flatten(1))
"""
GOOD = """
import torch
from net import Net

def test_export(onnxbridge_roundtrip):
    made = onnxbridge_roundtrip(Net().eval(), torch.zeros(2, 3, 8, 8), to=("onnx", "coreml"))
    assert list(made) == ["onnx", "coreml"] and made["onnx"].report.passed
"""
WRONG = """
import numpy as np
import onnx_ir as ir
import onnxbridge.plugins
import torch
from net import Net

def test_wrong_weight(onnxbridge_roundtrip, monkeypatch):
    kind = type(onnxbridge.plugins.backend("onnx"))
    right = kind.from_hub

    def from_hub(self, model, **options):
        made = right(self, model, **options)
        for value in made.graph.initializers.values():
            if value.name == "fc.weight":
                value.const_value = ir.tensor(value.const_value.numpy() * np.float32(1.1), name=value.name)
        return made

    monkeypatch.setattr(kind, "from_hub", from_hub)
    onnxbridge_roundtrip(Net().eval(), torch.zeros(2, 3, 8, 8))
"""
UNSUPPORTED = """
import torch

class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eig(x)[0].real

def test_unsupported(onnxbridge_roundtrip):
    onnxbridge_roundtrip(Odd(), torch.randn(3, 3), to="coreml")
"""
WEAK = """
import pytest
import torch

class Zero(torch.nn.Module):
    def forward(self, x):
        return x * 0.0

def test_weak(onnxbridge_roundtrip):
    onnxbridge_roundtrip(Zero(), torch.randn(3))

@pytest.mark.onnxbridge(strict=True)
def test_strict(onnxbridge_roundtrip):
    onnxbridge_roundtrip(Zero(), torch.randn(3))
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Run pytest on some files; without the plugins and options of this run."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(net=NET)

    def run(*arguments, **files):
        pytester.makepyfile(**files)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    return run


def test_a_right_conversion_passes_and_is_counted(project):
    ran = project(test_good=GOOD)
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["2 models: 2 passed"])


def test_a_failure_names_the_first_layer_that_differs(project):
    ran = project(test_wrong=WRONG)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines([
        ">*onnxbridge_roundtrip(Net().eval(), torch.zeros(2, 3, 8, 8))",
        "E*AssertionError: converted to onnx: the converted model does not compute the same",
        "E*FAIL output float32?2, 10?: max abs*",
        "E*first divergence: output (Gemm)",
        "E*at net.py:12 in fc",
        "E*fc.weight* is 1.1 times as large",
    ])  # fmt: skip
    ran.stdout.no_fnmatch_line("*pytest_plugin.py*")  # the user's own line is shown, not ours


USED = """
import onnx
import pytest
import torch
from net import Net
from onnx import numpy_helper
import onnxbridge

@pytest.fixture
def deployed(tmp_path):
    made = onnxbridge.convert(Net().eval(), "onnx", inputs=torch.zeros(2, 3, 8, 8), output=tmp_path / "net.onnx")
    return made.paths[0]

def test_right(onnxbridge_verify, deployed):
    report = onnxbridge_verify(Net().eval(), deployed, "x:float32[2,3,8,8]")
    assert report.passed

def test_changed(onnxbridge_verify, deployed):
    model = onnx.load(deployed)
    bias = next(t for t in model.graph.initializer if t.name == "conv.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 1, "conv.bias"))
    onnx.save(model, deployed)
    onnxbridge_verify(Net().eval(), deployed, "x:float32[2,3,8,8]")

def test_missing(onnxbridge_verify):
    onnxbridge_verify("missing.onnx", "missing.onnx")
"""


def test_two_models_are_compared(project):
    ran = project(test_used=USED)
    ran.assert_outcomes(passed=1, failed=2)
    ran.stdout.fnmatch_lines([
        "E*AssertionError: *net.onnx against Net: the two models do not compute the same",
        "E*first divergence: conv2d (Conv)",
        "E*at net.py:11 in conv",
        "E*UsageError: *missing.onnx*",
        "3 models: 1 passed, 1 failed, 1 not converted",
    ])  # fmt: skip


def test_an_operator_that_cannot_be_converted_is_named(project):
    ran = project(test_odd=UNSUPPORTED)
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["E*linalg_eig x1: no rule", "E*test_odd.py:? in Odd.forward"])
    ran.stdout.no_fnmatch_line("*lowering.py*")


def test_weak_warns_and_strict_fails(project):
    ran = project(test_weak=WEAK)
    ran.assert_outcomes(passed=1, failed=1, warnings=1)
    ran.stdout.fnmatch_lines(["*WeakVerification: test_weak.py::test_weak to onnx:*constant*", "*2 weak*"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_reports(project, pytester, workers):
    ran = project("--onnxbridge-report", "out", "--junitxml", "junit.xml", *workers, test_good=GOOD, test_wrong=WRONG)
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(["3 models: 2 passed, 1 failed", "report: out/index.html"])
    folder = pytester.path / "out"
    index = (folder / "index.html").read_text()
    pages = sorted(path.name for path in folder.glob("test_*.html"))
    assert len(pages) == 3 and all(f'href="{name}"' in index for name in pages)
    wrong = json.loads((folder / "test_wrong.py-test_wrong_weight_to_onnx.json").read_text())
    assert wrong["bisection"]["first"]["name"] == "output" and wrong["verdict"] == "FAILED"
    assert '"layers' in (folder / "test_wrong.py-test_wrong_weight_to_onnx.html").read_text()
    found = etree.parse("junit.xml").findall(".//testcase/properties/property")
    verdicts = {(p.get("name"), p.get("value")) for p in found}
    assert verdicts == {("onnxbridge onnx", "PASSED"), ("onnxbridge coreml", "PASSED"), ("onnxbridge onnx", "FAILED")}


def test_a_report_that_cannot_be_written_is_told_before_any_test(project, pytester):
    (pytester.path / "file").write_text("")
    ran = project("--onnxbridge-report", "file/out", test_good=GOOD)
    ran.stderr.fnmatch_lines(["ERROR: --onnxbridge-report: 'file/out' is not a folder that can be written*"])
    assert ran.ret == pytest.ExitCode.USAGE_ERROR


def test_tests_without_the_fixture_say_nothing_of_it(project):
    ran = project(test_other="def test_other(): pass")
    ran.assert_outcomes(passed=1)
    ran.stdout.no_fnmatch_line("*models:*")
