"""Expansions of operators whose standard cases leave to the graph's inputs what an expansion has to know: here it is constant."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub import calls
from onnxbridge.hub.builder import Builder
from onnxbridge.hub.expand import body_of
from onnxbridge.lowering import as_function
from onnxbridge.runtime import Executor
from onnxbridge.runtime.numpy.ops import rule as numpy_rules

sys.path.insert(0, str(Path(__file__).parent))
from test_expand import Arrays

R = np.random.default_rng(0)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


CASES = {
    "columns": (lambda op, x: op.Col2Im(x, np.int64([5, 5]), np.int64([1, 5])), f(1, 5, 5)),
    "columns with everything": (
        lambda op, x: op.Col2Im(x, np.int64([5, 6]), np.int64([2, 2]), pads=[1, 0, 1, 2], dilations=[2, 1], strides=[2, 3]),
        f(2, 8, 9),
    ),
    "columns in a volume": (lambda op, x: op.Col2Im(x, np.int64([3, 4, 5]), np.int64([1, 2, 2])), f(1, 8, 36)),
    "unpooled": (
        lambda op, x: op.MaxUnpool(
            x, np.int64([[[[5, 7], [13, 15]]]]), np.int64([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2]
        ),
        f(1, 1, 2, 2),
    ),
    "a spectrum": (lambda op, x: op.DFT(x, None, np.int64(1)), f(2, 6, 3, 2)),
    "half a spectrum": (lambda op, x: op.DFT(x, np.int64(5), np.int64(1), onesided=1), f(2, 6, 1)),
    "back from half a spectrum": (lambda op, x: op.DFT(x, np.int64(7), np.int64(0), onesided=1, inverse=1), f(4, 3, 2)),
    "frames": (lambda op, x: op.STFT(x, np.int64(3), f(4)), f(2, 16, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    write, x = CASES[name]
    op = Builder()
    value = op.input("x", ir.DataType.FLOAT, list(x.shape))
    result = op.output(write(op, value), "y")
    model = op.model([value], [result])
    node = result.producer()
    given = [None if v is None else x if v is value else v.const_value.numpy() for v in node.inputs]
    values = calls.HubValues(lambda v: v.const_value.numpy())
    (found,) = as_function(body_of(calls.call_of(node)), numpy_rules, values, Arrays())(*given)
    (expected,) = Executor(model).run(None, {"x": x})
    # sums of at most some dozens of float32 products
    assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-5, atol=1e-5)
