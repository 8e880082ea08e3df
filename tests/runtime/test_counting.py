"""Whole numbers and truth values, elementwise, in plans whose steps are joined."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from joined import HEAD
from onnx import parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.native import presence

rng = np.random.default_rng(9)
KINDS = {"int64": np.int64, "int32": np.int32, "float": np.float32, "bool": np.bool_}
SUMS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
ORDERS = {
    "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
}  # fmt: skip


def drawn(kind, *shape):
    return rng.integers(-3, 4, shape).astype(KINDS[kind])


def same(text, feeds, wanted):
    executor = Executor(parser.parse_model(HEAD + text))
    for _ in range(3):
        (y,) = executor.run(None, feeds)
        assert y.dtype == wanted.dtype
        np.testing.assert_array_equal(y, wanted)
    assert executor._compiled._joined.steps[0].native == presence.available()


@pytest.mark.parametrize("kind", ["int64", "int32", "float"])
@pytest.mark.parametrize("op", [*SUMS, *ORDERS])
@pytest.mark.parametrize("shapes", [((5, 7), (5, 7)), ((5, 7), ()), ((), (5, 7))])
def test_operators_of_two_operands(op, kind, shapes):
    x, y = (drawn(kind, *shape) for shape in shapes)
    declared = [",".join(map(str, shape)) for shape in shapes]
    result = kind if op in SUMS else "bool"
    text = f"agraph ({kind}[{declared[0]}] x, {kind}[{declared[1]}] y) => ({result}[5,7] z) {{ z = {op}(x, y) }}"
    same(text, {"x": x, "y": y}, (SUMS | ORDERS)[op](x, y))


CASTS = [(kind, to) for kind in ("int64", "int32", "bool") for to in ("int64", "int32", "float") if kind != to]


@pytest.mark.parametrize(("kind", "to"), CASTS)
def test_casts(kind, to):
    number = {"int64": onnx.TensorProto.INT64, "int32": onnx.TensorProto.INT32, "float": onnx.TensorProto.FLOAT}[to]
    x = drawn(kind, 4, 9)
    same(f"agraph ({kind}[4,9] x) => ({to}[4,9] y) {{ y = Cast<to = {number}>(x) }}", {"x": x}, x.astype(KINDS[to]))
