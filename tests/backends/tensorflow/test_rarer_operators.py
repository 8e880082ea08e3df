"""Operators that the ONNX node test cases do not cover, or not enough."""

from __future__ import annotations

import io

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from PIL import Image

import onnxbridge
from onnxbridge.backends.tensorflow import backend
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import Executor

D = ir.DataType
RNG = np.random.default_rng(0)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _model(inputs, write):
    op = Builder()
    values = [op.input(f"x{i}", D.from_numpy(x.dtype), [None] * x.ndim) for i, x in enumerate(inputs)]
    results = write(op, *values)
    return op.model(values, [op.output(y, f"y{i}") for i, y in enumerate(results if isinstance(results, tuple) else (results,))])


def _same(inputs, write, **tolerance):
    model = _model(inputs, write)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    found = backend.runner(backend.from_hub(model))(feeds)
    for got, want in zip(found.values(), Executor(ir.to_proto(model)).run(None, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


@pytest.mark.parametrize("heads", [2, 4])
def test_flex_attention(heads):
    inputs = f(2, 4, 3, 8), f(2, heads, 5, 8), f(2, heads, 5, 6)
    domain = "ai.onnx.preview"
    _same(inputs, lambda op, q, k, v: op.call("FlexAttention", q, k, v, domain=domain))

    def modified(op, q, k, v):
        inputs = [("scores", ir.TypeAndShape(ir.TensorType(D.FLOAT), ir.Shape([None] * 4)), {})]
        bodies = {
            "score_mod": op.body("score_mod", lambda scores: [op.Tanh(scores)], inputs),
            "prob_mod": op.body("prob_mod", lambda weights: [op.Mul(weights, np.float32(2))], inputs),
        }
        return op.call("FlexAttention", q, k, v, domain=domain, scale=0.3, **bodies)

    _same(inputs, modified)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_softmax_of_rows_with_nan(dtype):
    x = f(3, 13).astype(dtype)
    x[1, 2] = np.nan
    tolerance = {"rtol": 4 * float(np.finfo(dtype).eps)} if dtype == np.float16 else {}
    _same((x[0],), lambda op, x: op.Softmax(x, axis=0), **tolerance)  # a vector is no Keras layer
    _same((x[1],), lambda op, x: op.Softmax(x, axis=0), **tolerance)


def test_squeeze_of_sizes_that_are_known_at_run_time_only():
    for shape in ((1, 3, 1), (2, 1), (4,)):
        _same((f(*shape),), lambda op, x: op.Squeeze(x))


@pytest.mark.parametrize("axes", [[0, 2], [2, 0], [-1, -3], [-3, -1], [0, -1], [-1, 1]])
def test_axes_of_a_value_whose_rank_is_unknown(axes):
    def write(op, x):
        squeezed = op.Squeeze(x)
        first, second = op.Split(squeezed, num_outputs=2, axis=0, outputs=2)
        known = op.Reshape(x, [4, 3])
        return op.Unsqueeze(known, axes), first, second, op.Unsqueeze(first, axes) if min(axes) >= 0 or max(axes) < 0 else first

    _same((f(4, 1, 3),), write)


@pytest.mark.parametrize("pixel_format", ["RGB", "BGR", "Grayscale"])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP"])
def test_images(kind, pixel_format):
    file = io.BytesIO()
    Image.fromarray(RNG.integers(0, 256, (6, 5, 3), np.uint8)).save(file, kind, **({"lossless": True} if kind == "WEBP" else {}))
    contents = np.frombuffer(file.getvalue(), np.uint8)
    _same((contents,), lambda op, x: op.ImageDecoder(x, pixel_format=pixel_format), rtol=0, atol=0)


def test_gradient():
    text = """
    <ir_version: 10, opset_import: ["" : 20, "ai.onnx.preview.training" : 1]>
    g (float[3] a, float[3] b) => (float[3] c, float[3] da, float[3] db) {
        d = Add (a, b)
        c = Mul (d, a)
        da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y: string = "c"> (a, b)
    }"""
    model = onnxbridge.convert(onnx.parser.parse_model(text), to="tensorflow", verify=False).model
    a, b = f(3), f(3)
    for got, want in zip(model(a, b), ((a + b) * a, 2 * a + b, a), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_nan_among_scattered_elements(reduction):
    data, updates = f(3, 4), f(4, 4)
    data[0, 0] = updates[1, 2] = np.nan
    indices = np.int64([[0], [2], [2], [0]])
    _same((data, updates), lambda op, x, u: op.ScatterND(x, indices, u, reduction=reduction))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.int64, np.uint64, np.float16])
def test_scattered_elements_of_every_type(dtype, reduction):
    data, updates = (RNG.integers(0, 9, (3, 4)).astype(dtype) for _ in range(2))
    indices = np.int64([[0, 2, 1, 0], [2, 1, 1, 0], [1, 0, 0, 2]]) if reduction != "none" else np.argsort(f(3, 4), 0)
    _same((data, updates), lambda op, x, u: op.ScatterElements(x, indices, u, reduction=reduction))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_einsum_of_integers(dtype):
    a, b = (RNG.integers(0, 100, shape).astype(dtype) for shape in ((2, 3), (3, 4)))
    _same((a, b), lambda op, a, b: op.Einsum(a, b, equation="ij, jk -> ik"), rtol=0, atol=0)


@pytest.mark.parametrize("start", [-(1 << 62), -3, 1, 1 << 62])
@pytest.mark.parametrize("end", [-(1 << 62), -9, 0, 1 << 62])
@pytest.mark.parametrize("step", [-2, -1, 1])
def test_slices_that_begin_before_the_first_element(start, end, step):
    bounds = [np.int64([v]) for v in (start, end, -1, step)]
    x = f(2, 2)
    _same((x,), lambda op, x: op.Slice(x, *bounds))
    _same((x, *bounds), lambda op, x, *bounds: op.Slice(x, *bounds))
    _same((x, bounds[0]), lambda op, x, start: op.Slice(x, op.Reshape(start, [1]), *bounds[1:]))


def test_blocks_of_booleans():
    x = RNG.integers(0, 2, (1, 8, 4)).astype(bool)
    _same((x,), lambda op, x: op.Col2Im(x, np.int64([3, 3]), np.int64([2, 2])))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_resized_integers(dtype, mode):
    x = RNG.integers(0, 8, (1, 2, 5, 4)).astype(dtype)
    _same((x,), lambda op, x: op.Resize(x, None, np.float32([1, 1, 2, 1.5]), mode=mode, cubic_coeff_a=-1.0), rtol=0, atol=0)


def test_batch_normalization_with_scales_of_lower_precision():
    x, scale, bias, mean, variance = f(2, 3, 4), f(3), f(3), f(3), f(3) ** 2
    half = [v.astype(np.float16) for v in (scale, bias)]
    _same((x, *half, mean, variance), lambda op, *values: op.BatchNormalization(*values))


def test_attention_of_mixed_types():
    q, k, v, mask = f(1, 2, 3, 8), f(1, 1, 4, 8), f(1, 1, 4, 8), f(3, 4)
    for types in ([np.float16, np.float16, np.float32, np.float32], [np.float32, np.float32, np.float16, np.float16]):
        inputs = [x.astype(t) for x, t in zip((q, k, v, mask), types, strict=True)]
        tolerance = 2e-3 if types[0] == np.float16 else 1e-5
        _same(inputs, lambda op, *values: op.Attention(*values, softcap=3.0), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_causal", [0, 1])
def test_attention_with_a_mask_of_integers(is_causal):
    q, k, v, past_k, past_v = f(1, 1, 2, 8), f(1, 1, 4, 8), f(1, 1, 4, 8), f(1, 1, 2, 8), f(1, 1, 2, 8)
    mask = RNG.integers(-3, 3, (1, 1, 2, 6)).astype(np.int16)
    _same((q, k, v, mask, past_k, past_v), lambda op, *values: op.call("Attention", *values, is_causal=is_causal, outputs=3))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_with_an_empty_end(auto_pad):
    kernel = f(2, 2, 2, 1)
    _same((f(1, 2, 3, 3),), lambda op, x: op.ConvTranspose(x, kernel, auto_pad=auto_pad, strides=[1, 2], dilations=[1, 2]))


def test_one_hot_of_a_scalar():
    _same((np.array(2), f(2)), lambda op, i, values: op.OneHot(i, np.int64(4), values))


def test_strings_of_booleans_cropped_and_padded():
    def write(op, x):
        strings = op.Cast(x, to=D.STRING)
        return op.CenterCropPad(strings, np.int64([3, 1])), op.Pad(strings, np.int64([0, 0, 1, 0]))

    x = np.array([[True, False, True]])
    model = _model((x,), write)
    found = backend.runner(backend.from_hub(model))({"x0": x})
    expected = [[""], ["False"], [""]], [["True", "False", "True"], ["", "", ""]]
    for got, own, want in zip(found.values(), Executor(ir.to_proto(model)).run(None, {"x0": x}), expected, strict=True):
        assert got.tolist() == own.tolist() == want


def _verified(graph):
    text = f'<ir_version: 10, opset_import: ["" : 20]> {graph}'
    return onnxbridge.convert(onnx.parser.parse_model(text), to="tensorflow")


def test_operators_whose_inputs_are_all_constants():
    """They are not folded: the constants are weights, and Keras has no symbolic tensors for them."""
    result = _verified("""
        g (float[2,4] x) => (float[2,2] y, double[2] z) <double[2] w = {1.5, -0.5}, float[4,2] v = {1, 2, 3, 4, 5, 6, 7, 8}>
        { u = Exp (v) t = Softmax (u) y = MatMul (x, t) z = Exp (w) }""")
    assert result.report.agrees and type(result.model).__name__ != "HubModule"


def test_unpooling_of_windows_that_overlap():
    """The same maximum comes back from several windows, and stands once in the result."""
    result = _verified("""
        g (float[1,2,5,5] x) => (float[1,2,5,5] y)
        { p, i = MaxPool <kernel_shape = [3, 3], strides = [1, 1]> (x) y = MaxUnpool <kernel_shape = [3, 3]> (p, i) }""")
    assert result.report.verdict == "PASSED"


@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_pools_in_three_dimensions(dtype, pool):
    call = f"{pool} <kernel_shape = [2, 1, 2], strides = [1, 2, 1]>"
    assert _verified(f"g ({dtype}[1,4,5,5,7] x) => ({dtype}[1,4,4,3,6] y) {{ y = {call} (x) }}").report.agrees


@pytest.mark.parametrize("kind", ["ReduceMax <keepdims = 0>", "ReduceMin <keepdims = 0>"])
def test_maxima_of_empty_tensors(kind):
    assert _verified(f"g (float[3,0,1] x) => (float[1] y) <int64[2] axes = {{0, 1}}> {{ y = {kind} (x, axes) }}").report.agrees


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("a, b, n, t", [
    ("N,3", "N,1", 3, 1), ("N,1", "N,3", 3, 1), ("N,T", "N,1", 4, 4), ("N,T,4", "T,1", 2, 4), ("N,T,1", "4", 2, 4),
    ("N,T,5", "N,1,1", 5, 2), ("N,6,T", "6,1", 2, 6), ("N,6,T", "6,T", 1, 1), ("1,2", "0,2", 1, 1), ("N,T", "T", 3, 3),
    ("N,2,T,T", "N,1,1,T", 2, 1),
])  # fmt: skip
def test_sums_broadcast_as_in_onnx_where_dynamic_sizes_happen_to_be_equal(a, b, n, t, named):
    """Keras's `add` takes an operand with one long axis for a bias."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[{a}] a, float[{b}] b) => (float y) {{ y = Add(a, b) }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for dim in (d for v in model.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param and not named):
        dim.Clear()
    net = onnxbridge.convert(model, "tensorflow", verify=False).model
    sizes, rng = {"N": n, "T": t}, np.random.default_rng(0)
    shapes = ([sizes[d] if d in sizes else int(d) for d in s.split(",")] for s in (a, b))
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    np.testing.assert_array_equal(np.asarray(net(x, y)), x + y)
