"""Models from text at any opset, and comparison of their results in ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper

onnxruntime.set_default_logger_severity(4)


def model_of(version, text, ir_version=8, extra=""):
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {version}{extra}]> {text}')


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=["Pad_Fusion"])
    return session.run(None, feeds)


def feeds_of(model, seed=0):
    """Seeded random inputs; unknown sizes are 4."""
    rng = np.random.default_rng(seed)
    given = {t.name for t in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in given:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value or 4 for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = rng.standard_normal(shape) * 2 if dtype.kind == "f" else rng.integers(-3, 4, shape)
        feeds[value.name] = np.asarray(numbers > 0 if dtype.kind == "b" else numbers).astype(dtype)
    return feeds


def same(old, new, feeds=None, rtol=0.0, expected=None):
    """Assert that both models give the same results, exactly by default."""
    onnx.checker.check_model(new, full_check=True)
    assert [v.name for v in new.graph.output] == [v.name for v in old.graph.output]
    feeds = feeds or feeds_of(old)
    for want, got in zip(expected or run(old, feeds), run(new, feeds), strict=True):
        assert np.asarray(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


# Two roundings of float32 between formulas that are equal in exact numbers.
ROUNDING = 2e-6
