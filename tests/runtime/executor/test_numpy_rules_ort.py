"""The executor's rules agree with ONNX Runtime, for combinations that the test cases of onnx do not cover."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from onnxbridge.runtime import Executor


def _type(x: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(x.dtype)


def node_model(op: str, inputs: list[Any], outputs: int, attrs: dict[str, Any], opset: int = 24) -> onnx.ModelProto:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, **attrs)
    declared = [helper.make_tensor_value_info(n, _type(x), None) for n, x in zip(names, inputs, strict=True) if n]
    made = [helper.make_value_info(n, onnx.TypeProto()) for n in results]
    graph = helper.make_graph([node], "g", declared, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compare(op: str, inputs: list[Any], outputs: int = 1, rtol: float = 1e-4, atol: float = 1e-5, opset: int = 24, **attrs: Any):
    model = node_model(op, inputs, outputs, attrs, opset)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        inferred.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"]
    )
    expected = session.run(None, feeds)
    got = Executor(inferred).run(None, feeds)
    for g, e in zip(got, expected, strict=True):
        assert (g.dtype, g.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(g, e, rtol=rtol, atol=atol)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.parametrize(
    ("op", "direction", "lengths", "clip", "extra"),
    [
        (op, direction, lengths, clip, extra)
        for op in GATES
        for direction in DIRECTIONS
        for lengths in (None, (5, 2, 1))
        for clip in ((None, 0.3) if op != "LSTM" else (None,))  # tested below
        for extra in ((0, 1) if op != "RNN" else (0,))
    ],
)
def test_recurrent(op, direction, lengths, clip, extra):
    """`extra` is linear_before_reset of a GRU or the peepholes of an LSTM."""
    steps, batch, features, hidden = 5, 3, 4, 6
    directions, gates = DIRECTIONS[direction], GATES[op]
    inputs = [
        normal(steps, batch, features),
        normal(directions, gates * hidden, features, seed=1),
        normal(directions, gates * hidden, hidden, seed=2),
        normal(directions, 2 * gates * hidden, seed=3),
        None if lengths is None else np.array(lengths, np.int32),
        normal(directions, batch, hidden, seed=4),
    ]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "LSTM":
        inputs.append(normal(directions, batch, hidden, seed=5))
        if extra:
            inputs.append(normal(directions, 3 * hidden, seed=6))
    elif extra:
        attrs["linear_before_reset"] = 1
    if clip is not None:
        attrs["clip"] = clip
    compare(op, inputs, 3 if op == "LSTM" else 2, **attrs)


@pytest.mark.parametrize(
    ("activations", "alpha", "beta"),
    [
        (["Relu", "Tanh", "Sigmoid"], None, None),
        (["HardSigmoid", "Affine", "ScaledTanh"], [0.3, 0.7, 1.5], [0.4, 0.1, 0.6]),
        (["Softsign", "LeakyRelu", "ThresholdedRelu"], [0.2, 0.3], None),
        (["Elu", "Softplus", "Tanh"], [0.6], None),
    ],
)
def test_recurrent_activations(activations, alpha, beta):
    attrs = {"activations": activations, "activation_alpha": alpha, "activation_beta": beta}
    compare(
        "LSTM", [normal(3, 2, 4), normal(1, 20, 4), normal(1, 20, 5), normal(1, 40)], 3, hidden_size=5,
        **{k: v for k, v in attrs.items() if v is not None},
    )  # fmt: skip


def test_coupled_gates():
    compare("LSTM", [normal(3, 2, 4), normal(1, 20, 4), normal(1, 20, 5), normal(1, 40)], 3, hidden_size=5, input_forget=1)


def test_lstm_clips_the_input_of_each_activation():
    x, w, r, b = normal(4, 2, 3), normal(1, 20, 3), normal(1, 20, 5), normal(1, 40)
    h = c = np.zeros((2, 5))
    for xt in x:
        i, o, f, z = np.split(np.clip(xt @ w[0].T + h @ r[0].T + b[0, :20] + b[0, 20:], -0.3, 0.3), 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(z) / (1 + np.exp(-i))
        h = np.tanh(np.clip(c, -0.3, 0.3)) / (1 + np.exp(-o))
    model = node_model("LSTM", [x, w, r, b], 3, {"hidden_size": 5, "clip": 0.3})
    got = Executor(model).run(None, {"x0": x, "x1": w, "x2": r, "x3": b})
    np.testing.assert_allclose(got[1][0], h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[2][0], c, rtol=1e-5, atol=1e-6)


CONVS = [
    {"strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID", "dilations": [1, 2]},
]


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("attrs", CONVS)
def test_conv(attrs, group):
    compare("Conv", [normal(2, 4, 9, 10), normal(8, 4 // group, 3, 2), normal(8)], group=group, **attrs)


def test_dilated_conv_with_auto_pad_preserves_the_size():
    x, w = normal(1, 2, 8, 9), normal(3, 2, 3, 2)
    same = node_model("Conv", [x, w], 1, {"auto_pad": "SAME_UPPER", "dilations": [2, 1], "strides": [1, 2]})
    explicit = node_model("Conv", [x, w], 1, {"pads": [2, 0, 2, 1], "dilations": [2, 1], "strides": [1, 2]})
    feeds = {"x0": x, "x1": w}
    np.testing.assert_array_equal(Executor(same).run(None, feeds)[0], Executor(explicit).run(None, feeds)[0])


def test_conv_1d_and_3d():
    compare("Conv", [normal(2, 4, 9), normal(6, 2, 3)], group=2, strides=[2], pads=[1, 1])
    compare("Conv", [normal(1, 2, 5, 6, 7), normal(3, 2, 3, 2, 1), normal(3)], strides=[2, 1, 2])
    compare("Conv", [normal(1, 2, 5, 6), normal(3, 2, 1, 1)], strides=[2, 2], pads=[0, 1, 1, 0])


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [2, 3], "output_padding": [1, 1]},
        {"pads": [1, 0, 0, 2], "dilations": [2, 1]},
        {"strides": [3, 2], "output_shape": [14, 9]},
        {"strides": [3, 2], "output_shape": [14, 9], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    ],
)
def test_conv_transpose(attrs, group):
    compare("ConvTranspose", [normal(2, 4, 5, 4), normal(4, 3, 3, 3), normal(3 * group)], group=group, **attrs)


POOLS = [
    {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 3], "ceil_mode": 1},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [3, 2], "dilations": [2, 2], "strides": [2, 1]},
]


@pytest.mark.parametrize("attrs", POOLS)
def test_pooling(attrs):
    x = normal(2, 3, 10, 9)
    compare("MaxPool", [x], 2, **attrs)
    compare("AveragePool", [x], **attrs)
    compare("AveragePool", [x], count_include_pad=1, **attrs)
    compare("LpPool", [x], p=3, **attrs)
    compare("LpPool", [x], p=1, **attrs)


def test_pooling_of_integers():
    x = np.random.default_rng(0).integers(-100, 100, (1, 2, 7, 7)).astype(np.int8)
    compare("MaxPool", [x], 1, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    compare("MaxPool", [x.astype(np.uint8)], 2, kernel_shape=[2, 2], storage_order=1)


@pytest.mark.parametrize(
    ("starts", "ends", "steps"),
    list(itertools.product([-20, -4, 0, 3, 20], [-20, -3, 0, 4, 20, np.iinfo(np.int64).min], [-7, -2, -1, 1, 3])),
)
def test_slice(starts, ends, steps):
    one = [np.array([v], np.int64) for v in (starts, ends, -1, steps)]
    compare("Slice", [normal(3, 6), *one])


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
@pytest.mark.parametrize("sizes", [(7, 5), (2, 9), (1, 1)])
def test_resize(mode, transform, sizes):
    x = normal(1, 2, 4, 6)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    compare("Resize", [x, None, None, np.array([1, 2, *sizes], np.int64)], **attrs)
    if mode != "nearest":
        compare("Resize", [x, None, np.array([1, 1, 1.5, 0.5], np.float32)], antialias=1, **attrs)
    if mode == "cubic":
        compare("Resize", [x, None, np.array([1, 1, 2, 3], np.float32)], exclude_outside=1, cubic_coeff_a=-0.5, **attrs)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize_nearest(rounding):
    x = normal(1, 1, 5, 8)
    for transform in ("asymmetric", "half_pixel", "align_corners"):
        attrs = {"nearest_mode": rounding, "coordinate_transformation_mode": transform}
        compare("Resize", [x, None, np.array([1, 1, 2, 0.5], np.float32)], **attrs)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode, padding, align):
    grid = normal(2, 4, 5, 2) * 1.5
    compare("GridSample", [normal(2, 3, 6, 7), grid], mode=mode, padding_mode=padding, align_corners=align, atol=1e-4)
    if mode != "cubic":
        volume = normal(1, 3, 4, 5, 3)
        compare("GridSample", [normal(1, 2, 3, 4, 5), volume], mode=mode, padding_mode=padding, align_corners=align)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode):
    x = normal(3, 4, 5)
    compare("Pad", [x, np.array([1, 0, 2, 1, 0, 1], np.int64)], mode=mode)
    compare("Pad", [x, np.array([1, 2], np.int64), np.array(3, np.float32), np.array([-1], np.int64)], mode=mode)
    compare("Pad", [x, np.array([0, -1, 2, 1, -1, 0], np.int64)], mode="constant")


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(reduction):
    x, indices = normal(4, 5), np.array([[1, 0, -1], [2, 1, 0]], np.int64)
    compare("ScatterElements", [x, indices, normal(2, 3)], axis=1, reduction=reduction)
    where = np.array([[1, 2], [-1, 0]] if reduction == "none" else [[1, 2], [1, 2]], np.int64)
    compare("ScatterND", [x, where, normal(2)], reduction=reduction)


def test_normalization():
    x = normal(2, 6, 4, 3)
    compare("LRN", [x], size=5, alpha=0.1, bias=2.0, beta=0.6)
    compare("LRN", [x], size=3)
    compare("LpNormalization", [x], axis=1, p=1)
    compare("LayerNormalization", [x, normal(4, 3), normal(4, 3)], 3, axis=2)
    compare("InstanceNormalization", [x, normal(6), normal(6)])
    compare("GroupNormalization", [x, normal(6), normal(6)], num_groups=3, opset=21)
    compare("BatchNormalization", [x, normal(6), normal(6), normal(6), np.abs(normal(6, seed=1))], epsilon=1e-3)


def test_quantized_products():
    rng = np.random.default_rng(0)
    # Seven bits, since ONNX Runtime's products of int8 with eight are not exact on every processor.
    a, b = rng.integers(0, 255, (2, 3, 4)).astype(np.uint8), rng.integers(-64, 64, (4, 5)).astype(np.int8)
    compare("MatMulInteger", [a, b, np.array(7, np.uint8), np.array([1, 2, 3, 4, 5], np.int8)])
    scale = [np.array(s, np.float32) for s in (0.02, 0.03, 0.4)]
    zero = [np.array(7, np.uint8), np.array(3, np.int8), np.array(100, np.uint8)]
    compare("QLinearMatMul", [a, scale[0], zero[0], b, scale[1], zero[1], scale[2], zero[2]], opset=20)
    x, w = rng.integers(0, 255, (1, 4, 7, 7)).astype(np.uint8), rng.integers(-64, 64, (6, 2, 3, 3)).astype(np.int8)
    per = rng.random(6).astype(np.float32) / 50
    bias = rng.integers(-999, 999, 6).astype(np.int32)
    inputs = [x, scale[0], zero[0], w, per, np.zeros(6, np.int8), scale[2], zero[2], bias]
    compare("QLinearConv", inputs, group=2, pads=[1, 1, 1, 1], strides=[2, 2])
    compare("ConvInteger", [x, np.abs(w[:, :, :2]).astype(np.uint8), zero[0], np.array(9, np.uint8)], group=2, pads=[0, 1, 1, 0])
    compare("DynamicQuantizeLinear", [normal(5, 6) * 3], 3)


def test_indexing():
    x = normal(3, 4, 5)
    compare("Unique", [np.round(normal(40))], 4)
    compare("Unique", [np.round(normal(40))], 4, sorted=0)
    compare("Unique", [np.round(normal(6, 2))], 4, axis=0)
    compare("TopK", [np.round(x * 2), np.array([3], np.int64)], 2, axis=1)
    compare("TopK", [np.round(x * 2), np.array([4], np.int64)], 2, axis=-1, largest=0)
    compare("GatherND", [x, np.array([[[1], [0]], [[2], [-1]], [[0], [3]]], np.int64)], batch_dims=1)
    compare("GatherElements", [x, np.array([[[1, 0]], [[2, -1]]], np.int64)], axis=2)
    compare("ReverseSequence", [x, np.array([1, 3, 2, 0], np.int64)], batch_axis=1, time_axis=0)
    compare("ArgMax", [np.round(x)], axis=1, select_last_index=1)
    compare("CumSum", [x, np.array(-1, np.int64)], exclusive=1, reverse=1)
    compare("Einsum", [normal(2, 3, 4), normal(2, 4, 5)], equation="...ij, ...jk -> ...ki")
    compare("Einsum", [normal(3, 3)], equation="ii")


def test_boxes_and_regions():
    rng = np.random.default_rng(1)
    boxes = rng.random((2, 30, 4)).astype(np.float32)
    scores = rng.random((2, 3, 30)).astype(np.float32)
    limits = [np.array([6], np.int64), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    for centre in (0, 1):
        compare("NonMaxSuppression", [boxes, scores, *limits], center_point_box=centre)
    rois = np.sort(rng.random((5, 2, 2)) * 20, axis=1).reshape(5, 4).astype(np.float32)
    x, batch = normal(2, 3, 12, 14), np.array([0, 1, 1, 0, 1], np.int64)
    for transform, ratio in itertools.product(("half_pixel", "output_half_pixel"), (0, 2)):
        attrs = {"coordinate_transformation_mode": transform, "sampling_ratio": ratio, "spatial_scale": 0.6}
        compare("RoiAlign", [x, rois, batch], output_height=3, output_width=2, opset=16, **attrs)
        compare("RoiAlign", [x, rois * np.float32([1, -8, 30, 9]), batch], output_height=3, output_width=2, opset=16, **attrs)
        broken = x.copy()
        broken[:, 1, 5, 6] = np.nan
        compare("RoiAlign", [broken, rois, batch], output_height=3, output_width=2, opset=16, **attrs)
    regions = np.concatenate([batch[:, None].astype(np.float32), np.floor(rois)], 1)
    compare("MaxRoiPool", [x, regions], pooled_shape=[3, 2], spatial_scale=0.5, opset=21)


@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(past, causal):
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
    mask = normal(5, 5 + past)
    cache = [normal(2, 2, past, 8), normal(2, 2, past, 6)] if past else [None, None]
    inputs = [q, k, v, mask, *cache] if past else [q, k, v, mask]
    compare("Attention", inputs, 3 if past else 1, opset=23, is_causal=0 if past else causal, softcap=2.0, scale=0.3)
    flat = [a.transpose(0, 2, 1, 3).reshape(2, 5, -1) for a in (q, k, v)]
    compare("Attention", flat, opset=23, is_causal=causal, q_num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved):
    x, cos, sin = normal(2, 3, 5, 8), normal(9, 2), normal(9, 2, seed=1)
    positions = np.arange(10, dtype=np.int64).reshape(2, 5) % 9
    compare("RotaryEmbedding", [x, cos, sin, positions], opset=23, interleaved=interleaved, rotary_embedding_dim=4)


def test_integer_arithmetic():
    a = np.array([7, -7, 7, -7, 9], np.int32)
    b = np.array([2, 2, -2, -2, 3], np.int32)
    compare("Div", [a, b])
    compare("Mod", [a, b])
    compare("Mod", [a, b], fmod=1)
    compare("Pow", [a, np.abs(b)])
    compare("Mod", [a.astype(np.float32) / 2, b.astype(np.float32)], fmod=1)
