"""Decompositions of ONNX Runtime's contrib operators, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnxbridge.errors import ConversionError
from onnxbridge.hub.decompositions.lookup import decomposition_of
from onnxbridge.hub.decompositions.microsoft import MICROSOFT
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.lowering import BodyFunction
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.numpy.ops import rule
from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_standard_cases import Arrays

DOMAIN = "com.microsoft"
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def randint(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    """Integers of the whole range; int8 of 7 bits, with which ONNX Runtime's products are exact on every processor."""
    low, high = (-64, 63) if dtype == np.int8 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return RNG.integers(low, high + 1, shape).astype(dtype)


class Constant:
    """An input that is an initializer of the model."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def model(op: str, inputs: list[Any], outputs: int, attrs: dict[str, Any]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain=DOMAIN, **attrs)
    given = [(n, x) for n, x in zip(names, inputs, strict=True) if x is not None]
    feeds = {n: x for n, x in given if not isinstance(x, Constant)}
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    initializers = [onnx.numpy_helper.from_array(x.array, n) for n, x in given if isinstance(x, Constant)]
    graph = helper.make_graph(
        [node], "g", declared, [helper.make_value_info(n, onnx.TypeProto()) for n in node.output], initializers
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def run_onnxruntime(m: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # with more, DynamicQuantizeLSTM quantizes parts of a batch separately
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


S, Z = Constant(np.array(0.0517, np.float32)), Constant(np.array(120, np.uint8))
T, ZT = Constant(np.array(0.0331, np.float32)), Constant(np.array(3, np.uint8))
SOFTMAX_OUTPUT = Constant(np.array(1 / 256, np.float32)), Constant(np.array(0, np.uint8))
I8, SCALES = randint(4, 5, dtype=np.int8), [np.float32([0.1]), np.float32([0.2])]
ZI = Constant(np.array(-7, np.int8))
X34, LN = normal(2, 3, 4), normal(4)
QKV, MASK = normal(2, 5, 8), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
WEIGHTS, BIAS, PAST = normal(8, 24), normal(24), normal(2, 2, 2, 3, 4)
IMAGE, KERNEL = normal(1, 3, 6, 6), normal(4, 3, 3, 3)
FLAT = np.arange(5, dtype=np.int64)

FLOAT_CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)], 1, {"alpha": 0.5, "transA": 1, "transB": 1}),
    ("FusedMatMul", [normal(3, 4), normal(4, 5)], 1, {}),
    ("TransposeMatMul", [normal(4, 3), normal(4, 5)], 1, {"transA": 1, "alpha": 2.0}),
    ("FusedGemm", [normal(3, 4), normal(4, 5), normal(5)], 1, {"activation": "Relu", "alpha": 0.5}),
    ("FusedGemm", [normal(3, 4), normal(5, 4)], 1, {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1}),
    ("FusedConv", [IMAGE, KERNEL], 1, {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    ("FusedConv", [IMAGE, KERNEL, normal(4)], 1, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    ("FusedConv", [IMAGE, KERNEL, normal(4)], 1, {"activation": "Clip", "activation_params": [-0.3, 0.4]}),
    ("FusedConv", [IMAGE, KERNEL, normal(4), normal(1, 4, 4, 4)], 1, {"activation": "Tanh"}),
    ("Gelu", [X34], 1, {}),
    ("BiasGelu", [X34, LN], 1, {}),
    ("FastGelu", [X34], 1, {}),
    ("FastGelu", [X34, LN], 1, {}),
    ("QuickGelu", [X34], 1, {"alpha": 1.5}),
    ("QuickGelu", [X34], 1, {}),
    ("Inverse", [normal(3, 2, 2)], 1, {}),
    ("Inverse", [normal(3, 1, 1)], 1, {}),
    ("Trilu", [X34, np.array(1, np.int64)], 1, {"upper": 0}),
    ("SkipLayerNormalization", [X34, normal(2, 3, 4), LN, normal(4)], 1, {}),
    ("SkipLayerNormalization", [X34, normal(2, 3, 4), LN, None, normal(4)], 1, {"epsilon": 0.1}),
    ("SkipSimplifiedLayerNormalization", [X34, normal(2, 3, 4), LN], 1, {}),
    ("EmbedLayerNormalization",
     [MASK, MASK, normal(9, 4), normal(7, 4), normal(2, 4), normal(4), normal(4), MASK], 2, {"epsilon": 1e-5}),
    ("EmbedLayerNormalization", [MASK, None, normal(9, 4), normal(7, 4), None, normal(4), normal(4)], 2, {}),
    ("Attention", [QKV, WEIGHTS, BIAS], 1, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, MASK], 1, {"num_heads": 2}),
    ("Attention", [QKV, WEIGHTS, BIAS, np.array([3, 5], np.int32)], 1, {"num_heads": 4, "scale": 0.2}),
    ("Attention", [QKV, WEIGHTS, BIAS], 1, {"num_heads": 2, "unidirectional": 1}),
    ("Attention", [QKV, WEIGHTS, BIAS, None, PAST], 2, {"num_heads": 2, "unidirectional": 1}),
    ("Attention", [QKV, normal(8, 28), normal(28)], 1, {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]}),
    ("Attention", [QKV, WEIGHTS, BIAS, None, None, normal(2, 2, 5, 5)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, normal(2, 3, 8), normal(2, 3, 6)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, QKV, QKV, BIAS, MASK], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [QKV, QKV, QKV, None, None, normal(2, 2, 5, 8), PAST[0], PAST[1]], 3, {"num_heads": 2}),
    ("RotaryEmbedding", [QKV, np.stack([FLAT, FLAT + 1]), normal(9, 2), normal(9, 2)], 1, {}),
    ("RotaryEmbedding", [QKV, np.stack([FLAT, FLAT + 1]), normal(9, 2), normal(9, 2)], 1, {"interleaved": 1, "num_heads": 2}),
    ("MatMulIntegerToFloat", [randint(3, 4), randint(4, 5), *SCALES, np.uint8([3]), np.uint8([5])], 1, {}),
    ("MatMulIntegerToFloat", [randint(3, 4), I8, SCALES[0], normal(5), np.uint8([3]), np.zeros(5, np.int8), normal(5)], 1, {}),
    ("DynamicQuantizeMatMul", [normal(3, 4), randint(4, 5), np.float32([0.2]), np.uint8([5])], 1, {}),
    ("DynamicQuantizeMatMul", [normal(3, 4), I8, normal(5), np.zeros(5, np.int8), normal(5)], 1, {}),
    ("DequantizeLinear", [randint(2, 3), np.array(0.1, np.float32), np.array(9, np.uint8)], 1, {}),
] + [
    ("MatMulNBits", [normal(3, k), Constant(randint(6, -(-k // 16), 16 * bits // 8)), Constant(normal(6 * -(-k // 16))),
      zeros], 1,
     {"K": k, "N": 6, "bits": bits, "block_size": 16})
    for k, bits, zeros in (
        (32, 4, None), (32, 4, Constant(randint(6))), (40, 4, Constant(randint(6 * 2))), (32, 8, None),
        (32, 8, Constant(randint(12))),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs"), FLOAT_CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(FLOAT_CASES)]
)
def test_floating_point_outputs_match_onnxruntime(op, inputs, outputs, attrs):
    m, feeds = model(op, inputs, outputs, attrs)
    assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


def test_skip_layer_normalization_outputs_the_residual_sum():
    node = helper.make_node("SkipLayerNormalization", ["x", "s", "g"], ["y", "", "", "sum"], domain=DOMAIN)
    declared = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 3, 4]), ("s", [2, 3, 4]), ("g", [4]))]
    outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in ("y", "sum")]
    graph = helper.make_graph([node], "g", declared, outputs)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)], ir_version=10)
    feeds = {"x": X34, "s": normal(2, 3, 4), "g": LN}
    assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


QUANTIZED_CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("QLinearAdd", [randint(2, 3, 4), S, Z, randint(3, 1), T, ZT, S, Z], {}),
    ("QLinearAdd", [randint(2, 4, dtype=np.int8), S, ZI, randint(2, 4, dtype=np.int8), T, ZI, S, ZI], {}),
    ("QLinearSigmoid", [randint(5, 50), S, None, T, None], {}),
    ("QLinearMul", [randint(2, 3, 4), T, Z, randint(4), T, Z, S, Z], {}),
    ("QLinearSigmoid", [randint(5, 50), S, Z, T, ZT], {}),
    ("QLinearSigmoid", [randint(5, 50, dtype=np.int8), S, ZI, T, ZI], {}),
    ("QLinearLeakyRelu", [randint(5, 50), S, Z, S, Z], {"alpha": 0.3}),
    ("QLinearLeakyRelu", [randint(5, 50), S, Z, S, Z], {}),
    ("QLinearConcat", [S, Z, randint(2, 3), S, Z, randint(2, 5), T, ZT], {"axis": 1}),
    ("QLinearSoftmax", [randint(4, 6), S, Z, *SOFTMAX_OUTPUT], {"axis": 1, "opset": 13}),
    ("QLinearSoftmax", [randint(4, 2, 3), S, Z, *SOFTMAX_OUTPUT], {"axis": 1, "opset": 12}),
    ("QLinearWhere", [RNG.random((3, 4)) > 0.5, randint(3, 4), S, Z, randint(4), T, ZT, S, Z], {}),
    ("QLinearAveragePool", [randint(1, 3, 6, 6), S, Z, T, Z], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ("QLinearAveragePool", [randint(1, 6, 6, 3), S, Z, T, ZT], {"kernel_shape": [2, 3], "channels_last": 1}),
    ("QLinearGlobalAveragePool", [randint(2, 3, 4, 5), S, Z, T, ZT], {}),
    ("QLinearGlobalAveragePool", [randint(2, 4, 5, 3), S, Z, S, Z], {"channels_last": 1}),
    ("NhwcMaxPool", [randint(1, 6, 7, 3)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    ("QLinearConv",
     [randint(1, 6, 7, 3), S, Z, Constant(randint(4, 3, 3, 3)), T, ZT, Constant(np.array(2.0, np.float32)), Z],
     {"channels_last": 1}),
    ("QuantizeLinear", [normal(3, 4), np.array(0.02, np.float32), np.array(100, np.uint8)], {}),
    ("QGemm", [randint(3, 4), S, Z, randint(4, 5), T, ZT, None, S, Z], {}),
    ("QGemm", [randint(3, 4), S, Z, Constant(RNG.integers(-99, 99, (5, 4)).astype(np.int8)),
               Constant(np.float32([0.01, 0.02, 0.03, 0.04, 0.05])), Constant(np.zeros(5, np.int8)), None, S, Z], {"transB": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attrs"), QUANTIZED_CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(QUANTIZED_CASES)])
def test_quantized_outputs_match_onnxruntime_up_to_rounding_of_ties(op, inputs, attrs):
    """ONNX Runtime multiplies the scales before it rounds, so that values halfway may round differently."""
    m, feeds = model(op, inputs, 1, attrs)
    (got,), (expected,) = Executor(m).run(None, feeds), run_onnxruntime(m, feeds)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    difference = np.abs(got.astype(int) - expected.astype(int))
    assert difference.max(initial=0) <= 1
    assert np.count_nonzero(difference) <= max(1, 0.02 * difference.size)


def test_qgemm_with_bias_and_float_output():
    bias = RNG.integers(-99, 99, (1, 5)).astype(np.int32)
    m, feeds = model("QGemm", [randint(3, 4), S, Z, randint(4, 5), T, ZT, bias], 1, {"alpha": 0.5})
    assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("direction", "batch", "columns"), [("forward", 1, False), ("reverse", 3, True), ("bidirectional", 2, True)]
)
def test_dynamic_quantize_lstm_matches_onnxruntime(kind, direction, batch, columns):
    num_directions, hidden, size = 1 + (direction == "bidirectional"), 5, 4
    scales = (num_directions, 4 * hidden) if columns else (num_directions,)
    zero = np.full(scales, 0 if kind == np.int8 else 120, kind)  # ONNX Runtime supports no other zero point per column
    zero = zero if columns else randint(num_directions, dtype=kind) // 8
    quantization = [Constant((RNG.random(scales) / 50 + 0.005).astype(np.float32)), Constant(zero)]
    weights = [Constant(randint(num_directions, rows, 4 * hidden, dtype=kind)) for rows in (size, hidden)]
    inputs = [
        normal(6, batch, size),
        *weights,
        Constant(normal(num_directions, 8 * hidden)),
        None,
        normal(num_directions, batch, hidden),
        None,
        None,
    ]
    attrs = {"direction": direction, "hidden_size": hidden}
    m, feeds = model("DynamicQuantizeLSTM", [*inputs, *quantization, *quantization], 3, attrs)
    for results in (Executor(m).run(None, feeds), run_decomposition(m, feeds)):
        assert_within_rounding(m, feeds, run_onnxruntime(m, feeds), results)


def run_decomposition(m: onnx.ModelProto, feeds: dict[str, Any]) -> list[np.ndarray]:
    """The outputs of the decomposition of the model's only node."""
    hub = opset_conversion.to_hub(onnx_files.from_proto(m))
    (node,) = hub.graph
    rules = {op: r for op, r in rule.items() if not op.startswith(MICROSOFT)}
    body = decomposition_of(graph_reader.call_of(node))
    assert body is not None
    given = [None if v is None else feeds[v.name] if v.name in feeds else v.const_value.numpy() for v in node.inputs]
    values = graph_reader.HubValues(lambda v: array_of(v.const_value))
    return list(BodyFunction(body, rules, values, Arrays())(*given))


def test_types_are_inferred_through_contrib_operators():
    """Models of ONNX Runtime's optimizer declare no types of intermediate values."""
    nodes = [
        helper.make_node("BiasGelu", ["x", "b"], ["h"], domain=DOMAIN),
        helper.make_node("SkipLayerNormalization", ["h", "x", "b"], ["n"], domain=DOMAIN),
        helper.make_node("FusedMatMul", ["n", "n"], ["m"], domain=DOMAIN, transB=1, alpha=0.5),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("FastGelu"), else_branch=branch("QuickGelu")),
    ]
    declared = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("x", 1, [2, 3, 4]), ("b", 1, [4]), ("c", 9, []))]
    graph = helper.make_graph(nodes, "g", declared, [helper.make_tensor_value_info("y", 1, None)])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)], ir_version=8)
    for c in (True, False):
        feeds = {"x": X34, "b": LN, "c": np.array(c)}
        assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


def branch(op: str) -> onnx.GraphProto:
    node = helper.make_node(op, ["m"], [f"{op}_y"], domain=DOMAIN)
    return helper.make_graph([node], op, [], [helper.make_tensor_value_info(f"{op}_y", 1, None)])


def test_unsupported_inputs_raise_with_the_reason():
    m, _ = model("MultiHeadAttention", [QKV, QKV, QKV, None, None, None, PAST[0], PAST[1], FLAT], 1, {"num_heads": 2})
    with pytest.raises(ConversionError, match="past_sequence_length"):
        Executor(m)
