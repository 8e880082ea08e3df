"""Converts TensorFlow Lite files, runs them in ONNX Runtime, and compares with TensorFlow Lite's interpreter."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.frontends.tflite import frontend
from onnxbridge.hub import passes
from onnxbridge.runtime import devices
from tests.frontends.tensorflow.compare import feeds_for, kinds

__all__ = ["agree", "feeds_for", "hub_of", "kinds", "saved"]


def hub_of(source, inputs=None, dynamic=None) -> ir.Model:
    return passes.clean(frontend.to_hub(source, inputs, dynamic))


def run(model: ir.Model, feeds) -> list[np.ndarray]:
    onnx.checker.check_model(ir.to_proto(model))
    return devices.session(model, "cpu", exact_qdq=True).run(None, feeds)


def saved(tmp_path, content: bytes):
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    return path


def agree(source, feeds=None, *, rtol=1e-5, steps=0, inputs=None, seed=0) -> ir.Model:
    """Convert, run both and compare: floats up to `rtol` of the largest value, quantized outputs up to `steps` units."""
    model = hub_of(source, inputs)
    feeds = feeds if feeds is not None else feeds_for(model, seed=seed)
    got = run(model, feeds)
    expected = frontend.runner(source)(feeds)
    assert [v.name for v in model.graph.outputs] == list(expected)
    for g, (name, w) in zip(got, expected.items(), strict=True):
        assert g.shape == w.shape and (g.dtype == w.dtype or w.dtype == object), (name, g.shape, w.shape, g.dtype, w.dtype)
        if w.dtype.kind in "fc":
            scale = float(np.max(np.abs(w), where=np.isfinite(w), initial=0.0))
            np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol * scale, err_msg=name)
        elif steps:
            assert np.abs(g.astype(np.int64) - w.astype(np.int64)).max(initial=0) <= steps, name
        else:
            np.testing.assert_array_equal(g, w, err_msg=name)
    return model
