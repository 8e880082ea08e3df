"""Where two models differ, the report says which of them computes what the bundled executor does."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

import onnxbridge
from onnxbridge.errors import VerificationError
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners

TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y, float[2] z) <int64[1] axes = {1}>
          { y = Exp (x) z = ReduceSum <keepdims = 0> (x, axes) }"""


def model():
    return ir.from_proto(onnx.parser.parse_model(TEXT))


def runner(title, factors=None):
    executor = Executor(model())

    def run(feed):
        found = dict(zip(executor.output_names, executor.run(None, feed), strict=True))
        return {name: value * np.float32((factors or {}).get(name, 1)) for name, value in found.items()}

    return Runner(title, run)


def opinions(reference, candidate):
    report = verify_runners(model(), reference, candidate, mutants=0)
    return [n for n in report.notes if "executor" in n]


def test_the_model_that_is_alone_is_named():
    said = "the bundled executor, on the same ONNX graph, computes {} as {} does, not as {}"
    alone = "; docs/disagreements.md lists where ONNX Runtime is alone"
    assert opinions(runner("ONNX"), runner("B", {"y": 2})) == [said.format("y", "ONNX Runtime", "B")]
    assert opinions(runner("ONNX", {"y": 2, "z": 3}), runner("B")) == [said.format("y, z", "B", "ONNX Runtime") + alone]
    both = opinions(runner("A", {"y": 2}), runner("B", {"z": 2}))
    assert both == [said.format("z", "A", "B"), said.format("y", "B", "A")]


def test_nothing_is_said_where_both_differ_or_agree():
    assert not opinions(runner("A"), runner("B"))
    assert not opinions(runner("A", {"y": 2}), runner("B", {"y": 3}))


def test_onnx_runtime_against_the_specification():
    """ONNX Runtime ignores an axis from the end where a policy keeps the aspect ratio."""
    text = """<ir_version: 10, opset_import: ["" : 23]> g (float[2,3] x) => (float[2,8] y) <int64[1] sizes = {8}>
              { y = Resize <axes = [-1], keep_aspect_ratio_policy = "not_larger", mode = "nearest"> (x, , , sizes) }"""
    with pytest.raises(VerificationError) as caught:
        onnxbridge.convert(onnx.parser.parse_model(text), to="pytorch")
    assert "computes y as PyTorch does, not as ONNX Runtime" in str(caught.value.report)


class Shortcut(torch.nn.Module):
    """Leaves out a mask where all of it is True, but not while it is traced; the masked branch has a fault."""

    def forward(self, x, mask):
        if not torch.compiler.is_exporting() and mask.all():
            return x * 2
        return torch.where(mask, x, 0)


def test_code_that_does_something_else_while_it_is_traced():
    example = (torch.randn(3), torch.ones(3, dtype=torch.bool))
    with pytest.raises(VerificationError) as caught:
        onnxbridge.convert(Shortcut(), to="onnx", inputs=example)
    said = "PyTorch's own trace of the model computes output as the converted model does: the Python code does something else"
    assert said in str(caught.value.report)


class Plain(torch.nn.Module):
    def forward(self, x):
        return x + 1


def test_nothing_is_said_of_the_trace_of_other_models():
    wrong = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] output) <float b = {1.5}> { output = Add (x, b) }'
    )
    report = onnxbridge.verify(Plain(), wrong, inputs=(torch.randn(3),))
    assert not report.passed and "own trace" not in str(report)
