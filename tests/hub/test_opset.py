"""Opset conversion, judged by ONNX Runtime: a model and its converted form give the same numbers, or the conversion refuses."""

import itertools
import warnings

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.errors import ConversionError, LossyStep, UsageError
from onnxbridge.hub import io, opset
from onnxbridge.hub.adapters import down, up, versions
from onnxbridge.rules import Rule

onnxruntime.set_default_logger_severity(4)


def model_of(version, text, ir_version=8, extra=""):
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {version}{extra}]> {text}')


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=["Pad_Fusion"])
    return session.run(None, feeds)


def feeds_of(model, seed=0):
    """Seeded numbers for every input that has no initializer; unknown sizes are 4."""
    rng = np.random.default_rng(seed)
    given = {t.name for t in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in given:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value or 4 for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        numbers = rng.standard_normal(shape) * 2 if dtype.kind == "f" else rng.integers(-3, 4, shape)
        feeds[value.name] = np.asarray(numbers > 0 if dtype.kind == "b" else numbers).astype(dtype)
    return feeds


def same(old, new, feeds=None, rtol=0.0, expected=None):
    """Both models give the same numbers: exactly, where the operators compute in the same order."""
    onnx.checker.check_model(new, full_check=True)
    assert [v.name for v in new.graph.output] == [v.name for v in old.graph.output]
    feeds = feeds or feeds_of(old)
    for want, got in zip(expected or run(old, feeds), run(new, feeds), strict=True):
        assert np.asarray(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


# Two roundings of float32 between formulas that are equal in exact numbers.
ROUNDING = 2e-6

UP = {
    "softmax": (9, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", 0),
    "softmax last": (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=-1>(x) }", 0),
    "log_softmax dynamic": (11, "g (float[n,3,4] x) => (float[n,3,4] y) { y = LogSoftmax<axis=2>(x) }", 0),
    "hardmax": (11, "g (float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis=0>(x) }", 0),
    "reduce": (11, "g (float[2,3,4] x) => (float[2,4] y) { y = ReduceMean<axes=[1], keepdims=0>(x) }", 0),
    "reduce all": (11, "g (float[2,3] x) => (float[1,1] y) { y = ReduceSum(x) }", 0),
    "squeeze": (11, "g (float[2,1,4] x) => (float[2,4,1] y) { s = Squeeze<axes=[1]>(x)  y = Unsqueeze<axes=[2]>(s) }", 0),
    "clip": (6, "g (float[9] x) => (float[9] y) { y = Clip<min=-0.5, max=1.5>(x) }", 0),
    "clip one side": (10, "g (float[9] x) => (float[9] y) { y = Clip<min=0.0>(x) }", 0),
    "pad": (10, "g (float[2,3] x) => (float[4,5] y) { y = Pad<pads=[1,0,1,2], value=3.0>(x) }", 0),
    "pad reflect": (10, 'g (float[2,3] x) => (float[2,6] y) { y = Pad<pads=[0,2,0,1], mode="reflect">(x) }', 0),
    "slice": (9, "g (float[4,5] x) => (float[2,5] y) { y = Slice<starts=[1], ends=[3], axes=[0]>(x) }", 0),
    "top_k": (9, "g (float[3,5] x) => (float[3,2] v, int64[3,2] i) { v, i = TopK<k=2>(x) }", 0),
    "split": (11, "g (float[2,5] x) => (float[2,2] a, float[2,3] b) { a, b = Split<axis=1, split=[2,3]>(x) }", 0),
    "split equally": (11, "g (float[2,6] x) => (float[2,3] a, float[2,3] b) { a, b = Split<axis=1>(x) }", 0),
    "split 13": (13, "g (float[2,6] x) => (float[2,3] a, float[2,3] b) { a, b = Split<axis=1>(x) }", 0),
    "dropout with a mask that nothing reads": (9, "g (float[2,6] x) => (float[2,6] y) { y, m = Dropout<ratio=0.3>(x) }", 0),
    "dropout": (10, "g (float[2,6] x) => (float[2,6] y) { y = Dropout<ratio=0.3>(x) }", 0),
    "upsample": (9, "g (float[1,1,2,3] x) => (float[1,1,4,9] y) <float[4] s = {1,1,2,3}> { y = Upsample(x, s) }", 0),
    "upsample 7": (7, 'g (float[1,1,2,3] x) => (float[1,1,4,6] y) '
        '{ y = Upsample<mode="linear", scales=[1.0,1.0,2.0,2.0]>(x) }', 0),
    "resize 10": (10, "g (float[1,1,4,4] x) => (float[1,1,3,6] y) <float[4] s = {1,1,0.75,1.5}> { y = Resize(x, s) }", 0),
    "resize 11": (
        11,
        'g (float[1,1,4,4] x) => (float[1,1,8,8] y) '
            '<float[0] e = {}, int64[4] z = {1,1,8,8}> { y = Resize<mode="cubic">(x, e, e, z) }',
        0,
    ),
    "scatter": (9, "g (float[3,3] x, float[1,2] u) => (float[3,3] y) <int64[1,2] i = {1,2}> { y = Scatter<axis=1>(x, i, u) }", 0),
    "grid_sample": (
        16, 'g (float[1,1,4,4] x, float[1,2,2,2] g) => (float[1,1,2,2] y) { y = GridSample<mode="bicubic">(x, g) }', 0,
    ),
    "roi_align": (
        10,
        """g (float[1,1,8,8] x) => (float[1,1,2,2] y) <float[1,4] r = {1,1,5,6}, int64[1] b = {0}>
           { y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, b) }""",
        0, 21,  # ONNX Runtime has no kernel for RoiAlign-22
    ),
    "batch_norm": (
        7,
        """g (float[2,3,4] x) => (float[2,3,4] y)
           <float[3] s = {1,2,3}, float[3] b = {0,1,2}, float[3] m = {0,1,0}, float[3] v = {1,2,3}>
           { y = BatchNormalization<epsilon=0.01>(x, s, b, m, v) }""",
        0,
    ),
    "gru": (
        7,
        """g (float[3,2,4] x, float[1,6,4] w, float[1,6,2] r) => (float[3,1,2,2] y, float[1,2,2] h)
           { y, h = GRU<hidden_size=2>(x, w, r) }""",
        0,
    ),
    "max_pool": (8, "g (float[1,1,5,5] x) => (float[1,1,2,2] y) { y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }", 0),
    "dft": (17, "g (float[1,8,3,2] x) => (float[1,8,3,2] y) { y = DFT<axis=1>(x) }", 0),
    "constant": (9, "g (float[2] x) => (float[2] y) { c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }", 0),
}  # fmt: skip


@pytest.mark.parametrize("case", UP)
def test_old_models_give_the_same_numbers_at_the_hubs_opset(case):
    version, text, rtol, *target = UP[case]
    target = target[0] if target else opset.OPSET
    old = model_of(version, text)
    new = onnxbridge.opset.convert(old, to=target)
    assert new.opset_import[0].version == target and old.opset_import[0].version == version
    same(old, new, rtol=rtol)


@pytest.mark.parametrize("case", UP)
def test_what_went_up_comes_down_again(case):
    version, text, rtol, *_ = UP[case]
    old = model_of(version, text)
    back = onnxbridge.opset.convert(onnxbridge.opset.convert(old, to=opset.OPSET), to=max(version, 7))
    assert back.opset_import[0].version == max(version, 7)
    same(old, back, rtol=rtol)


X = np.random.default_rng(7).standard_normal((2, 3, 4)).astype(np.float32)
V3 = np.array([1.0, 2.0, 3.0], np.float32)
# Older than ONNX Runtime's operators: judged by what the old documentation says, computed here.
ANCIENT = {
    "add from an axis": (6, "y = Add<broadcast=1, axis=1>(x, v)", X + V3[:, None]),
    "add from the right": (6, "y = Mul<broadcast=1>(x, w)", X * np.arange(4, dtype=np.float32)),
    "prelu by channel": (6, "y = PRelu(x, v)", np.where(X < 0, X * V3[:, None], X)),
    "reshape": (4, "y = Reshape<shape=[3,-1]>(x)", X.reshape(3, 8)),
    "cast": (5, 'y = Cast<to="INT32">(x)', X.astype(np.int32)),
    "concat": (3, "y = Concat(x, x)", np.concatenate([X, X], 1)),
    "pad": (1, "y = Pad<paddings=[0,0,1,0,0,0], value=2.0>(x)", np.pad(X, ((0, 0), (0, 0), (1, 0)), constant_values=2)),
    "tile": (1, "y = Tile(x, tiles, axis)", np.tile(X, (1, 2, 1))),
    "selu": (1, "y = Selu(x)", (1.0507 * np.where(X > 0, X, 1.6732 * (np.exp(X) - 1))).astype(np.float32)),
    "in place": (1, "y = Relu<consumed_inputs=[0]>(x)", np.maximum(X, 0)),
    "gemm": (6, "f = Flatten(x)  y = Gemm<broadcast=1>(f, m, b)", X.reshape(2, 12) @ np.ones((12, 2), np.float32) + V3[:2]),
    "element-wise norm": (
        7, "y = BatchNormalization<spatial=0, epsilon=0.5>(x, s, s, s, s)", (X - 2) / np.sqrt(np.float32(2.5)) * 2 + 2,
    ),
    "upsample": (1, "u = Unsqueeze<axes=[0]>(x)  y = Upsample<height_scale=2.0, width_scale=1.0>(u)", np.repeat(X[None], 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("case", ANCIENT)
def test_models_older_than_the_runtime_compute_what_their_documentation_says(case):
    version, body, expected = ANCIENT[case]
    kind = "int32" if expected.dtype == np.int32 else "float"
    shape = ",".join(map(str, expected.shape))
    old = model_of(version, f"g (float[2,3,4] x) => ({kind}[{shape}] y) {{ {body} }}", ir_version=3)
    tensors = {
        "v": V3, "w": np.arange(4, dtype=np.float32), "m": np.ones((12, 2), np.float32), "b": V3[:2],
        "tiles": np.array(2, np.float32), "axis": np.array(1, np.float32), "s": np.full((3, 4), 2, np.float32),
    }  # fmt: skip
    used = {name for node in old.graph.node for name in node.input}
    for name in sorted(used & set(tensors)):  # IR version 3: every initializer is an input too
        old.graph.initializer.append(numpy_helper.from_array(tensors[name], name))
        old.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, tensors[name].shape))
    new = onnxbridge.opset.convert(old, to=opset.OPSET)
    onnx.checker.check_model(new, full_check=True)
    [got] = run(new, {"x": X})
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=ROUNDING, atol=ROUNDING)


DOWN = {
    "reduce": ([18, 17, 12, 10, 7], "g (float[2,3] x) => (float[2,1] y) <int64[1] a = {-1}> { y = ReduceMax(x, a) }", 0),
    "reduce nothing": ([17, 9], "g (float[2,3] x) => (float[2,3] y) { y = ReduceSum<noop_with_empty_axes=1>(x) }", 0),
    "softmax": ([12, 7], "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=1>(x) }", 0),
    "clip": ([11, 10, 7], "g (float[5] x) => (float[5] y) <float a = {-0.5}> { y = Clip(x, a) }", 0),
    "pad axes": (
        [18, 17, 10], "g (float[2,3] x) => (float[2,6] y) "
            "<int64[2] p = {1,2}, float v = {9}, int64[1] a = {-1}> { y = Pad(x, p, v, a) }", 0,
    ),
    "slice": ([12, 9], "g (float[4,5] x) => (float[2,5] y) "
        "<int64[1] s={1}, int64[1] e={3}, int64[1] a={0}> { y = Slice(x,s,e,a) }", 0),
    "split unevenly": ([17, 12, 9], "g (float[5] x) => (float[3] a, float[2] b) { a, b = Split<num_outputs=2>(x) }", 0),
    "split dynamic": ([17, 13], "g (float[n] x) => (float[2] a, float[2] b) { a, b = Split<num_outputs=2>(x) }", 0),
    "top_k": ([10, 9], "g (float[3,5] x) => (float[3,2] v, int64[3,2] i) <int64[1] k = {2}> { v, i = TopK(x, k) }", 0),
    "top_k smallest": ([10], "g (float[3,5] x) => (float[3,2] v, int64[3,2] i) "
        "<int64[1] k={2}> { v, i = TopK<largest=0>(x, k) }", 0),
    "arg_max last": ([11], "g (float[3,5] x) => (int64[3,1] y) { r = Round(x) y = ArgMax<axis=1, select_last_index=1>(r) }", 0),
    "shape part": ([14, 10], "g (float[2,3,4] x) => (int64[2] y) { y = Shape<start=-2>(x) }", 0),
    "gemm": ([10, 7], "g (float[2,3] x, float[3,2] w) => (float[2,2] y) { y = Gemm(x, w) }", 0),
    "max_pool ceil": (
        [21, 9], "g (float[1,1,6,6] x) => (float[1,1,3,3] y) "
            "{ y = MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }", 0,
    ),
    "average_pool ceil": (
        [21, 9], "g (float[1,1,6,6] x) => (float[1,1,3,3] y) "
            "{ y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>(x) }",
        ROUNDING,
    ),
    "resize axes": (
        [17, 12],
        'g (float[1,2,3,4] x) => (float[1,2,6,8] y) <float[2] s = {2,2}> { y = Resize<axes=[2,3], mode="linear">(x, , s) }',
        0,
    ),
    "resize nearest": ([10, 9], "g (float[1,1,3,4] x) => (float[1,1,6,8] y) <float[4] s={1,1,2,2}> { y = Resize(x, , s) }", 0),
    "group_norm": (
        [20, 18, 17],
        """g (float[2,4,3] x) => (float[2,4,3] y) <float[4] s = {1,2,3,4}, float[4] b = {0,1,2,3}>
           { y = GroupNormalization<num_groups=2>(x, s, b) }""",
        ROUNDING,
    ),
    "layer_norm": (
        [16, 13, 11], "g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}> { y = LayerNormalization(x, s) }", ROUNDING,
    ),
    "rms_norm": ([22, 17, 13], "g (float[2,4] x) => (float[2,4] y) "
        "<float[4] s = {1,2,3,4}> { y = RMSNormalization(x, s) }", ROUNDING),
    "gelu": ([19, 13, 9], "g (float[9] x) => (float[9] y) { y = Gelu(x) }", ROUNDING),
    "trilu": ([13, 11], "g (float[3,4] x) => (float[3,4] y) <int64 k = {1}> { y = Trilu(x, k) }", 0),
    "cast_like": ([14, 9], "g (float[3] x) => (double[3] y) <double t = {1}> { y = CastLike(x, t) }", 0),
    "integers": ([12, 8], "g (int32[4] x, int32[4] z) => (int32[4] y) { m = Max(x, z) y = Neg(m) }", 0),
    "uint8 movement": ([12], "g (uint8[4] x, uint8[4] z) => (bool[4] e, uint8[4] m) { e = Less(x, z) m = Max(x, z) }", 0),
    "sum": ([7], "g (float[3] x, float[2,3] z) => (float[2,3] y) { y = Sum(x, z, x) }", 0),
    "constants": ([11, 9], "g (float[2] x) => (float[2] y) { c = Constant<value_floats=[1.0,2.0]>() y = Add(x, c) }", 0),
    "sinh": ([8, 7], "g (float[9] x) => (float[9] y) { y = Asinh(x) }", ROUNDING),
    "is_nan": ([8], "g (float[9] x) => (bool[9] y) { s = Sqrt(x) y = IsNaN(s) }", 0),
    "mod": ([9], "g (int64[9] x) => (int64[9] y) <int64 m = {-2}> { y = Mod(x, m) }", 0),
    "dft": ([19, 17], "g (float[1,8,2] x) => (float[1,8,2] y) <int64 a = {-2}> { y = DFT(x, , a) }", 0),
    "dropout": ([11, 7], "g (float[5] x) => (float[5] y) <float r = {0.5}> { y = Dropout(x, r) }", 0),
    "quantize": ([12, 10], "g (float[5] x) => (uint8[5] y) "
        "<float s = {0.1}, uint8 z = {100}> { y = QuantizeLinear(x, s, z) }", 0),
}  # fmt: skip


@pytest.mark.parametrize(("case", "target"), [(c, t) for c in DOWN for t in DOWN[c][0]])
def test_new_models_give_the_same_numbers_at_older_opsets(case, target):
    _, text, rtol = DOWN[case]
    new = model_of(23 if case == "quantize" else opset.OPSET, text, ir_version=10)
    old = onnxbridge.opset.convert(new, to=target)
    assert old.opset_import[0].version == target
    same(new, old, rtol=rtol)


def test_nan_and_infinity_go_through_a_decomposition_as_through_the_operator():
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    for text in ("g (float[5] x) => (bool[5] y) { y = IsNaN(x) }", "g (float[5] x) => (float[5] y) { y = Asinh(x) }"):
        new = model_of(20, text)
        same(new, onnxbridge.opset.convert(new, to=8), {"x": special}, rtol=ROUNDING)


@pytest.mark.parametrize(
    ("version", "target", "text", "why"),
    [
        (26, 12, "g (float[2,3] x, int64[1] a) => (float[m,k,l] y) { y = Unsqueeze(x, a) }", "'axes' must be known"),
        (26, 9, "g (float[4] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }", "'K' must be known"),
        (26, 12, "g (float[4] x, int64[1] a) => (float y) { y = ReduceSum<keepdims=0>(x, a) }", "'axes' must be known"),
        (26, 9, "g (int64[n] x) => (int64[2] y, int64[2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }", "of the axis must"),
        (26, 12, "g (float[2,2] x) => (float[2,2] y) { y = NoSuchThing(x) }", "no such operator"),
        (6, 26, "g (float[2,3] x, float[3] s) => (float[2,3] y) { y = BatchNormalization(x, s, s, s, s) }", "training mode"),
        (9, 26, "g (float[2,3] x, int64[a] s) => (float[2,3] y) { y = Upsample(x, s) }", None),
    ],
)
def test_what_cannot_be_held_is_refused_with_operator_version_and_reason(version, target, text, why):
    try:
        model = onnxbridge.opset.convert(model_of(version, text, ir_version=10), to=target)
    except ConversionError as error:
        assert f"opset {version} to opset {target}" in str(error)
        assert why is None or why in str(error)
    else:
        assert why is None and model.opset_import[0].version == target


def test_one_refusal_names_every_node_in_the_way():
    model = model_of(
        26,
        """g (float[2,2] x, int64[1] k) => (float[n] y)
           { a, i = TopK<axis=0>(x, k)  b, j = TopK<axis=0>(a, k)  c = Unique(b)  y = Relu(c) }""",
    )
    with pytest.raises(ConversionError) as caught:
        onnxbridge.opset.convert(model, to=9)
    assert {(p.op, len(p.places)) for p in caught.value.problems} == {("TopK", 2), ("Unique", 1)}
    assert all("opset" in p.reason for p in caught.value.problems)


def test_graphs_inside_nodes_and_functions_are_converted_too():
    text = """g (bool p, float[2,3] x) => (float[2,3] y)
    {
       t = If(p) <
         then_branch = a () => (float[2,3] u) { s = ReduceSum<axes=[1]>(x)  u = Add(s, x) },
         else_branch = b () => (float[2,3] v) { v = Softmax(x) } >
       y = own.twice(t)
    }
    <domain: "own", opset_import: ["" : 11]> twice (q) => (r) { m = ReduceMean<axes=[0]>(q)  r = Add(m, q) }"""
    old = model_of(11, text, extra=', "own" : 1')
    for target in (26, 18, 13):
        new = onnxbridge.opset.convert(old, to=target)
        assert new.functions[0].opset_import[0].version == target
        for p in (True, False):
            same(old, new, feeds_of(old) | {"p": np.array(p)})
    back = onnxbridge.opset.convert(onnxbridge.opset.convert(old, to=26), to=11)
    same(old, back, feeds_of(old))


def test_a_loops_body_is_converted():
    text = """g (float[3] x) => (float[3] y) <int64 n = {3}, bool c = {1}>
    { y = Loop(n, c, x) <body = b (int64 i, bool k, float[3] s) => (bool k2, float[3] o)
        { k2 = Identity(k)  e = Unsqueeze<axes=[0]>(s)  q = Squeeze<axes=[0]>(e)  o = Add(q, x) }> }"""
    old = model_of(11, text)
    same(old, onnxbridge.opset.convert(old, to=26))


def test_names_types_and_metadata_of_what_is_kept():
    old = model_of(11, "g (float[n,3] x) => (float[n,1] y) { h = Softmax(x)  y = ReduceMax<axes=[1]>(h) }")
    old.graph.node[0].name = "layer/softmax"
    old.graph.node[0].metadata_props.add(key="onnxbridge.source", value="net.py:3")
    old.metadata_props.add(key="author", value="me")
    old.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 3]))
    new = onnxbridge.opset.convert(old, to=26)
    writer = next(n for n in new.graph.node if "h" in n.output)
    assert writer.name == "layer/softmax" and writer.metadata_props[0].value == "net.py:3"
    assert {v.name: v.type.tensor_type.shape.dim[0].dim_param for v in new.graph.value_info}["h"] == "n"
    assert new.metadata_props[0].value == "me"
    assert new.graph.name == old.graph.name


def test_new_names_never_meet_old_ones():
    old = model_of(11, "g (float[2,3,4] x) => (float[2,3,4] y) { s = Softmax(x)  t = Relu(s) y = Softmax(t) }")
    old.graph.node[1].output[0] = old.graph.node[2].input[0] = "s/Flatten"
    same(old, onnxbridge.opset.convert(old, to=26))


def test_hub_models_and_messages_are_left_as_they_were():
    old = model_of(11, "g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }")
    before = old.SerializeToString()
    hub = io.from_proto(old)
    new = onnxbridge.opset.convert(hub, to=26)
    assert isinstance(new, ir.Model) and new is not hub
    assert io.to_proto(hub).opset_import[0].version == 11 and new.opset_imports[""] == 26
    onnxbridge.opset.convert(old, to=13)
    assert old.SerializeToString() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }", 18),
        ("g (float[2,3] x) => (float[2,3] y) { y = Gelu(x) }", 20),
        ('g (float[4] x) => (float[6] y) <int64[2] p = {1,1}> { y = Pad<mode="wrap">(x, p) }', 19),
        ('g (float[4] x) => (float[6] y) <int64[2] p = {1,1}> { y = Pad<mode="edge">(x, p) }', 18),
        ("g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}> { y = RMSNormalization(x, s) }", 23),
        ("g (float[1,2,3] x, float[2] s) => (float[1,2,3] y) { y = GroupNormalization<num_groups=2>(x, s, s) }", 21),
        ("g (bfloat16[2] x) => (bfloat16[2] y) { y = Sin(x) }", 22),
        ("g (float[1,1,4] x) => (float[1,1,2] y) { y = MaxPool<kernel_shape=[2], strides=[2]>(x) }", 18),
        ("g (float[1,1,5] x) => (float[1,1,3] y) { y = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x) }", 22),
        ("g (float[2] x) => (int32[2] y) { y = Cast<to=6, saturate=1>(x) }", 18),
    ],
)
def test_the_lowest_opset_that_holds_a_model(text, expected):
    model = io.from_proto(model_of(26, text, ir_version=10))
    assert opset.lowest(model) == expected
    written = io.to_proto(opset.from_hub(model, expected))
    onnx.checker.check_model(written, full_check=True)


def test_opsets_that_do_not_exist_are_a_usage_error():
    model = model_of(11, "g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for wrong in (0, 99):
        with pytest.raises(UsageError, match="no opset"):
            onnxbridge.opset.convert(model, to=wrong)
    model.opset_import[0].version = 99
    with pytest.raises(UsageError, match="update onnxbridge"):
        onnxbridge.opset.convert(model, to=26)


def test_an_input_with_a_default_is_not_taken_for_a_constant():
    model = model_of(26, "g (float[4] x, float m) => (float[4] y) { y = Clip(x, m) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "m"))
    new = onnxbridge.opset.convert(model, to=9)
    for bound in (0.5, -0.5):
        same(model, new, feeds_of(model) | {"m": np.array(bound, np.float32)})
    model = model_of(26, "g (float[4] x, int64[1] k) => (float[n] y, int64[n] i) { y, i = TopK(x, k) }")
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "k"))
    with pytest.raises(ConversionError, match="'K' must be known"):
        onnxbridge.opset.convert(model, to=9)


def test_a_batch_first_lstm_is_transposed():
    """ONNX Runtime has no layout=1, so the same numbers are fed to the other layout."""
    head = "float[1,8,4] w, float[1,8,2] r"
    new = model_of(
        26,
        f"""g (float[2,3,4] x, {head}, float[2,1,2] h0, float[2,1,2] c0) => (float[2,3,1,2] y, float[2,1,2] c)
            {{ y, h, c = LSTM<hidden_size=2, layout=1>(x, w, r, , , h0, c0) }}""",
    )
    other = model_of(
        22,
        f"""g (float[3,2,4] x, {head}, float[1,2,2] h0, float[1,2,2] c0) => (float[3,1,2,2] y, float[1,2,2] c)
            {{ y, h, c = LSTM<hidden_size=2>(x, w, r, , , h0, c0) }}""",
    )
    feeds = feeds_of(new)
    swapped = {name: v.transpose(1, 0, 2) if name in ("x", "h0", "c0") else v for name, v in feeds.items()}
    y, c = run(other, swapped)
    for target in (13, 7):
        same(new, onnxbridge.opset.convert(new, to=target), feeds, expected=[y.transpose(2, 0, 1, 3), c.transpose(1, 0, 2)])


def rules():
    for direction, adapters in (("up", up), ("down", down)):
        for key in adapters:
            op, _, to = key.rpartition("@")
            yield pytest.param(direction, op, int(to), adapters.get(op, int(to)), id=f"{direction} {key}")


@pytest.mark.parametrize(("direction", "op", "to", "rule"), list(rules()))
def test_an_adapter_has_the_parameters_of_its_sources_schema(direction, op, to, rule: Rule):
    history = versions.history(op)
    assert to in history if direction == "up" else to + 1 in history
    source = history[max(v for v in history if v < to)] if direction == "up" else history[to + 1]
    inputs = [i.name for i in source.inputs]
    named = [p.name for p in rule.params if not p.keyword and not p.variadic]
    assert named == inputs[: len(named)]
    assert len(named) == len(inputs) or any(p.variadic for p in rule.params if not p.keyword)
    defaults = versions.defaults(op, source.since_version)
    for p in rule.params:
        if p.keyword and p.form != "outputs" and not rule.takes_any:
            assert p.name in source.attributes
            if p.name in defaults and isinstance(p.default, (int, str)):
                assert p.default == defaults[p.name]
    if direction == "down" and not rule.takes_any:
        keywords = {p.name for p in rule.params if p.keyword}
        assert set(source.attributes) - keywords <= {"seed", "stash_type", "momentum", "saturate", "round_mode"} | _refused(rule)


def _refused(rule):
    """Attributes that an adapter does not name are refused by the binding unless they say nothing: that is always safe."""
    return {"auto_pad", "storage_order", "reduction", "value", "sparse_value"}


def test_every_version_step_is_an_adapter_or_changes_nothing_upwards():
    """From any opset to the hub's: only what is listed has no way up."""
    without = set()
    for op in versions.names():
        steps = [v for v in versions.history(op) if v <= opset.OPSET]
        for a, b in itertools.pairwise(steps):
            if up.get(op, b) is None and versions.signature_change(op, a, b):
                without.add((op, b))
    assert not without


def test_scales_that_are_only_known_at_run_time():
    old = model_of(10, "g (float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, s) }")
    scales = np.array([1, 1, 0.75, 1.5], np.float32)
    same(old, onnxbridge.opset.convert(old, to=26), feeds_of(old) | {"s": scales})


def test_half_precision_that_a_version_lacks_is_computed_in_single_precision():
    model = model_of(22, "g (float[9] x) => (float[9] y) { h = Cast<to=16>(x)  s = Sin(h)  y = Cast<to=1>(s) }", ir_version=10)
    x = np.linspace(-3, 3, 9, dtype=np.float32)
    half = ir.DataType.BFLOAT16.numpy()
    expected = np.sin(x.astype(half).astype(np.float32)).astype(half).astype(np.float32)
    same(model, onnxbridge.opset.convert(model, to=13), {"x": x}, expected=[expected])


def test_a_batched_scan_becomes_two():
    text = """g (float[2,3] s, float[2,4,3] x) => (float[2,3] f, float[2,4,3] y)
    { f, y = Scan<num_scan_inputs=1, directions=[1], body = b (float[3] a, float[3] e) => (float[3] n, float[3] o)
        { n = Add(a, e)  o = Mul(n, e) }>( , s, x) }"""
    old = model_of(8, text)
    new = onnxbridge.opset.convert(old, to=26)
    rng = np.random.default_rng(0)
    s, x = rng.integers(-4, 5, (2, 3)).astype(np.float32), rng.integers(-4, 5, (2, 4, 3)).astype(np.float32)
    sums = s[:, None] + np.cumsum(x[:, ::-1], 1)
    same(old, new, {"s": s, "x": x}, expected=[s + x.sum(1), sums * x[:, ::-1]])


def test_a_definition_with_a_loop_is_written_out():
    text = """g (float[2] a, float[3] b, float[2] c, float[3] d) => (float[5] y)
    {
       p = SequenceConstruct(a, b)
       q = SequenceConstruct(c, d)
       r = SequenceMap(p, q) <body = f (float[n] u, float[n] v) => (float[n] w)
           { s = Add(u, v)  k = Constant<value_ints=[0]>()  z = ReduceMax<keepdims=0>(s, k)  w = Sub(s, z) }>
       y = ConcatFromSequence<axis=0>(r)
    }"""
    new = model_of(18, text)
    for target in (16, 13):
        same(new, onnxbridge.opset.convert(new, to=target))


def test_node_names_stay_one_of_a_kind():
    text = """g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}>
              { a = LayerNormalization(x, s)  b = LayerNormalization(a, s)  c = Gelu(b)  y = Softmax<axis=0>(c) }"""
    new = onnxbridge.opset.convert(model_of(20, text), to=11)
    names = [n.name for n in new.graph.node]
    assert all(names) and len(set(names)) == len(names)


def test_sizes_worked_out_of_constants_count_as_constants():
    """PyTorch's older exporter writes the paddings of a Pad as a chain of operators on constants."""
    text = """g (float[2,3] x) => (float[2,6] y) <int64[2] given = {1,2}, int64[1] shape = {2}>
    {
       zeros = ConstantOfShape<value = int64[1] {0}>(shape)
       both = Concat<axis=0>(given, zeros)
       minus = Constant<value = int64[1] {-1}>()
       first = Constant<value = int64[1] {0}>()
       least = Constant<value = int64[1] {-9223372036854775807}>()
       two = Constant<value = int64[2] {-1, 2}>()
       pairs = Reshape(both, two)
       back = Slice(pairs, minus, least, first, minus)
       turned = Transpose<perm=[1,0]>(back)
       pads = Reshape(turned, minus)
       y = Pad(x, pads)
    }"""
    model = model_of(13, text)
    for target in (10, 9):
        same(model, onnxbridge.opset.convert(model, to=target))


def test_a_lossy_step_is_refused_unless_it_is_allowed_and_then_told(cli, tmp_path, monkeypatch):
    model = model_of(13, "g (int64[2,2] x) => (int64[2,2] y) { y = MatMul(x, x) }")
    with pytest.raises(ConversionError, match="opset 1 takes no int64"):
        onnxbridge.opset.convert(model, to=8)
    with pytest.warns(LossyStep, match="MatMul of opset 13: int64 is computed as double"):
        new = onnxbridge.opset.convert(model, to=8, allow_lossy=True)
    same(model, new)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "m.onnx")
    assert cli("opset", "m.onnx", "--to", 8).code == 3
    ran = cli("opset", "m.onnx", "--to", 8, "--allow-lossy")
    assert ran.code == 0 and "lossy: MatMul of opset 13: int64 is computed as double" in ran.out


def test_what_is_exact_is_not_called_lossy():
    model = model_of(13, "g (int64[2,2] x) => (int64[2,2] y) { y = Mul(x, x) }")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LossyStep)
        same(model, onnxbridge.opset.convert(model, to=7, allow_lossy=True))


def test_domains_are_converted_by_name():
    text = 'g (string[3] x) => (int64[3] y) { y = ai.onnx.ml.LabelEncoder<keys_strings=["a","b"], values_int64s=[1,0]>(x) }'
    model = model_of(15, text, extra=', "ai.onnx.ml" : 2')
    new = onnxbridge.opset.convert(model, {"ai.onnx": 13, "ai.onnx.ml": 1})
    assert {i.domain: i.version for i in new.opset_import} == {"": 13, "ai.onnx.ml": 1}
    assert [a.name for a in new.graph.node[0].attribute][0] == "classes_strings"
    with pytest.raises(UsageError, match="com.microsoft"):
        onnxbridge.opset.convert(model, {"com.microsoft": 1})
    with pytest.raises(UsageError, match="no ai.onnx.ml 9"):
        onnxbridge.opset.convert(model, {"ai.onnx.ml": 9})
