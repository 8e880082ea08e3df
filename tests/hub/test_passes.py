"""The passes that every model goes through after its frontend."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub import passes
from onnxbridge.hub.builder import Builder
from onnxbridge.runtime.executor import Executor

FLOAT = ir.DataType.FLOAT


def test_identities_go_and_names_of_outputs_stay():
    op = Builder()
    x = op.input("x", FLOAT, [2])
    h = op.Identity(op.Relu(op.Identity(x)))
    model = op.model([x], [op.output(op.Identity(h), "y"), op.output(op.Identity(h), "z"), op.output(op.Identity(x), "w")])
    cleaned = passes.clean(model.clone())
    assert [v.name for v in cleaned.graph.outputs] == ["y", "z", "w"]
    assert sum(n.op_type == "Identity" for n in cleaned.graph) == 2, "a value that is two outputs, and an input that is one"
    feeds = {"x": np.array([-1, 2], np.float32)}
    for a, b in zip(Executor(model).run(None, feeds), Executor(cleaned).run(None, feeds), strict=True):
        assert np.array_equal(a, b)


def test_a_branch_that_gives_what_is_around_it_keeps_its_identity():
    op = Builder()
    x, c = op.input("x", FLOAT, [2]), op.input("c", ir.DataType.BOOL, [])
    h = op.Relu(x)
    y = op.If(c, then_branch=lambda: op.Identity(h), else_branch=lambda: op.Neg(op.Identity(h)))
    model = op.model([x, c], [op.output(y, "y")])
    cleaned = passes.clean(model.clone())
    for c in (True, False):
        feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(c)}
        assert np.array_equal(Executor(model).run(None, feeds)[0], Executor(cleaned).run(None, feeds)[0])
