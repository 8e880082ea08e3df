"""Random graphs converted to an older opset and back give the same results in ONNX Runtime."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnxbridge
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import opset_version
from onnxbridge.runtime import Executor
from tests.sampling import at_most

onnxruntime.set_default_logger_severity(4)
SHAPE = (2, 3, 4)
LOWEST = 7

# Each keeps the shape (2, 3, 4); `a` is an axis.
STEPS = {
    "softmax": lambda op, v, a: op.Softmax(v, axis=a - 1),
    "log_softmax": lambda op, v, a: op.LogSoftmax(v, axis=a),
    "mean": lambda op, v, a: op.Sub(v, op.ReduceMean(v, [a], keepdims=1)),
    "max": lambda op, v, a: op.Sub(v, op.ReduceMax(v, [-1 - a], keepdims=1)),
    "norm": lambda op, v, a: op.LayerNormalization(v, np.array([1, 2, 3, 4], np.float32), axis=-1),
    "rms": lambda op, v, a: op.RMSNormalization(v, np.array([1, 2, 3, 4], np.float32), axis=-1),
    "clip": lambda op, v, a: op.Clip(v, -1.0, float(a + 1)),
    "hard": lambda op, v, a: op.HardSwish(v),
    "where": lambda op, v, a: op.Where(op.Greater(v, 0.25), v, op.Mul(v, 0.5)),
    "pad": lambda op, v, a: op.Slice(op.Pad(v, [1, 1], 0.0, [a], mode="constant"), [0], [SHAPE[a]], [a]),
    "edge": lambda op, v, a: op.Slice(op.Pad(v, [2, 0], None, [a], mode="wrap" if a else "edge"), [0], [SHAPE[a]], [a]),
    "split": lambda op, v, a: op.Concat(*reversed(op.Split(v, axis=a, num_outputs=2, outputs=2)), axis=a),
    "steps": lambda op, v, a: op.Slice(v, [-1], [-100], [a], [-1]),
    "cumsum": lambda op, v, a: op.CumSum(v, np.int64(a), exclusive=a % 2, reverse=a // 2),
    "cumprod": lambda op, v, a: op.CumProd(v, np.int64(a)),
    "trilu": lambda op, v, a: op.Trilu(v, np.int64(a - 1), upper=a % 2),
    "gather": lambda op, v, a: op.GatherElements(v, np.indices(SHAPE)[a][..., ::-1] - 1, axis=a),
    "scatter": lambda op, v, a: op.ScatterElements(v, np.zeros(SHAPE, np.int64), v, axis=a, reduction="add"),
    "einsum": lambda op, v, a: op.Einsum(v, op.constant(np.eye(4, dtype=np.float32) * 2), equation="abc,cd->abd"),
    "argmax": lambda op, v, a: op.Add(v, op.Cast(op.ArgMax(v, axis=a, select_last_index=1), to=1)),
    "round": lambda op, v, a: op.Add(op.Round(v), v),
    "integers": lambda op, v, a: op.Cast(op.Max(op.Cast(v, to=6), np.int32(a)), to=1),
    "quantize": lambda op, v, a: op.DequantizeLinear(op.QuantizeLinear(v, 0.5, np.int8(1)), 0.5, np.int8(1)),
    "group": lambda op, v, a: op.GroupNormalization(v, *[np.ones(3, np.float32)] * 2, num_groups=3),
    "top": lambda op, v, a: op.Sub(v, op.TopK(v, [1], axis=a, largest=0, outputs=2)[0]),
    "sequence": lambda op, v, a: op.Squeeze(op.Unsqueeze(v, [a]), [a]),
    "swish": lambda op, v, a: op.Swish(v),
    "gelu": lambda op, v, a: op.Gelu(v, approximate="tanh"),
}  # fmt: skip


def numbers(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # it moves a QuantizeLinear through a Slice and loses the output's dtype, so that the model does not load
    disabled = ["QDQPropagationTransformer"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=disabled)
    return session.run(None, feeds)[0]


@pytest.mark.slow
@given(
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2)), min_size=1, max_size=4),
    target=st.integers(LOWEST, 23),
    seed=st.integers(0, 99),
)
@settings(max_examples=at_most(400, 4000), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_down_and_up_conversion_keeps_results(steps, target, seed):
    op = Builder()
    x = v = op.input("x", ir.DataType.FLOAT, list(SHAPE))
    for name, axis in steps:
        v = STEPS[name](op, v, axis)
        v.shape = ir.Shape(SHAPE)
    model = onnx_files.to_proto(op.model([x], [op.output(v, "y")]))
    down = onnxbridge.opset.convert(model, to=target)
    up = onnxbridge.opset.convert(down, to=opset_version.OPSET)
    assert [m.opset_import[0].version for m in (down, up)] == [target, opset_version.OPSET]
    feeds = {"x": np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)}
    [want] = Executor(model).run(None, feeds)  # ONNX Runtime lacks a few of the newest operators
    for other in (down, up):
        onnx.checker.check_model(other, full_check=True)
        # a few roundings relative to the largest value, since the formulas are equal in exact arithmetic
        np.testing.assert_allclose(numbers(other, feeds), want, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(want).max())))
