"""Every contrib operator of ONNX Runtime is decomposed, run by the executor, or listed as unsupported with a reason."""

from __future__ import annotations

import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from onnxbridge.errors import ConversionError
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib
from onnxbridge.hub.decompositions.microsoft.unsupported import UNSUPPORTED
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.rules import REQUIRED
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.numpy.ops import rule
from tests.hub.decompositions.test_microsoft import FLOAT_CASES, QUANTIZED_CASES
from tests.hub.decompositions.test_microsoft_arrays import CASES as ARRAYS
from tests.hub.decompositions.test_microsoft_arrays import EXPERIMENTAL_CASES
from tests.hub.decompositions.test_microsoft_attention import CASES as ATTENTION

SESSION_DOMAINS = {"com.microsoft.nchwc", "com.ms.internal.nhwc"}  # only created inside of sessions
CONTRIB_SCHEMAS = {name_of(s.name, s.domain): s for s in get_all_operator_schema() if not onnx.defs.has(s.name, s.domain)}
SCHEMAS = {name: s for name, s in CONTRIB_SCHEMAS.items() if s.domain not in SESSION_DOMAINS}
RULES = {**contrib, **{op: r for op, r in rule.items() if op.startswith(MICROSOFT)}}
# ONNX Runtime's additions to ai.onnx for one device, or without a kernel and a function body
NOT_ONNX = {"GRUUnit", "GivenTensorFill", "MemcpyFromHost", "MemcpyToHost"} | {op for op in SCHEMAS if op.endswith("_TRT")}


@pytest.mark.parametrize("op", sorted(set(SCHEMAS) - NOT_ONNX))
def test_operator_is_either_decomposed_or_unsupported(op):
    assert (op in RULES) != (op in UNSUPPORTED)


@pytest.mark.parametrize("op", sorted(RULES))
def test_signature_matches_the_schema(op):
    schema = SCHEMAS[op]
    params = [p for p in RULES[op].params if p.form != "outputs"]
    assert [p.name for p in params if not p.keyword] == [i.name for i in schema.inputs]
    attributes = {p.name: p for p in params if p.keyword}
    assert set(schema.attributes) <= set(attributes)
    for name, declared in schema.attributes.items():
        assert declared.required == (attributes[name].default is REQUIRED) or op in NO_DEFAULT, name


NO_DEFAULT = {"ParametricSoftplus", "ScaledTanh"}  # the schema has no default, but ONNX Runtime requires the attribute
# tested in other files, or without a complete kernel in ONNX Runtime's CPU provider
TESTED_ELSEWHERE = (
    "BiasAdd BiasDropout BiasSoftmax BiasSplitGelu BitmaskDropout ComplexMul ComplexMulConj FusedMatMulActivation GemmFastGelu "
    "GroupNorm IsAllFinite NhwcConv NhwcFusedConv SkipGroupNorm TorchEmbedding MatMulNBitsMlp MatMulNBitsQkv MatMulBnb4 "
    "QLinearReduceMean ReduceSumInteger MulInteger GatherBlockQuantized GroupQueryAttention "
    "SimplifiedLayerNormalization DynamicSlice MoE QMoE LinearAttention CausalConvWithState HyperConnectionPreMix "
    "HyperConnectionPostMix EngramGate MatMulInteger16 Rfft Irfft GemmaRotaryEmbedding GatedRelativePositionBias"
)


def test_every_operator_has_a_case():
    tested = {c[0] for c in (*FLOAT_CASES, *QUANTIZED_CASES, *ATTENTION, *ARRAYS, *EXPERIMENTAL_CASES)} | set(
        TESTED_ELSEWHERE.split()
    )
    assert tested == {op.removeprefix(MICROSOFT) for op in contrib}


@pytest.mark.parametrize("op", ["BeamSearch", "PackedAttention", "Snpe"])
def test_unsupported_operators_report_reason_and_hint(op):
    node = onnx.helper.make_node(op, ["x"], ["y"], domain="com.microsoft")
    values = [onnx.helper.make_tensor_value_info(n, 1, [2]) for n in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    imports = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    reason, hint = UNSUPPORTED[MICROSOFT + op]
    with pytest.raises(ConversionError) as caught:
        Executor(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10))
    assert [(p.reason, p.hint) for p in caught.value.problems] == [(reason, hint)]
