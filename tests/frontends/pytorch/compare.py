"""Converts a PyTorch model, checks the file, runs it in ONNX Runtime and compares with PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch.utils import _pytree as pytree

from onnxbridge.frontends.pytorch import frontend
from onnxbridge.hub.passes import clean
from onnxbridge.runtime import devices

ROUNDING = 2.0**-16
"""Both runs round every operation to 2^-24 of its result, in different orders of at most some hundred operations."""


def convert_to_onnx(source, inputs=None, dynamic=None):
    """The hub model, and its checked ONNX file."""
    model = clean(frontend.to_hub(source, inputs, dynamic))
    proto = ir.serde.serialize_model(model)
    onnx.checker.check_model(proto, full_check=True)
    return model, proto


def onnxruntime_session(proto):
    """A single-threaded ONNX Runtime session of the model."""
    return devices.session(proto, "cpu", threads=1)


def run_session(session, feeds):
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def feeds_of(model, inputs):
    """The tensors of the example inputs by input name of the model."""
    leaves = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    return {v.name: x.numpy() for v, x in zip(model.graph.inputs, leaves, strict=True)}


def assert_equal_outputs(got, expected, rtol=ROUNDING):
    assert list(got) == list(expected)
    for name, value in expected.items():
        assert got[name].dtype == value.dtype, name
        assert got[name].shape == value.shape, name
        if value.size and value.dtype.kind == "f":
            finite = value[np.isfinite(value)]
            scale = float(np.abs(finite).max()) if finite.size else 1.0
            np.testing.assert_allclose(got[name], value, rtol, rtol * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], value, err_msg=name)


def check_against_pytorch(source, inputs, dynamic=None, other=None, rtol=ROUNDING):
    """Convert, and compare with PyTorch on the example inputs and on others (with other sizes where dynamic)."""
    model, proto = convert_to_onnx(source, inputs, dynamic)
    session, eager = onnxruntime_session(proto), frontend.runner(source)
    for given in (inputs, *(other or ())):
        feeds = feeds_of(model, given)
        assert_equal_outputs(run_session(session, feeds), eager(feeds), rtol)
    return model
