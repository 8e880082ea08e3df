"""Every MXNet operator with a rule, computed by MXNet and, after conversion, by ONNX Runtime."""

from __future__ import annotations

import inspect

import numpy as np
import onnxruntime
import pytest

import onnxbridge
from onnxbridge.backends.onnx import backend
from onnxbridge.formats.mxnet.read_symbol import literal
from onnxbridge.frontends.mxnet import frontend, symbol_for_cpu
from onnxbridge.frontends.mxnet.graph_reader import FUSED, IRRELEVANT, SEMANTICS
from onnxbridge.frontends.mxnet.operator_aliases import first_name
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.runtime.mxnet import service
from tests.frontends.mxnet.build import single
from tests.frontends.mxnet.samples import samples
from tests.frontends.mxnet.samples_linalg_random_image import linalg_random_image_samples
from tests.frontends.mxnet.samples_numpy import numpy_samples
from tests.frontends.mxnet.samples_quantized import quantized_samples
from tests.frontends.mxnet.version_2.samples_version_2 import new_samples

SAMPLES = samples() + numpy_samples() + linalg_random_image_samples() + quantized_samples()
NEED_SUBGRAPHS = {"_foreach", "_while_loop", "_cond"} | FUSED  # tested in test_models.py and test_quantized_models.py
GPU_ONLY = {"BatchNorm_v1"}
ROUNDING = 2.0**-16
"""Both round each operation to 2^-24 of its result, with at most a few hundred operations in different orders."""


def run_onnxruntime(model, feeds):
    """The outputs of ONNX Runtime by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    proto = backend.native(backend.from_hub(model)).SerializeToString()
    session = onnxruntime.InferenceSession(proto, options, ["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}), strict=True))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.label)
def test_operator(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(symbol_for_cpu, "adds_in_16_bits", lambda: False)  # the samples' weights are small enough
    attrs = {k.rstrip("_"): v for k, v in sample.attrs.items()}
    np_shape = attrs.pop("np_shape", False)
    files, feeds = single(tmp_path, sample.op, sample.inputs, attrs, sample.heads, sample.known, np_shape)
    model = frontend.to_hub(files, {n: (v.shape, v.dtype) for n, v in feeds.items()})
    expected = frontend.runner(files)(feeds)
    found = run_onnxruntime(model, feeds)
    assert list(found) == list(expected)
    for name, reference in expected.items():
        value = found[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
        if sample.scatter:
            assert np.isfinite(value).all() and value.std() > 0
            continue
        size = np.nanmax(np.abs(reference[np.isfinite(reference)]).astype(np.float64), initial=0)
        close = np.finfo(reference.dtype).eps / 2**-23 * ROUNDING if reference.dtype.kind == "f" else 0
        close = max(close, ROUNDING) if reference.dtype == np.float64 else close  # softmax and others compute float64 in float32
        np.testing.assert_allclose(value.astype(np.float64), reference.astype(np.float64), rtol=close, atol=close * size)


def test_every_rule_has_a_sample():
    tested = {f"Custom:{s.attrs['op_type']}" if s.op == "Custom" else s.op for s in SAMPLES}
    assert set(rule) - tested - NEED_SUBGRAPHS - GPU_ONLY - ONLY_IN_VERSION_2 == set()


@pytest.fixture(scope="module")
def registry():
    return service().ask("operators")["operators"]


ONLY_IN_VERSION_2 = {s.op for s in new_samples()} - {s.op for s in SAMPLES} | {
    "_npi_bitwise_left_shift_scalar", "_npi_bitwise_right_shift_scalar",
}  # fmt: skip
"""Operators that MXNet 2 has added, tested in version_2/."""


@pytest.mark.parametrize("op", sorted(op for op in set(rule) - ONLY_IN_VERSION_2 if not op.startswith("Custom:")))
def test_signature_matches_mxnet(op, registry):
    check_signature(op, registry)


def check_signature(op, registry):
    """Inputs have MXNet's names and order; attributes have its names and defaults, and none is missing."""
    assert op in registry, f"MXNet has no operator {op}"
    _, counter, arguments = registry[op]
    inputs = [n for n, kind in arguments if kind.startswith(("NDArray", "Symbol"))]
    attributes = {n: kind for n, kind in arguments if n not in inputs}
    signature = list(inspect.signature(rule[op].lower).parameters.values())[1:]
    if not any(p.kind is p.VAR_POSITIONAL for p in signature):
        positional = [p.name for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional[: len(inputs)] == inputs  # the registry omits the states of some operators
    named = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY and p.name not in SEMANTICS}
    assert set(attributes) - IRRELEVANT <= set(named)
    for name, default in named.items():
        kind = attributes.get(name, "")
        if "default=" in kind and default is not inspect.Parameter.empty and default is not None:
            documented = literal(kind.split("default=")[1].strip("'"))
            documented = tuple(documented) if isinstance(documented, list) else documented
            if documented is not None and documented != "None":
                assert documented == (pytest.approx(default, rel=1e-6) if isinstance(default, float) else default), name


def test_every_operator_of_mxnet_has_a_rule_or_a_reason(registry):
    """`Custom` operators have the name of the user's; "_backward" ones are made for gradients only."""
    known = rule.keys() | rule.reasons().keys() | {"Custom", "_npi_Custom"}
    assert {n for n in registry if "backward" not in n.lower() and first_name(n, rule) not in known} == set()


@pytest.mark.parametrize("axes", ["()", "(1,)"])
def test_dropout_in_mode_always_is_random(axes, tmp_path):
    data = np.ones((200, 40), np.float32)
    files, _ = single(tmp_path, "Dropout", [data], {"mode": "always", "p": 0.25, "axes": axes})
    made = onnxbridge.convert(files, inputs={"data0": (data.shape, "float32")})  # compared by mean and deviation
    assert made.report.agrees
    (found,) = run_onnxruntime(made.hub, {"data0": data}).values()
    assert set(np.unique(found.round(4))) == {0.0, np.float32(1.3333)} and 0.15 < (found == 0).mean() < 0.35
    assert (found.std(axis=1) == 0).all() == (axes == "(1,)")
