"""Every MXNet operator that there is a rule for, computed by MXNet itself and by ONNX Runtime after conversion."""

from __future__ import annotations

import inspect

import numpy as np
import onnxruntime
import pytest

import onnxbridge
from onnxbridge.backends.onnx import backend
from onnxbridge.formats.mxnet.read_symbol import literal
from onnxbridge.frontends.mxnet import frontend
from onnxbridge.frontends.mxnet.graph_reader import IRRELEVANT
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.runtime.mxnet import service
from tests.frontends.mxnet.build import single
from tests.frontends.mxnet.samples import samples

SAMPLES = samples()
CONTROL = {"_foreach", "_while_loop", "_cond"}  # tested in test_mxnet_models.py: they need subgraphs
GPU_ONLY = {"BatchNorm_v1"}
ROUNDING = 2.0**-16
"""Both sides round every operation to 2^-24 of its result, in different orders of at most some hundred operations."""


def judged(model, feeds):
    """What ONNX Runtime computes, by output name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    proto = backend.native(backend.from_hub(model)).SerializeToString()
    session = onnxruntime.InferenceSession(proto, options, ["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()}), strict=True))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.label)
def test_operator(sample, tmp_path):
    attrs = {k.rstrip("_"): v for k, v in sample.attrs.items()}
    np_shape = attrs.pop("np_shape", False)
    files, feeds = single(tmp_path, sample.op, sample.inputs, attrs, sample.heads, sample.known, np_shape)
    model = frontend.to_hub(files, {n: (v.shape, v.dtype) for n, v in feeds.items()})
    wanted = frontend.runner(files)(feeds)
    found = judged(model, feeds)
    assert list(found) == list(wanted)
    for name, reference in wanted.items():
        value = found[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
        if sample.scatter:
            assert np.isfinite(value).all() and value.std() > 0
            continue
        size = np.nanmax(np.abs(reference[np.isfinite(reference)]).astype(np.float64), initial=0)
        close = np.finfo(reference.dtype).eps / 2**-23 * ROUNDING if reference.dtype.kind == "f" else 0
        close = max(close, ROUNDING) if reference.dtype == np.float64 else close  # softmax and others compute floats for doubles
        np.testing.assert_allclose(value.astype(np.float64), reference.astype(np.float64), rtol=close, atol=close * size)


def test_every_rule_has_a_sample():
    assert set(rule) - {s.op for s in SAMPLES} - CONTROL - GPU_ONLY == set()


@pytest.fixture(scope="module")
def registry():
    return service().ask("operators")["operators"]


@pytest.mark.parametrize("op", sorted(set(rule)))
def test_signature_is_that_of_mxnet(op, registry):
    """Inputs by MXNet's names in its order; attributes by its names and with its defaults, none left out."""
    if op not in registry:
        pytest.fail(f"MXNet 1.9.1 has no operator {op}")
    _, counter, arguments = registry[op]
    inputs = [n for n, kind in arguments if kind.startswith(("NDArray", "Symbol"))]
    attributes = {n: kind for n, kind in arguments if n not in inputs}
    signature = list(inspect.signature(rule[op].lower).parameters.values())[1:]
    if not any(p.kind is p.VAR_POSITIONAL for p in signature):
        taken = [p.name for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert taken[: len(inputs)] == inputs  # the registry leaves out the states of some
    named = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY and p.name != "np_shape"}
    assert set(attributes) - IRRELEVANT <= set(named)
    for name, default in named.items():
        kind = attributes.get(name, "")
        if "default=" in kind and default is not inspect.Parameter.empty and default is not None:
            said = literal(kind.split("default=")[1].strip("'"))
            said = tuple(said) if isinstance(said, list) else said
            if said is not None and said != "None":
                assert said == (pytest.approx(default, rel=1e-6) if isinstance(default, float) else default), name


@pytest.mark.parametrize("axes", ["()", "(1,)"])
def test_dropout_that_is_always_on_stays_random(axes, tmp_path):
    data = np.ones((200, 40), np.float32)
    files, _ = single(tmp_path, "Dropout", [data], {"mode": "always", "p": 0.25, "axes": axes})
    made = onnxbridge.convert(files, inputs={"data0": (data.shape, "float32")})  # compared by mean and deviation
    assert made.report.passed
    (found,) = judged(made.hub, {"data0": data}).values()
    assert set(np.unique(found.round(4))) == {0.0, np.float32(1.3333)} and 0.15 < (found == 0).mean() < 0.35
    assert (found.std(axis=1) == 0).all() == (axes == "(1,)")
