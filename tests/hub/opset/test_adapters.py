"""Every adapter on a model of its own: the converted model is equivalent, and the adapter was applied."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.hub.opset import version_converter
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.lowering import Target
from tests.hub.opset.adapter_cases import CASES

onnxruntime.set_default_logger_severity(4)


def model_of(case):
    """The model of a case, at an IR version of its opset; below 4 every initializer is also an input."""
    imports = f'"" : {case.before}' + (f', "ai.onnx.ml" : {case.ml[0]}' if case.ml else "")
    model = onnx.parser.parse_model(f"<ir_version: {3 if case.before < 7 else 10}, opset_import: [{imports}]> {case.text}")
    if case.before < 7:
        for tensor in model.graph.initializer:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return model


def converted(case, monkeypatch):
    """The model, the converted one, and the adapters that were applied."""
    crossed = set()

    def recorded(target, rule, call, args, attrs):
        results = Target.apply(target, rule, call, args, attrs)
        direction = "up" if up.get(call.op, int(rule.op.rpartition("@")[2])) is rule else "down"
        crossed.add(f"{direction} {rule.op}")
        return results

    monkeypatch.setattr(version_converter.NodeTarget, "apply", recorded)
    model = model_of(case)
    return model, onnxbridge.opset.convert(model, {"ai.onnx.ml": case.ml[1]} if case.ml else case.after), crossed


def feeds_of(case, model):
    rng, held = np.random.default_rng(3), {t.name for t in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [d.dim_value or 4 for d in kind.shape.dim]
        if value.name in case.feeds:
            feeds[value.name] = np.asarray(case.feeds[value.name])
        elif value.name not in held:
            drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(-3 if dtype.kind == "i" else 0, 4, shape)
            feeds[value.name] = np.asarray(drawn > 0 if dtype.kind == "b" else drawn).astype(dtype)
    return feeds


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=["Pad_Fusion"])
    return session.run(None, feeds)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_converted_model_is_equivalent(case, monkeypatch):
    old, new, crossed = converted(case, monkeypatch)
    left = {n.op_type for n in old.graph.node} & {n.op_type for n in new.graph.node}
    assert crossed or not left  # an adapter, or the decomposition of the operator
    onnx.checker.check_model(new, full_check=True)
    domains = {i.domain: i.version for i in new.opset_import}
    assert domains[""] == case.after and (case.ml is None or domains["ai.onnx.ml"] == case.ml[1])
    feeds = feeds_of(case, old)
    if case.expected is None:
        wanted = run(old, feeds)
    else:
        wanted = case.expected(**feeds)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    if case.after < 7:  # no runtime reads these: what the way up makes of it is judged, whose adapters have cases of their own
        new = onnxbridge.opset.convert(new, 13)
    for want, got in zip(wanted, run(new, feeds), strict=True):
        want = np.asarray(want)
        if want.dtype.kind in "OUSb":
            assert np.array_equal(want, got)
            continue
        assert got.dtype == want.dtype or case.expected is not None
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.rtol)


def test_every_adapter_has_a_case(monkeypatch):
    crossed = set()
    for case in CASES.values():
        with monkeypatch.context() as patched:
            crossed |= converted(case, patched)[2]
    every = {f"up {key}" for key in up} | {f"down {key}" for key in down}
    assert sorted(every - crossed) == []


def test_constants_that_become_attributes_are_removed():
    text = """<ir_version: 8, opset_import: ["" : 13]> agraph (float[2, 3] x) => (float[2] y)
        <int64[1] axes = {1}, float[1] idle = {7}> {
        sum = ReduceSum<keepdims=0>(x, axes)
        y = Relu(sum)
    }"""
    made = onnxbridge.opset.convert(onnx.parser.parse_model(text), 11)
    assert [held.name for held in made.graph.initializer] == ["idle"], "what the model held without use stays"


def test_subgraphs_of_decompositions_are_converted_once():
    """The function body of AffineGrid has an If, which opsets 11 and 10 rewrite with the same subgraphs."""
    text = """<ir_version: 9, opset_import: ["" : 20]> agraph (float[2, N, 3] x) => (float[2, 4, 5, 2] y)
        <int64[4] size = {2, 1, 4, 5}> { y = AffineGrid(x, size) }"""
    with pytest.raises(ConversionError, match="its branches give the shapes"):  # a problem, not an AttributeError
        onnxbridge.opset.convert(onnx.parser.parse_model(text), 9)
