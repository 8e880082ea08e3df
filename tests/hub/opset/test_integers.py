"""Integers of every dtype at older opsets are exact over the whole range, in ONNX Runtime and the executor."""

import contextlib

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

import onnxbridge
from onnxbridge.runtime import Executor
from tests.hub.opset.models import run

SIGNED, UNSIGNED = (np.int8, np.int16, np.int32, np.int64), (np.uint8, np.uint16, np.uint32, np.uint64)
BITWISE = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}


def numbers(dtype, seed, count=200):
    """The limits of the dtype, then random numbers of its whole range."""
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, *([-1] if info.min else [])]
    found = np.random.default_rng(seed).integers(info.min, info.max, count, dtype, endpoint=True)
    found[: len(edges)] = edges
    return np.random.default_rng(seed + 1).permutation(found)


def model(op, *inputs, **attrs):
    names = [f"x{i}" for i in range(len(inputs))]
    dtypes = [helper.np_dtype_to_tensor_dtype(v.dtype) for v in inputs]
    given = [helper.make_tensor_value_info(n, t, v.shape) for n, t, v in zip(names, dtypes, inputs, strict=True)]
    result = helper.make_value_info("y", onnx.TypeProto())
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "g", given, [result])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True), dict(zip(names, inputs, strict=True))


def both(op, target, *inputs, **attrs):
    """Results of the operator at an older opset by the executor, and by ONNX Runtime if it has a kernel."""
    source, feeds = model(op, *inputs, **attrs)
    converted = onnxbridge.opset.convert(source, to=target)
    onnx.checker.check_model(converted, full_check=True)
    found = [Executor(converted).run(None, feeds)[0]]
    with contextlib.suppress(NotImplemented_):  # it has no kernels of some small types
        found.append(run(converted, feeds)[0])
    return found


@pytest.mark.parametrize("target", [17, 12, 10, 8, 7])
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", BITWISE)
def test_bitwise_operators_are_exact(op, dtype, target):
    a, b = numbers(dtype, 0), numbers(dtype, 5)
    found = both(op, target, a, b)
    assert len(found) == 2
    for got in found:
        np.testing.assert_array_equal(got, BITWISE[op](a, b))


@pytest.mark.parametrize("target", [17, 10, 7])
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_other_integer_operators_are_exact(dtype, target):
    a, b = numbers(dtype, 1), numbers(dtype, 9)
    divisor = np.where((b == 0) | (b == dtype(0) - dtype(1)), dtype(3), b)
    cases = {
        "BitwiseNot": ((a,), ~a), "Max": ((a, b), np.maximum(a, b)), "Min": ((a, b), np.minimum(a, b)),
        "Greater": ((a, b), a > b), "LessOrEqual": ((a, b), a <= b), "Equal": ((a, b), a == b), "Sign": ((a,), np.sign(a)),
        "Mod": ((a, divisor), np.mod(a, divisor)),
    }  # fmt: skip
    for op, (inputs, expected) in cases.items():
        for got in both(op, target, *inputs):
            np.testing.assert_array_equal(got, expected, err_msg=op)


@pytest.mark.parametrize("target", [17, 10, 7])
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_shifts_are_exact(dtype, target):
    a = numbers(dtype, 2)
    by = np.random.default_rng(3).integers(0, 8 * a.itemsize, a.shape).astype(dtype)
    for direction, expected in (("LEFT", a << by), ("RIGHT", a >> by)):
        for got in both("BitShift", target, a, by, direction=direction):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", [13, 10, 7])
def test_a_range_of_int16_at_older_opsets(target):
    for got in both("Range", target, *(np.array(v, np.int16) for v in (32759, 32767, 3))):
        np.testing.assert_array_equal(got, np.arange(32759, 32767, 3, np.int16))
