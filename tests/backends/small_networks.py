"""Small hub models that module tests share."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices

R = np.random.default_rng(0)


def weights(*shape):
    return (R.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def image_classifier():
    """Two convolutions (one of them depthwise), a normalization, a pool and a linear layer, at any batch size."""
    op = Builder()
    x = op.input("image", ir.DataType.FLOAT, ["N", 3, 12, 12])
    y = op.Conv(x, op.constant(weights(8, 3, 3, 3), "stem.conv.weight"), op.constant(weights(8), "stem.conv.bias"), pads=[1] * 4)
    mean, var = np.full(8, 0.1, np.float32), np.full(8, 1.5, np.float32)
    y = op.BatchNormalization(
        y, op.constant(np.ones(8, np.float32), "stem.bn.weight"), op.constant(np.zeros(8, np.float32), "stem.bn.bias"),
        op.constant(mean, "stem.bn.running_mean"), op.constant(var, "stem.bn.running_var"),
    )  # fmt: skip
    y = op.Relu(y)
    y = op.Conv(y, op.constant(weights(8, 1, 3, 3), "blocks.0.conv.weight"), group=8, auto_pad="SAME_LOWER", strides=[2, 2])
    y = op.MaxPool(y, kernel_shape=[2, 2], strides=[2, 2])
    y = op.reshape(y, [op.size(y, 0), 8 * 9])
    y = op.Gemm(y, op.constant(weights(5, 72), "head.weight"), op.constant(np.zeros(5, np.float32), "head.bias"), transB=1)
    return op.model([x], [op.output(y, "logits")])


def images(count):
    """A batch of inputs for `image_classifier`."""
    return np.random.default_rng(count).standard_normal((count, 3, 12, 12)).astype(np.float32)


def countdown():
    """A loop whose trip count is an input, and a branch."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [3])
    trip_count = op.input("trip_count", ir.DataType.INT64, [])
    end = op.Loop(trip_count, True, x, body=lambda i, condition, s: [condition, op.Mul(s, 2.0)])
    y = op.If(op.Greater(op.ReduceSum(end, keepdims=0), 0.0), then_branch=lambda: op.Neg(end), else_branch=lambda: op.Add(end, x))
    return op.model([x, trip_count], [op.output(y, "y"), op.output(end, "end")])


def assert_runs_like_hub(backend, hub, module, feeds, rtol=0.0, atol=0.0):
    """Every output of the module is equal, up to a tolerance, to that of the hub model it was made from."""
    expected = devices.run(devices.session(hub, "cpu"), feeds)
    got = backend.runner(module)(feeds)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=rtol, atol=atol)
