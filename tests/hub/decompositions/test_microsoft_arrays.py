"""ONNX Runtime's array, normalization and fused operators, compared with ONNX Runtime, or NumPy where it has no CPU kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from onnxbridge.runtime import Executor
from tests.hub.decompositions.rounding import assert_within_rounding
from tests.hub.decompositions.test_microsoft import Constant, model, randint, run_onnxruntime
from tests.hub.decompositions.test_microsoft_attention import assert_matches_onnxruntime, normal

RNG = np.random.default_rng(11)
X = normal(2, 3, 8)
IMAGE = normal(1, 2, 5, 6)
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
TOKENS = RNG.integers(0, 6, (2, 4)).astype(np.int32)


def table(rows: int) -> list[Any]:
    return [randint(rows, 8), np.array(0.03, np.float32), np.array(117, np.uint8)]


TABLES = [table(6), table(5), table(2)]
VECTORS = [[randint(8), np.array(0.01, np.float32), np.array(99, np.uint8)] for _ in range(2)]


def embedding_inputs(segments: bool, mask: bool) -> list[Any]:
    params = [TABLES[0], TABLES[1], TABLES[2] if segments else [None] * 3, *VECTORS]
    inputs = [TOKENS, (TOKENS % 2).astype(np.int32) if segments else None, *(t[0] for t in params), MASK if mask else None]
    return [*inputs, *(t[1] for t in params), *(t[2] for t in params)]


CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("Inverse", [normal(2, 4, 4)], 1, {}),
    ("Inverse", [normal(3, 3)], 1, {}),
    ("ExpandDims", [X, Constant(np.array(1, np.int32))], 1, {}),
    ("ExpandDims", [X, Constant(np.array(-1, np.int32))], 1, {}),
    ("Range", [np.array(1, np.int64), np.array(9, np.int64), np.array(2, np.int64)], 1, {}),
    ("Range", [np.array(1, np.float32), np.array(4, np.float32)], 1, {}),
    ("GatherND", [X, np.array([[0, 1], [1, 2]], np.int32)], 1, {}),
    ("Pad", [X, np.array([0, 1, 0, 0, 0, 2]), np.array([0.5], np.float32)], 1, {}),
    ("Pad", [X, np.array([[0, 1, 0, 0, 1, 2]])], 1, {"mode": "reflect"}),
    ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], 3, {}),
    ("UnfoldTensor", [X], 1, {"size": 3, "step": 2}),
    ("UnfoldTensor", [normal(2, 5, 3)], 1, {"size": 2, "dim": 1}),
    ("SampleOp", [X], 1, {}),
    ("CDist", [normal(3, 4), normal(5, 4)], 1, {"metric": "euclidean"}),
    ("CDist", [normal(3, 4), normal(5, 4)], 1, {"metric": "sqeuclidean"}),
    ("GridSample", [IMAGE, RNG.uniform(-1.1, 1.1, (1, 3, 4, 2)).astype(np.float32)], 1, {"padding_mode": "border"}),
    ("GridSample", [IMAGE, RNG.uniform(-1, 1, (1, 3, 4, 2)).astype(np.float32)], 1, {"mode": "bicubic", "align_corners": 1}),
    ("NGramRepeatBlock", [np.array([[1, 2, 1, 2, 1], [0, 3, 3, 0, 3]]), normal(2, 5)], 1, {"ngram_size": 2}),
    ("NGramRepeatBlock", [np.array([[1, 2, 4, 1, 2], [0, 3, 3, 0, 3]]), normal(2, 5)], 1, {"ngram_size": 3}),
    ("NGramRepeatBlock", [np.array([[1, 1]]), normal(1, 5)], 1, {"ngram_size": 4}),
    ("CropAndResize", [IMAGE, np.array([[0, 0, 1, 1], [0.2, 0.9, 0.7, 0.1], [-0.2, 0, 1.2, 0.5]], np.float32),
                       np.zeros(3, np.int32), Constant(np.array([3, 4], np.int32))], 1, {"extrapolation_value": 7.0}),
    ("CropAndResize", [IMAGE, np.array([[0.1, 0.2, 0.9, 0.6]], np.float32), np.zeros(1, np.int32),
                       Constant(np.array([1, 2], np.int32))], 1, {}),
    ("ConvTransposeWithDynamicPads", [IMAGE, normal(2, 3, 3, 3), Constant(np.array([1, 0, 1, 1])), normal(3)], 1,
     {"strides": [2, 1]}),
    ("QEmbedLayerNormalization", embedding_inputs(True, True), 2, {}),
    ("QEmbedLayerNormalization", embedding_inputs(False, False), 2, {"epsilon": 1e-3}),
    ("GatedRMSNorm", [X, normal(4), normal(2, 3, 8)], 1, {"epsilon": 0.1}),
    ("GatedRMSNorm", [X, normal(8), normal(2, 3, 8)], 1, {"activation": "sigmoid"}),
    ("BranchwiseRMSNorm", [X, normal(24)], 1, {}),
    ("BranchwiseRMSNorm", [X, normal(3, 8)], 1, {}),
    ("BranchwiseRMSNorm", [X, normal(4)], 1, {"num_branches": 2}),
    ("BranchwiseRMSNorm", [X], 1, {"epsilon": 0.2}),
    ("GatedAdd", [X, normal(2, 3, 8), normal(2, 3, 1)], 1, {}),
    ("ScaledSiLU", [X], 1, {"alpha": 1.7}),
    ("ScaledSiLU", [X, np.array(0.3, np.float32)], 1, {}),
    ("LinearAttentionGate", [X, normal(8), normal(8), normal(2, 3, 8)], 2, {}),
    ("FusedMatMul", [normal(3, 2, 4), normal(2, 4, 5)], 1, {"transBatchA": 1}),
    ("FusedMatMul", [normal(4, 2, 3), normal(2, 5, 3)], 1, {"transBatchA": 1, "transB": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "outputs", "attrs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_outputs_match_onnxruntime(op, inputs, outputs, attrs):
    assert_matches_onnxruntime(op, inputs, outputs, attrs)


def run(op: str, inputs: list[Any], outputs: int = 1, **attrs: Any) -> list[np.ndarray]:
    m, feeds = model(op, inputs, outputs, attrs)
    return Executor(m).run(None, feeds)


def assert_gives(expected: list[Any], op: str, inputs: list[Any], **attrs: Any) -> None:
    """The outputs of an operator are the expected ones."""
    assert_within_rounding(*model(op, inputs, len(expected), attrs), expected)


def assert_equal(got: np.ndarray, expected: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return torch.nn.functional.gelu(torch.from_numpy(x)).numpy()


def test_fused_additions():
    bias, skip = normal(8), normal(2, 3, 8)
    assert_gives([X + bias + skip], "BiasAdd", [X, bias, skip])
    gated = (X + bias)[..., :4] * gelu(np.ascontiguousarray((X + bias)[..., 4:]))
    assert_gives([gated], "BiasSplitGelu", [X, bias])
    assert_gives([X + bias + skip, np.ones(X.shape, bool)], "BiasDropout", [X, bias, skip])
    assert_gives([X], "BitmaskDropout", [X])


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(channels_last, activation):
    x, gamma, beta, bias, skip = normal(2, 6, 4, 5), normal(6), normal(6), normal(6), normal(2, 6)

    def to_layout(v):
        return np.ascontiguousarray(np.moveaxis(v, 1, -1)) if channels_last else v

    def normalized(v):
        y = torch.group_norm(torch.from_numpy(v), 3, torch.from_numpy(gamma), torch.from_numpy(beta), 1e-5).numpy()
        return to_layout(silu(y) if activation else y)

    attrs = {"activation": activation, "channels_last": channels_last, "groups": 3}
    assert_gives([normalized(x)], "GroupNorm", [to_layout(x), gamma, beta], **attrs)
    total = x + skip[:, :, None, None] + bias[:, None, None]
    assert_gives([normalized(total), to_layout(total)], "SkipGroupNorm", [to_layout(x), gamma, beta, skip, bias], **attrs)


def test_channels_last_convolution():
    w, b, z = normal(3, 2, 3, 3), normal(3), normal(1, 3, 4, 3)
    y = torch.conv2d(torch.from_numpy(IMAGE), torch.from_numpy(w), torch.from_numpy(b)).numpy()
    channels_last = np.ascontiguousarray(np.moveaxis(IMAGE, 1, -1))
    y = np.moveaxis(y, 1, -1)
    assert_gives([y], "NhwcConv", [channels_last, w, b])
    assert_gives([np.maximum(y + z, 0)], "NhwcFusedConv", [channels_last, w, b, z], activation="Relu")


def test_matmul_with_fused_activation():
    a, b, c = normal(3, 4), normal(4, 5), normal(5)
    assert_gives([np.maximum(a @ b / 2, 0)], "FusedMatMulActivation", [a, b], activation="Relu", alpha=0.5)
    tanh = torch.nn.functional.gelu(torch.from_numpy(a @ b + c), approximate="tanh").numpy()
    assert_gives([tanh], "GemmFastGelu", [a, b, c])


def test_bias_softmax():
    bias = normal(1, 1, 8)
    rows = torch.softmax(torch.from_numpy(X + bias), -1).numpy()
    assert_gives([rows], "BiasSoftmax", [X, bias], axis=2, is_inner_broadcast=0)
    flat = torch.softmax(torch.from_numpy(X + bias).reshape(2, 24), -1).numpy().reshape(X.shape)
    assert_gives([flat], "BiasSoftmax", [X, bias], axis=1, is_inner_broadcast=0)


@pytest.mark.parametrize("conjugate", [False, True])
def test_complex_multiplication(conjugate):
    a, b = normal(2, 3, 2), normal(2, 3, 2)
    x, y = (v[..., 0] + 1j * v[..., 1] for v in (a, b))
    product = x * (y.conj() if conjugate else y)
    assert_gives([np.stack([product.real, product.imag], -1)], "ComplexMulConj" if conjugate else "ComplexMul", [a, b])


def test_is_all_finite():
    good, bad = normal(3), np.array([1, np.nan], np.float32)
    assert run("IsAllFinite", [good, good])[0]
    assert not run("IsAllFinite", [good, bad])[0]
    assert run("IsAllFinite", [good, bad], isinf_only=1)[0]


def test_integer_operators():
    a, b, scale, zero = randint(2, 3, 4), randint(4), np.array(0.05, np.float32), np.array(9, np.uint8)
    as_int32 = a.astype(np.int32)
    assert_equal(run("MulInteger", [a, zero, b, None])[0], (as_int32 - 9) * b.astype(np.int32))
    assert_equal(run("ReduceSumInteger", [a], axes=[1, -1], keepdims=0)[0], a.astype(np.uint32).sum((1, 2), dtype=np.uint32))
    # a mean of three integers is never halfway between two integers, so rounding is unambiguous
    mean = run("QLinearReduceMean", [a, scale, zero, scale, zero], axes=[1], keepdims=1)[0]
    assert_equal(mean, np.clip(np.round((as_int32 - 9).mean(1, keepdims=True)) + 9, 0, 255).astype(np.uint8))


def test_torch_embedding():
    assert_equal(run("TorchEmbedding", [X[0], np.array([2, 0])])[0], X[0][[2, 0]])


EXPERIMENTAL_CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("Affine", {"alpha": 2.0, "beta": 0.5}, lambda x: 2 * x + 0.5),
    ("Scale", {"scale": 0.3}, lambda x: x * np.float32(0.3)),
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0]}, lambda x: x / 2 + np.array([[[1]], [[-2]]], np.float32)),
    ("Crop", {"border": [1, 2, 0, 1]}, lambda x: x[:, :, 2:-1, 1:]),
    ("Crop", {"border": [1, 0, 0, 0], "scale": [2, 3]}, lambda x: x[:, :, 0:2, 1:4]),
    ("ParametricSoftplus", {"alpha": 0.7, "beta": 1.5}, lambda x: 0.7 * np.log1p(np.exp(1.5 * x))),
    ("ScaledTanh", {"alpha": 0.7, "beta": 1.5}, lambda x: 0.7 * np.tanh(1.5 * x)),
]


@pytest.mark.parametrize(
    ("op", "attrs", "expected"), EXPERIMENTAL_CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(EXPERIMENTAL_CASES)]
)
def test_experimental_operators(op, attrs, expected):
    m = standard_domain_model(op, {"x": IMAGE}, 8, **attrs)
    feeds = {"x": IMAGE}
    for results in (Executor(m).run(None, feeds), run_onnxruntime(m, feeds)):
        assert_within_rounding(m, feeds, [expected(IMAGE).astype(np.float32)], results)


def test_dynamic_slice():
    feeds = {"x": X, "s": np.array([1, 2]), "e": np.array([-1, 1000]), "a": np.array([1, 2])}
    m = standard_domain_model("DynamicSlice", feeds, 8)
    assert_equal(Executor(m).run(None, feeds)[0], X[:, 1:-1, 2:])
    assert_equal(run_onnxruntime(m, feeds)[0], X[:, 1:-1, 2:])


@pytest.mark.parametrize("opset", [17, 21, 26])
def test_simplified_layer_normalization_in_the_default_domain(opset):
    """ONNX Runtime's optimizer writes it without a domain."""
    feeds = {"x": X, "s": normal(8)}
    m = standard_domain_model("SimplifiedLayerNormalization", feeds, opset, axis=-1, epsilon=1e-4)
    assert_within_rounding(m, feeds, run_onnxruntime(m, feeds))


def standard_domain_model(op: str, feeds: dict[str, np.ndarray], opset: int, **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node(op, list(feeds), ["y"], **attrs)
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
