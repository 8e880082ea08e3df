"""Models in ONNX's text form, run by ONNX Runtime and by MXNet."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

import onnxbridge
from onnxbridge.backends.mxnet import backend


def parsed(text, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')


def converted(text):
    """The MXNet model, not verified."""
    return onnxbridge.convert(parsed(text), to="mxnet", verify=False).artifact


def assert_same(text, *samples):
    """One conversion computes what ONNX Runtime does for all samples; returns MXNet's results.

    ONNX Runtime does not know the shape of what a loop collects in no iteration: there the results must only be empty.
    """
    run = backend.runner(converted(text))
    session = onnxruntime.InferenceSession(parsed(text).SerializeToString(), providers=["CPUExecutionProvider"])
    results = []
    for sample in samples:
        feeds = {name: np.asarray(value) for name, value in sample.items()}
        found, expected = list(run(feeds).values()), session.run(None, feeds)
        for value, reference in zip(found, expected, strict=True):
            assert value.dtype == reference.dtype
            if not (" Loop" in text and value.ndim and len(value) == reference.size == 0):
                assert value.shape == reference.shape
                np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)
        results.append(found)
    return results
