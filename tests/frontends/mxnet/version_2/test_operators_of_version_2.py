"""Operators of MXNet 2, computed by MXNet 2.0.0b1 and, after conversion, by ONNX Runtime."""

from __future__ import annotations

import os

import numpy as np
import pytest

from onnxbridge.frontends.mxnet import frontend
from onnxbridge.frontends.mxnet.operator_aliases import first_name
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.runtime.mxnet import service
from tests.frontends.mxnet.build import single
from tests.frontends.mxnet.test_operators import ONLY_IN_VERSION_2, check_signature, run_onnxruntime
from tests.frontends.mxnet.version_2.samples_version_2 import new_samples, renamed_samples

ROUNDING = 2.0**-16
"""Both round each operation to 2^-24 of its result, with at most a few hundred operations in different orders."""


@pytest.fixture(autouse=True)
def mxnet_2(monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_MXNET_PYTHON", os.environ["ONNXBRIDGE_MXNET_2_PYTHON"])


@pytest.mark.parametrize("sample", new_samples() + renamed_samples(), ids=lambda s: s.label)
def test_operator(sample, tmp_path):
    attrs = {k.rstrip("_"): v for k, v in sample.attrs.items()}
    np_shape = attrs.pop("np_shape", False)
    files, feeds = single(tmp_path, sample.op, sample.inputs, attrs, sample.heads, sample.known, np_shape, version=20000)
    expected = frontend.runner(files)(feeds)
    model = frontend.to_hub(files, {n: (v.shape, v.dtype) for n, v in feeds.items()})
    found = run_onnxruntime(model, feeds)
    assert list(found) == list(expected)
    for name, reference in expected.items():
        value = found[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
        size = np.nanmax(np.abs(reference[np.isfinite(reference)]).astype(np.float64), initial=0)
        close = ROUNDING if reference.dtype.kind == "f" else 0
        np.testing.assert_allclose(value.astype(np.float64), reference.astype(np.float64), rtol=close, atol=close * size)


@pytest.mark.parametrize("op", sorted(ONLY_IN_VERSION_2 & rule.keys()))
def test_signature(op):
    check_signature(op, service().ask("operators")["operators"])


def test_every_operator_has_a_rule_or_a_reason():
    registry = service().ask("operators")["operators"]
    known = rule.keys() | rule.reasons().keys() | {"Custom"}
    names = {canonical for canonical, *_ in registry.values() if canonical and "backward" not in canonical.lower()}
    assert {n for n in names if first_name(n, rule) not in known} == set()
