"""Rounding of softmax in half precision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.numpy.ops.activation import softmax


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_softmax_is_rounded_once(kind):
    x = np.random.default_rng(3).standard_normal((4, 3000)).astype(kind)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(-1, keepdims=True))
    exact = e / e.sum(-1, keepdims=True)
    error = np.abs(softmax(x).astype(np.float64) - exact)
    assert (error <= np.spacing(exact.astype(kind)).astype(np.float64) * 0.51).all()


def test_attention_computes_its_softmax_in_the_requested_precision():
    """Its function body casts the scores to that type first; in bfloat16 a sum of 1,024 probabilities is wrong by percents."""
    text = """<ir_version: 10, opset_import: ["" : 23]> agraph (bfloat16[1,1024] x) => (bfloat16[1,1024] y, bfloat16[1,1024] z) {
        s = Cast<to=16>(x) y = Softmax(s) z = Softmax(x) }"""
    y, z = Executor(parser.parse_model(text)).run(None, {"x": np.linspace(-3, 3, 1024).astype(ml_dtypes.bfloat16)[None]})
    assert abs(float(z.astype(np.float64).sum()) - 1) < 1e-3 < abs(float(y.astype(np.float64).sum()) - 1)
