"""Converts a TensorFlow source, runs it in ONNX Runtime, and compares with TensorFlow."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.hub import passes


def hub_of(source, inputs=None, dynamic=None) -> ir.Model:
    return passes.clean(frontend.to_hub(source, inputs, dynamic))


def kinds(model: ir.Model) -> Counter:
    return Counter(n.op_type for n in ir.traversal.RecursiveGraphIterator(model.graph))


def feeds_for(model: ir.Model, sizes=None, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for v in model.graph.inputs:
        shape = [d if isinstance(d, int) else (sizes or {}).get(d.value, 3) for d in v.shape]
        dtype = v.dtype.numpy()
        feeds[v.name] = (rng.standard_normal(shape) if np.dtype(dtype).kind == "f" else rng.integers(0, 4, shape)).astype(dtype)
    return feeds


def run(model: ir.Model, feeds) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    proto = ir.to_proto(model)
    if all(o.type.tensor_type.HasField("shape") for o in proto.graph.output):  # the checker wants the rank of every output
        onnx.checker.check_model(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, disabled_optimizers=["Pad_Fusion"])
    return session.run(None, feeds)


def agree(source, inputs=None, feeds=None, *, rtol=1e-5, dynamic=None, sizes=None) -> ir.Model:
    """Convert, run both and compare: shapes and dtypes exactly, floats up to `rtol` of the largest output value."""
    model = hub_of(source, inputs, dynamic)
    feeds = feeds if feeds is not None else feeds_for(model, sizes)
    got = run(model, feeds)
    expected = frontend.runner(source)(feeds)
    assert [v.name for v in model.graph.outputs] == list(expected)
    for g, (name, w) in zip(got, expected.items(), strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (name, g.shape, w.shape, g.dtype, w.dtype)
        if w.dtype.kind in "fc":
            scale = float(np.max(np.abs(w), where=np.isfinite(w), initial=0.0))
            tolerance = max(rtol, 2e-3 if w.dtype == np.float16 else 0)
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(g, w, err_msg=name)
    return model
