"""Opset conversion: a model and its converted form give the same results in ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.hub.ir import opset_version
from tests.hub.opset.models import ROUNDING, model_of, run, same

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
def test_old_models_give_the_same_results_at_the_hub_opset(case):
    version, text, rtol, *target = UP[case]
    target = target[0] if target else opset_version.OPSET
    old = model_of(version, text)
    new = onnxbridge.opset.convert(old, to=target)
    assert new.opset_import[0].version == target and old.opset_import[0].version == version
    same(old, new, rtol=rtol)


@pytest.mark.parametrize("case", UP)
def test_upgraded_models_can_be_downgraded(case):
    version, text, rtol, *_ = UP[case]
    old = model_of(version, text)
    back = onnxbridge.opset.convert(onnxbridge.opset.convert(old, to=opset_version.OPSET), to=max(version, 7))
    assert back.opset_import[0].version == max(version, 7)
    same(old, back, rtol=rtol)


X = np.random.default_rng(7).standard_normal((2, 3, 4)).astype(np.float32)
V3 = np.array([1.0, 2.0, 3.0], np.float32)
# Older than ONNX Runtime's operators: judged by what the old documentation says, computed here.
OLDEST = {
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


@pytest.mark.parametrize("case", OLDEST)
def test_models_older_than_the_runtime_follow_their_documentation(case):
    version, body, expected = OLDEST[case]
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
    new = onnxbridge.opset.convert(old, to=opset_version.OPSET)
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
def test_new_models_give_the_same_results_at_older_opsets(case, target):
    _, text, rtol = DOWN[case]
    new = model_of(23 if case == "quantize" else opset_version.OPSET, text, ir_version=10)
    old = onnxbridge.opset.convert(new, to=target)
    assert old.opset_import[0].version == target
    same(new, old, rtol=rtol)


def test_decompositions_handle_nan_and_infinity_as_the_operator():
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    for text in ("g (float[5] x) => (bool[5] y) { y = IsNaN(x) }", "g (float[5] x) => (float[5] y) { y = Asinh(x) }"):
        new = model_of(20, text)
        same(new, onnxbridge.opset.convert(new, to=8), {"x": special}, rtol=ROUNDING)
