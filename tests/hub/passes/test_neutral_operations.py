"""Operations that change nothing are removed, and only those."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import provenance
from onnxbridge.runtime.executor.executor import Executor

FLOAT = ir.DataType.FLOAT
VALUES = np.array([[-0.0, 0.0, -1.5], [np.inf, np.nan, 3]], np.float32)


def cleaned(build, dtype=FLOAT):
    op = Builder()
    x = op.input("x", dtype, [2, 3])
    model = op.model([x], [op.output(op.Neg(build(op, op.Abs(x))), "y")])
    return model, passes.clean(model.clone())


def constant(op, number, shape=(), dtype=np.float32):
    return op.constant(np.full(shape, number, dtype), "c")


REMOVED = {
    "product by 1": lambda op, x: op.Mul(x, constant(op, 1)),
    "1 as the first factor": lambda op, x: op.Mul(constant(op, 1, (1, 1)), x),
    "quotient by 1": lambda op, x: op.Div(x, constant(op, 1)),
    "difference with 0": lambda op, x: op.Sub(x, constant(op, 0.0)),
    "sum with negative 0": lambda op, x: op.Add(x, constant(op, -0.0)),
    "as many elements": lambda op, x: op.Mul(x, op.constant(np.ones((2, 3), np.float32), "Const:0")),
    "power of 1": lambda op, x: op.Pow(x, constant(op, 1)),
}
KEPT = {
    "sum with 0, which makes negative zeros positive": lambda op, x: op.Add(x, constant(op, 0.0)),
    "difference with negative 0": lambda op, x: op.Sub(x, constant(op, -0.0)),
    "1 as the dividend": lambda op, x: op.Div(constant(op, 1), x),
    "1 as the base": lambda op, x: op.Pow(constant(op, 1), x),
    "a larger shape": lambda op, x: op.Mul(op.Slice(x, [0], [1], [0]), constant(op, 1, (2, 1))),
    "a higher rank": lambda op, x: op.Mul(x, constant(op, 1, (1, 1, 1))),
    "weights": lambda op, x: op.Mul(x, op.constant(np.ones(3, np.float32), "norm.weight")),
    "another number": lambda op, x: op.Mul(x, constant(op, 2)),
}


@pytest.mark.parametrize("name", REMOVED)
def test_neutral_operation_is_removed(name):
    model, result = cleaned(REMOVED[name])
    assert [n.op_type for n in result.graph] == ["Abs", "Neg"]
    for a, b in zip(Executor(model).run(None, {"x": VALUES}), Executor(result).run(None, {"x": VALUES}), strict=True):
        assert np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize("name", KEPT)
def test_other_operation_is_kept(name):
    model, result = cleaned(KEPT[name])
    assert len(result.graph) >= 3
    for a, b in zip(Executor(model).run(None, {"x": VALUES}), Executor(result).run(None, {"x": VALUES}), strict=True):
        assert np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a), np.signbit(b))


def test_integers_have_one_zero():
    _, result = cleaned(lambda op, x: op.Add(op.Mul(x, np.int64(1)), np.int64(0)), ir.DataType.INT64)
    assert [n.op_type for n in result.graph] == ["Abs", "Neg"]


def test_a_trained_number_is_kept():
    op = Builder()
    x, scale = op.input("x", FLOAT, [2]), op.constant(np.float32(1), "scale")
    provenance.set_state(scale.const_value, "parameter")
    result = passes.clean(op.model([x], [op.output(op.Neg(op.Mul(x, scale)), "y")]))
    assert [n.op_type for n in result.graph] == ["Mul", "Neg"]


def test_nested_concats_become_one():
    op = Builder()
    a, b, c = (op.input(n, FLOAT, [2, k]) for n, k in (("a", 1), ("b", 2), ("c", 3)))
    inner = op.Concat(a, b, axis=-1)
    shared = op.Concat(b, c, axis=1)
    model = op.model([a, b, c], [
        op.output(op.Concat(c, inner, a, axis=1), "y"), op.output(op.Concat(shared, a, axis=1), "z"),
        op.output(op.Neg(shared), "w"),
    ])  # fmt: skip
    result = passes.clean(model.clone())
    assert sorted(len(n.inputs) for n in result.graph if n.op_type == "Concat") == [2, 2, 4], "one has a second use"
    feeds = {n: np.random.default_rng(0).normal(size=(2, k)).astype(np.float32) for n, k in (("a", 1), ("b", 2), ("c", 3))}
    for x, y in zip(Executor(model).run(None, feeds), Executor(result).run(None, feeds), strict=True):
        assert np.array_equal(x, y)


def test_empty_operands_of_concat_are_dropped():
    op = Builder()
    x = op.input("x", FLOAT, [2, 3])
    rest = op.Slice(x, np.int64([3]), np.int64([9]), np.int64([1]))
    both, empty = op.Concat(op.Neg(x), rest, x, axis=1), op.Concat(rest, rest, axis=-1)
    made = op.model([x], [op.output(both, "y"), op.output(op.Abs(op.Concat(x, rest, axis=1)), "z"), op.output(empty, "w")])
    result = passes.clean(made.clone())
    assert [(n.op_type, len(n.inputs)) for n in result.graph if n.op_type == "Concat"] == [("Concat", 2)] * 2
    for a, b in zip(*(Executor(m).run(None, {"x": VALUES}) for m in (made, result)), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def test_concats_along_other_axes_stay():
    op = Builder()
    a = op.input("a", FLOAT, [2, 2])
    result = passes.clean(op.model([a], [op.output(op.Concat(op.Concat(a, a, axis=0), op.Concat(a, a, axis=0), axis=1), "y")]))
    assert [n.op_type for n in result.graph].count("Concat") >= 2
