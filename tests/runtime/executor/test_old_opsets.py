"""Models of old opsets in the executor, compared with NumPy expressions of the old definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxbridge.runtime import Executor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 4, 4)).astype(np.float32)
B3, ROW = np.array([1, 2, 3], np.float32), np.array([1, -2, 3, 0.5], np.float32)


def run(opset: int, op: str, inputs: list[np.ndarray], outputs: int = 1, **attrs: Any) -> list[np.ndarray]:
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    node = helper.make_node(op, list(feeds), [f"y{i}" for i in range(outputs)], **attrs)
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    graph = helper.make_graph([node], "g", declared, [helper.make_value_info(o, onnx.TypeProto()) for o in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if opset < 9 else 4)
    return Executor(model).run(None, feeds)


def flat_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax until opset 12, which flattened all axes from `axis` on."""
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
    e = np.exp(rows - rows.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).reshape(x.shape)


def channels(v: np.ndarray) -> np.ndarray:
    return v.reshape(-1, 1, 1)


MEAN, VAR = np.array([0.1, -0.2], np.float32), np.array([1.5, 0.7], np.float32)
NORMAL = (IMAGE - channels(MEAN)) / np.sqrt(channels(VAR) + 1e-5) * channels(B3[:2]) + channels(B3[1:])
CENTRED = (IMAGE - IMAGE.mean((2, 3), keepdims=True)) / np.sqrt(IMAGE.var((2, 3), keepdims=True) + 1e-3)

CASES: list[tuple[int, str, list[np.ndarray], dict[str, Any], np.ndarray]] = [
    (1, "Add", [X, B3], {"broadcast": 1, "axis": 1, "consumed_inputs": [0, 0]}, X + B3[:, None]),
    (6, "Mul", [X, ROW], {"broadcast": 1}, X * ROW),
    (6, "Sub", [X, X[0, :, :1].reshape(3, 1)], {"broadcast": 1, "axis": 1}, X - X[0, :, :1]),
    (1, "Div", [X, X], {}, np.ones_like(X)),
    (1, "Pow", [np.abs(X), np.array([2], np.float32)], {"broadcast": 1}, X**2),
    (1, "Softmax", [X], {}, flat_softmax(X, 1)),
    (11, "Softmax", [X], {"axis": 0}, flat_softmax(X, 0)),
    (11, "LogSoftmax", [X], {"axis": 2}, np.log(flat_softmax(X, 2))),
    (11, "Hardmax", [X], {"axis": 1}, np.equal(X, X.max((1, 2), keepdims=True)).astype(np.float32)),
    (1, "Clip", [X], {"min": -0.5, "max": 0.5, "consumed_inputs": [0]}, X.clip(-0.5, 0.5)),
    (6, "Clip", [X], {"max": 0.5}, np.minimum(X, 0.5)),
    (1, "Relu", [X], {"consumed_inputs": [0]}, np.maximum(X, 0)),
    (1, "Dropout", [X], {"is_test": 1, "ratio": 0.9}, X),
    (6, "Dropout", [X], {"is_test": 1}, X),
    (10, "Dropout", [X], {"ratio": 0.9}, X),
    (1, "BatchNormalization", [IMAGE, B3[:2], B3[1:], MEAN, VAR], {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}, NORMAL),
    (6, "BatchNormalization", [IMAGE, B3[:2], B3[1:], MEAN, VAR], {"is_test": 1, "spatial": 1}, NORMAL),
    (7, "BatchNormalization", [IMAGE, B3[:2], B3[1:], MEAN, VAR], {}, NORMAL),
    (9, "BatchNormalization", [IMAGE, B3[:2], B3[1:], MEAN, VAR], {"momentum": 0.5}, NORMAL),
    (1, "Upsample", [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, IMAGE.repeat(2, 2).repeat(3, 3)),
    (7, "Upsample", [IMAGE], {"scales": [1.0, 1.0, 2.0, 2.0]}, IMAGE.repeat(2, 2).repeat(2, 3)),
    (9, "Upsample", [IMAGE, np.array([1, 1, 2, 1], np.float32)], {}, IMAGE.repeat(2, 2)),
    (10, "Resize", [IMAGE, np.array([1, 1, 2, 2], np.float32)], {}, IMAGE.repeat(2, 2).repeat(2, 3)),
    (1, "Slice", [X], {"starts": [0, -3], "ends": [1, 1000], "axes": [0, 2]}, X[0:1, :, -3:]),
    (10, "Slice", [X, np.array([-1]), np.array([-9]), np.array([2]), np.array([-2])], {}, X[:, :, ::-2]),
    (1, "Pad", [X], {"paddings": [0, 1, 0, 0, 0, 2], "value": 7.0}, np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=7)),
    (2, "Pad", [X], {"pads": [0, 1, 0, 0, 0, 2], "mode": "reflect"}, np.pad(X, [(0, 0), (1, 0), (0, 2)], mode="reflect")),
    (1, "Squeeze", [X[:1]], {"axes": [0]}, X[0]),
    (11, "Unsqueeze", [X], {"axes": [-1, 0]}, X[None, ..., None]),
    (1, "ReduceSum", [X], {"axes": [1], "keepdims": 0}, X.sum(1)),
    (11, "ReduceMean", [X], {"axes": [-1]}, X.mean(2, keepdims=True)),
    (17, "ReduceMax", [X], {"axes": [0, 2]}, X.max((0, 2), keepdims=True)),
    (1, "Reshape", [X], {"shape": [0, -1], "consumed_inputs": [0]}, X.reshape(2, 12)),
    (1, "Concat", [X, X], {}, np.concatenate([X, X], 1)),
    (1, "Cast", [X * 3], {"to": "INT32"}, (X * 3).astype(np.int32)),
    (1, "Gemm", [X[0], X[1].T, B3], {"broadcast": 1, "alpha": 0.5}, 0.5 * X[0] @ X[1].T + B3),
    (6, "Tile", [X, np.array([1, 2, 1])], {}, np.tile(X, (1, 2, 1))),
    (1, "Max", [X, -X], {"consumed_inputs": [0, 0]}, np.abs(X)),
    (6, "PRelu", [IMAGE, MEAN], {}, np.where(IMAGE < 0, IMAGE * channels(MEAN), IMAGE)),
    (1, "HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4}, (0.3 * X + 0.4).clip(0, 1)),
    (1, "Elu", [X], {"alpha": 0.5}, np.where(X > 0, X, 0.5 * np.expm1(X))),
    (1, "Selu", [X], {}, 1.0507 * np.where(X > 0, X, 1.6732 * np.expm1(X))),
    (1, "InstanceNormalization", [IMAGE, B3[:2], B3[1:]], {"epsilon": 1e-3}, CENTRED * channels(B3[:2]) + channels(B3[1:])),
    (1, "GlobalLpPool", [np.abs(IMAGE)], {"p": 2.0}, np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))),
    (1, "GlobalAveragePool", [IMAGE], {}, IMAGE.mean((2, 3), keepdims=True)),
    (1, "AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}, IMAGE.reshape(1, 2, 2, 2, 2, 2).mean((3, 5))),
    (9, "Scatter", [X, np.array([[[0], [1], [0]]]), np.float32([[[9], [8], [7]]])], {"axis": 2},
     np.concatenate([[np.where(np.arange(4) == [[0], [1], [0]], np.float32([[9], [8], [7]]), X[0])], X[1:]])),
    (9, "OneHot", [np.array([0, 2]), np.array([3]), np.float32([0, 5])], {}, 5 * np.eye(3, dtype=np.float32)[[0, 2]]),
    (9, "Where", [X > 0, X, np.zeros_like(X)], {}, np.maximum(X, 0)),
    (12, "Squeeze", [X[None]], {}, X),
    (10, "Mod", [np.array([-7, 7]), np.array([3, -3])], {}, np.array([2, -2])),
    (7, "Less", [X, ROW], {}, X < ROW),
    (1, "Equal", [np.array([[1, 2], [3, 4]]), np.array([1, 4])], {"broadcast": 1}, np.array([[True, False], [False, True]])),
    (1, "And", [X > 0, B3 > 1], {"broadcast": 1, "axis": 1}, (X > 0) & (B3 > 1)[:, None]),
    (8, "Sum", [X, ROW, B3[:, None]], {}, X + ROW + B3[:, None]),
    (10, "DequantizeLinear", [np.uint8([3, 9]), np.float32(0.5), np.uint8(4)], {}, np.float32([-0.5, 2.5])),
    (8, "Expand", [ROW, np.array([2, 1, 4])], {}, np.broadcast_to(ROW, (2, 1, 4))),
    (1, "LeakyRelu", [X], {"alpha": 0.2, "consumed_inputs": [0]}, np.where(X < 0, 0.2 * X, X)),
    (12, "CumSum", [X, np.array(1, np.int32)], {}, np.cumsum(X, 1)),
]  # fmt: skip


IDS = [f"{op}-{opset}-{i}" for i, (opset, op, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("opset", "op", "inputs", "attrs", "expected"), CASES, ids=IDS)
def test_operators_follow_their_old_definition(opset, op, inputs, attrs, expected):
    inputs = [np.asarray(x) for x in inputs]
    (got,) = run(opset, op, inputs, **attrs)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-5)


def test_old_operators_with_several_outputs():
    for opset, attrs in ((1, {"k": 2}), (1, {"k": 2, "axis": 1})):
        values, at = run(opset, "TopK", [X], 2, **attrs)
        axis = attrs.get("axis", -1)
        np.testing.assert_array_equal(values, -np.sort(-X, axis)[(slice(None),) * (axis % 3) + (slice(0, 2),)])
        np.testing.assert_array_equal(np.take_along_axis(X, at, axis), values)
    np.testing.assert_array_equal(run(1, "Split", [X], 2, axis=2, split=[1, 3])[1], X[..., 1:])
    np.testing.assert_array_equal(run(2, "Split", [X], 3, axis=1)[2], X[:, 2:])
