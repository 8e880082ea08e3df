"""Division, shifts and reductions of the TensorFlow frontend: signs, every dtype, empty axes, NaN."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.runtime import Executor
from tests.frontends.tensorflow.compare import agree, hub_of

FLOATS = ["float16", "bfloat16", "float32", "float64"]
ALL = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMMON = ["float32", "float64", "int32", "int64"]
DIVISIONS = {  # the dtypes that TensorFlow has kernels for
    "Div": ALL, "TruncateDiv": ALL, "FloorDiv": ALL, "FloorMod": ALL, "RealDiv": FLOATS, "DivNoNan": FLOATS, "Xdivy": FLOATS,
    "Mod": COMMON, "TruncateMod": COMMON,
}  # fmt: skip


def _compare(source, feeds):
    """Compare TensorFlow with our executor, which supports every dtype: bit for bit, except for the sign of NaN."""
    expected = frontend.runner(source)(feeds)
    got = dict(zip(expected, Executor(hub_of(source)).run(None, feeds), strict=True))
    for name, w in expected.items():
        g = np.asarray(got[name])
        assert g.dtype == w.dtype and g.shape == w.shape
        if w.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w, err_msg=name)
        else:
            np.testing.assert_array_equal(g.astype(np.float64), w.astype(np.float64), err_msg=name)


def _binary(op, dtype):
    function = tf.function(lambda x, y: getattr(tf.raw_ops, op)(x=x, y=y), autograph=False)
    return function.get_concrete_function(*(tf.TensorSpec([None], dtype, name=n) for n in "xy"))


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtypes in DIVISIONS.items() for dtype in dtypes])
def test_division(op, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    integers = kind.kind in "iu"
    signs = [(1, 1)] if kind.kind == "u" else [(a, b) for a in (1, -1) for b in (1, -1)]
    pairs = [(7, 3), (6, 3), (1, 2), (0, 5), (100, 7)] + ([] if integers else [(0.75, 0.5), (3.75, 0.5), (5, 0), (0, 0)])
    x, y = (np.array([s[k] * p[k] for s in signs for p in pairs]).astype(kind) for k in range(2))
    _compare(_binary(op, dtype), {"x": x, "y": y})


def test_a_float_division_truncates_in_onnx_runtime():
    agree(_binary("TruncateDiv", "float32"), None, {"x": np.float32([7, -7, 7, -7, 0.3]), "y": np.float32([3, 3, -3, -3, -1])})


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("op", ["LeftShift", "RightShift"])
def test_shifts_beyond_the_width(op, dtype):
    x = np.array([255, 3, 1, 255, 128, 7, 7], dtype)
    y = np.array([8, 9, 200, 7, 1, 64, 0], dtype)
    _compare(_binary(op, dtype), {"x": x, "y": y})
    for amount in (3, 8):
        one = tf.function(lambda x, amount=amount: getattr(tf.raw_ops, op)(x=x, y=tf.constant(amount, dtype)), autograph=False)
        fixed = one.get_concrete_function(tf.TensorSpec([None], dtype, name="x"))
        _compare(fixed, {"x": x})


def _reduction(name, dtype, *, size):
    call = lambda x: getattr(tf, f"reduce_{name}")(x, 1)  # noqa: E731
    return tf.function(call, autograph=False).get_concrete_function(tf.TensorSpec([2, size], dtype, name="x"))


REDUCTIONS = [
    *((n, "bool") for n in ("any", "all")), *((n, "int32") for n in ("max", "min", "sum", "prod")),
    *((n, "float32") for n in ("max", "min", "sum", "prod", "logsumexp")),
]  # fmt: skip


# the mean of no elements, which ONNX leaves undefined, is correct if the size is statically 0
@pytest.mark.parametrize(("name", "dtype", "size"), [*((*r, s) for r in REDUCTIONS for s in (0, None)), ("mean", "float32", 0)])
def test_empty_reductions(name, dtype, size):
    feeds = {"x": np.zeros((2, 0), dtype)}
    agree(_reduction(name, dtype, size=size), None, feeds)
    _compare(_reduction(name, dtype, size=size), feeds)


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all(name):
    agree(_reduction(name, "bool", size=None), None, {"x": np.array([[True, False, True], [False, False, False]])})
    agree(_reduction(name, "bool", size=None), None, {"x": np.array([[True, True, True], [False, False, True]])})


def test_nan_is_in_the_last_bucket():
    function = tf.function(lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0, 2.0, 4.0]), autograph=False)
    source = function.get_concrete_function(tf.TensorSpec([5], tf.float32, name="x"))
    agree(source, None, {"x": np.float32([np.nan, -1, 2, np.inf, -np.inf])})
