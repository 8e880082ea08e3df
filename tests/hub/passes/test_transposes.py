"""Propagation of transposes: equal results with fewer transposes."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.passes.convolutions.fuse_pads import fuse_pads
from onnxbridge.hub.passes.transposes.push_transposes import push_transposes

FLOAT = ir.DataType.FLOAT
TO_FIRST, TO_LAST = [0, 3, 1, 2], [0, 2, 3, 1]
RNG = np.random.default_rng(0)


def model_of(write, *shapes):
    """A model of float inputs; `write(op, *inputs)` returns its outputs."""
    op = Builder()
    inputs = [op.input(f"x{i}", FLOAT, list(s)) for i, s in enumerate(shapes)]
    results = write(op, *inputs)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    return op.model(inputs, [op.output(r, f"y{i}") for i, r in enumerate(results)])


def run(model, feeds):
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, feeds)


def count(model):
    return Counter(n.op_type for n in ir.traversal.RecursiveGraphIterator(model.graph))["Transpose"]


def check(write, *shapes, left=None, sizes=None):
    model = model_of(write, *shapes)
    feeds = {
        v.name: RNG.standard_normal([d if isinstance(d, int) else (sizes or {})[d.value] for d in v.shape]).astype(np.float32)
        for v in model.graph.inputs
    }
    wanted = run(model, feeds)
    before = count(model)
    names = [v.name for v in model.graph.outputs]
    push_transposes(model)
    assert [v.name for v in model.graph.outputs] == names
    for got, want in zip(run(model, feeds), wanted, strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert count(model) <= before
    if left is not None:
        assert count(model) == left
    return model


def conv(op, x, channels):
    """A channels-last convolution, as frontends write it."""
    weight = RNG.standard_normal((channels, x.shape[-1], 3, 3)).astype(np.float32)
    return op.Transpose(op.Conv(op.Transpose(x, perm=TO_FIRST), weight, pads=[1, 1, 1, 1]), perm=TO_LAST)


X = (2, 6, 5, 4)
BETWEEN = {
    "nothing": lambda op, y: y,
    "unary": lambda op, y: op.Relu(op.Neg(y)),
    "per channel": lambda op, y: op.Mul(op.Add(y, np.arange(4, dtype=np.float32)), np.ones((1, 1, 1, 4), np.float32)),
    "per row": lambda op, y: op.Add(y, np.arange(6, dtype=np.float32).reshape(6, 1, 1)),
    "whole constant": lambda op, y: op.Add(RNG.standard_normal(X).astype(np.float32), y),
    "residual": lambda op, y: op.Add(y, conv(op, op.Relu(y), 4)),
    "concat": lambda op, y: op.Concat(y, op.Relu(y), axis=-1),
    "pad": lambda op, y: op.Pad(y, [0, 1, 2, 0, 0, 0, 1, 0]),
    "pad axes": lambda op, y: op.Pad(y, [1, 2], None, [2]),
    "slice": lambda op, y: op.Slice(y, [1, 0], [6, 3], [1, -1], [2, 1]),
    "slice without axes": lambda op, y: op.Slice(y, [0, 1], [2, 5]),
    "split": lambda op, y: op.Split(y, [1, 4], axis=2, outputs=2)[1],
    "softmax": lambda op, y: op.Softmax(y, axis=-1),
    "keepdims": lambda op, y: op.Mul(y, op.Sigmoid(op.ReduceMean(y, [1, 2], keepdims=1))),
    "cumsum": lambda op, y: op.CumSum(y, np.int64(3)),
    "tile": lambda op, y: op.Tile(y, [1, 2, 1, 1]),
    "clip": lambda op, y: op.Clip(y, -0.5, 0.5),
    "where": lambda op, y: op.Where(op.Greater(y, 0.0), y, op.Mul(y, 0.1)),
    "batch norm": lambda op, y: op.Transpose(
        op.BatchNormalization(op.Transpose(y, perm=TO_FIRST), *(np.full(4, v, np.float32) for v in (2, 1, 0.5, 3))), perm=TO_LAST
    ),
    "resize": lambda op, y: op.Resize(y, None, None, [2, 12, 10, 4], mode="nearest", nearest_mode="floor",
                                      coordinate_transformation_mode="asymmetric"),
    "squeeze and back": lambda op, y: op.Unsqueeze(op.Squeeze(op.Slice(y, [2], [3], [1]), [1]), [1]),
    "gather": lambda op, y: op.Gather(y, np.array([0, 2, 2]), axis=2),
    "gather one": lambda op, y: op.Unsqueeze(op.Gather(y, np.array(1), axis=1), [1]),
    "quantize": lambda op, y: op.DequantizeLinear(
        op.QuantizeLinear(y, np.full(4, 0.1, np.float32), np.zeros(4, np.uint8), axis=3), np.full(4, 0.1, np.float32),
        np.zeros(4, np.uint8), axis=3),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_between_two_convolutions(name):
    check(lambda op, x: conv(op, BETWEEN[name](op, conv(op, x, 4)), 3), X, left=2)


def test_transposes_move_after_reductions():
    check(lambda op, x: op.ReduceMean(conv(op, x, 3), [1, 2], keepdims=0), X, left=1)

    def flat(op, x):
        return op.ArgMax(op.Reshape(op.ReduceMax(conv(op, x, 3), [1, 2], keepdims=1), [2, 3]), axis=1, keepdims=0)

    check(flat, X, left=1)


def test_squeeze_and_excite():
    def block(op, x):
        y = conv(op, x, 4)
        s = op.Reshape(op.ReduceMean(y, [1, 2], keepdims=0), [-1, 1, 1, 4])
        return op.ReduceSum(op.Mul(y, op.Sigmoid(op.Relu(conv(op, s, 4)))), [1, 2], keepdims=0)

    check(block, ("N", 6, 5, 4), left=1, sizes={"N": 2})


def test_a_smaller_transposed_operand_does_not_transpose_the_larger():
    check(lambda op, x, z: op.Add(conv(op, op.ReduceMean(x, [1, 2], keepdims=1), 4), z), (2, 6, 5, 4), X, left=2)


def test_an_operand_that_is_not_transposed():
    check(lambda op, x, z: conv(op, op.Add(conv(op, x, 4), z), 3), X, X, left=3)
    check(lambda op, x, z: conv(op, op.Add(conv(op, x, 4), z), 3), X, (5, 1), left=2 + 1)
    check(lambda op, x, z: conv(op, op.Add(conv(op, x, 4), z), 3), X, (4,), left=2)


def test_nothing_is_propagated_without_a_benefit():
    model = check(lambda op, x: [op.Relu(op.Transpose(x, perm=[1, 0])), op.Neg(op.Transpose(x, perm=[1, 0]))], (3, 4))
    assert count(model) <= 2


def test_outputs_keep_their_names_and_values():
    def both(op, x):
        y = op.Relu(conv(op, x, 4))
        return y, conv(op, y, 2), op.Transpose(op.Transpose(x, perm=TO_LAST), perm=TO_FIRST)

    check(both, X, left=3)


def test_subgraphs_use_transposed_outer_values():
    def write(op, x):
        y = conv(op, x, 4)
        positive = op.Greater(op.ReduceSum(y, keepdims=0), 0.0)
        picked = op.If(positive, then_branch=lambda: conv(op, op.Relu(y), 4), else_branch=lambda: op.Neg(y))
        return conv(op, picked, 3)

    check(write, X)


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed):
    """Random chains of transposes by any permutation and of operators that they are propagated through."""
    rng = np.random.default_rng(seed)
    perms = list(itertools.permutations(range(3)))

    def write(op, x, z):
        values = [x, z]
        for _ in range(14):
            v = values[rng.integers(len(values))]
            axis = int(rng.integers(3))
            kind = rng.integers(9)
            if kind < 3:
                v = op.Transpose(v, perm=list(perms[rng.integers(6)]))
            elif kind == 3:
                v = op.Sigmoid(v)
            elif kind == 4:
                v = op.ReduceMax(v, [axis], keepdims=1)
            elif kind == 5:
                v = op.Softmax(v, axis=axis)
            elif kind == 6:
                v = op.Concat(v, op.Neg(v), axis=axis) if math.prod(v.shape) < 4000 else op.Neg(v)
            elif kind == 7:
                v = op.Pad(v, rng.integers(0, 2, 6).tolist())
            else:
                w = values[rng.integers(len(values))]
                fits = all(a == b or 1 in (a, b) for a, b in zip(v.shape, w.shape, strict=True))
                v = op.Add(v, w) if fits else op.Mul(v, RNG.standard_normal(v.shape[-1]).astype(np.float32))
            values.append(v)
        return [op.Transpose(values[-1], perm=[2, 0, 1]), op.ReduceSum(values[-2], [1], keepdims=0), values[-3]]

    model = model_of(write, (2, 3, 4), (4, 3, 2))
    feeds = {v.name: RNG.standard_normal(list(v.shape)).astype(np.float32) for v in model.graph.inputs}
    wanted = run(model, feeds)
    push_transposes(model)
    for got, want in zip(run(model, feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def pads(write, *shapes):
    model = model_of(write, *shapes)
    feeds = {v.name: RNG.standard_normal(list(v.shape)).astype(np.float32) for v in model.graph.inputs}
    wanted = run(model, feeds)
    fuse_pads(model)
    for got, want in zip(run(model, feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return Counter(n.op_type for n in model.graph)["Pad"]


def test_zero_pads_are_fused_only_if_equivalent():
    weight = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    x, around = (1, 2, 6, 7), [0, 0, 1, 2, 0, 0, 0, 1]
    assert pads(lambda op, x: op.Conv(op.Pad(x, around), weight, pads=[1, 1, 1, 1]), x) == 0
    assert pads(lambda op, x: op.Conv(op.Pad(x, around, 1.0), weight), x) == 1
    assert pads(lambda op, x: op.Conv(op.Pad(x, around, mode="edge"), weight), x) == 1
    assert pads(lambda op, x: op.Conv(op.Pad(x, [0, 0, -1, 0, 0, 0, 0, 0]), weight), x) == 1
    assert pads(lambda op, x: [op.Conv(op.Pad(x, around), weight), op.Relu(op.Pad(x, around))], x) == 1
    last = (1, 6, 7, 2)
    assert pads(lambda op, x: op.Conv(op.Transpose(op.Pad(x, [0, 1, 2, 0, 0, 0, 1, 0]), perm=TO_FIRST), weight), last) == 0
    assert pads(lambda op, x: op.MaxPool(op.Pad(op.Relu(x), around), kernel_shape=[3, 3]), x) == 0
    assert pads(lambda op, x: op.MaxPool(op.Pad(x, around), kernel_shape=[3, 3]), x) == 1
    assert pads(lambda op, x: op.MaxPool(op.Pad(op.Relu(x), around), kernel_shape=[2, 2]), x) == 1


def test_a_layer_normalization_beside_a_transpose_is_recognized():
    def write(op, x):
        y = op.Transpose(op.Relu(x), perm=TO_LAST)
        axes = np.array([-1])
        mean = op.ReduceMean(y, axes, keepdims=1)
        centered = op.Sub(y, mean)
        variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=1)
        factor = op.Mul(op.Reciprocal(op.Sqrt(op.Add(variance, 1e-5))), op.constant(weights[0], "gamma"))
        return op.Add(op.Mul(y, factor), op.Add(op.constant(weights[1], "beta"), op.Mul(op.Neg(mean), factor)))

    weights = RNG.standard_normal((2, 5)).astype(np.float32)
    model = model_of(write, (2, 5, 3, 4))
    cleaned = passes.clean(model.clone())
    assert [n.op_type for n in cleaned.graph] == ["Relu", "Transpose", "LayerNormalization"]
    feeds = {"x0": RNG.standard_normal((2, 5, 3, 4)).astype(np.float32)}
    np.testing.assert_allclose(run(cleaned, feeds)[0], run(model, feeds)[0], rtol=1e-5, atol=1e-6)
