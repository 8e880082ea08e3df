"""Samples of MXNet operators, one call per line: name, inputs, attributes."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import arithmetic
from tests.frontends.mxnet.sample_list import SampleList, array
from tests.frontends.mxnet.samples_detection import detection


def samples():
    found = SampleList()
    s, f, p, a, r = found.add, found.floats, found.fractions, array, found.random

    def i(high, *shape):
        return r.randint(0, high, shape).astype(np.float32)

    x34, x234, img, seq, ints = f(3, 4), f(2, 3, 4), f(2, 4, 6, 6), f(5, 2, 3), a(-7, -2, 0, 3, 5, dtype=np.int32)
    ticks = a(-2.5, -1.5, -0.5, -0.2, 0, 0.5, 1.5, 2.5, 1e-4, -1e-4)

    # activation
    s("relu sigmoid softsign _npx_relu _npx_sigmoid hard_sigmoid softmax log_softmax softmin _npx_softmax _npx_log_softmax", x34)
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        s("Activation _npx_activation", x34, act_type=kind)
    for kind in ("leaky", "elu", "selu", "gelu"):
        s("LeakyReLU _npx_leaky_relu", x34, act_type=kind, slope=0.3)
    s("LeakyReLU", x34, act_type="rrelu")
    s("LeakyReLU", img, f(4), act_type="prelu", known=(1,))
    s("LeakyReLU", x34, f(1), act_type="prelu", known=(1,))
    s("LeakyReLU", x34, f(3, 1), act_type="prelu", known=(1,))
    s("LeakyReLU", img, f(2, 4), act_type="prelu", known=(1,))
    s("softmax log_softmax softmin", x234, axis=1, temperature=2.5)
    s("softmax", x234, axis=0, dtype="float64")
    s("softmax", x34, a(1, 4, 2, dtype=np.int32), axis=1, use_length=True)
    s("softmax", x234, np.array([[1, 2, 3, 1], [3, 3, 2, 1]], np.int32), axis=1, use_length=True)
    s("SoftmaxActivation", img)
    s("SoftmaxActivation", img, mode="channel")
    s("SoftmaxOutput", x34, i(4, 3))
    s("SoftmaxOutput", img, i(4, 2, 6, 6), multi_output=True)
    s("SoftmaxOutput", x234, i(4, 2, 3), preserve_shape=True)
    s("SoftmaxOutput", x234, i(4, 2, 3))
    s("SoftmaxOutput", img, i(4, 2, 4, 6))
    s("Softmax", x34, i(4, 3))
    s("softmax_cross_entropy", x34, i(4, 3))
    s("LogisticRegressionOutput LinearRegressionOutput MAERegressionOutput", x34, f(3, 4))
    s("SVMOutput", x34, i(4, 3))

    # arithmetic
    s("sign _contrib_sign_ste", x34)
    for op in (*arithmetic.EXACT, "square", "logical_not", "MakeLoss", "_contrib_gradientmultiplier"):
        s(op, x34)
    for op in (*arithmetic.FLOATING, "rsqrt", "cbrt", "rcbrt", "log2", "log10", "log1p", "expm1", "degrees", "radians"):
        s(op, p(3, 4) + (op == "arccosh"))
    s("rint round fix trunc floor ceil _contrib_round_ste expm1 sinh tanh cbrt", ticks)
    s("exp sqrt degrees round rint reciprocal", ints[3:])
    s("abs sign relu square negative logical_not", ints)
    s("negative _npi_negative", a(0, 1, 255, dtype=np.uint8))
    s("sigmoid _npx_sigmoid", a(-9, 0, 9, dtype=np.int32))
    s("rcbrt", a(0, -0.0, 8, -27))
    s("log1p", a(1e-6, -0.4, 0.49, 0.51, 30, 1e9, -1))
    s("expm1", a(1e-6, -0.4, 0.49, 0.51, 30, 100, -100))
    s("gamma gammaln _npx_gamma _npx_gammaln", a(-3.3, -1.5, -0.2, 0.1, 0.5, 1, 2.7, 5, 20))
    s("gamma", a(0, -0.0, -1, 6))
    s("gammaln", a(0, -1, 300))
    s("gamma", a(1, 2, 3, 7, dtype=np.int32))
    s("erfinv _npx_erfinv", a(-1, -0.999, -0.5, -1e-4, 0, 0.3, 0.97, 1, 0.9999))
    s("_identity_with_attr_like_rhs", x34, f(3, 4))
    s("IdentityAttachKLSparseReg", p(3, 4), p(4), known=(1,))
    s("_contrib_quadratic", x34, a=1, b=2, c=3)
    s("_contrib_div_sqrt_dim", x34)
    s("smooth_l1 _npx_smooth_l1", x34, scalar=2.0)
    s("clip", x34, a_min=-1, a_max=0.5)
    s("clip", ints, a_min=-2.5, a_max=2.5)
    s("clip", a(0, 90, 101, 255, dtype=np.uint8), a_min=-120, a_max=100)
    s("clip", a(0, 90, 101, 255, dtype=np.uint8), a_min=50, a_max=300)
    s("add_n ElementWiseSum", x34, f(3, 4), f(3, 4), num_args=3)
    s("add_n", x34, num_args=1)
    for name, old in arithmetic.ALIASES.items():
        s(f"broadcast_{name}", p(3, 1, 4), p(2, 1))
        for op in old:
            if not op.startswith("broadcast"):
                s(op, p(3, 4), p(3, 4))
    s("broadcast_plus broadcast_minus", x34, f(1, 4))
    s("broadcast_mod _mod", a(-7.5, 7.5, 5, -5, 3, 0), a(2, -2, -2, 2, 0, 3))
    for op in ("mod", "hypot", "maximum", "equal", "lesser", "logical_xor"):
        s(f"broadcast_{op}", ints, ints[::-1].copy())
    s("broadcast_div", ints, a(2, -2, 3, -3, 4, dtype=np.int32))
    s("broadcast_hypot", a(1e30, 0, 3, np.inf, -np.inf, np.inf, np.nan), a(1e30, 0, 4, np.inf, 1, np.nan, 1))
    for name, (_, old) in arithmetic.SCALAR.items():
        s(f"_{name}_scalar _{old}Scalar", p(3, 4), scalar=0.5)
        s(f"_{name}_scalar", ints, scalar=3)
        s(f"_{name}_scalar", ints[3:], scalar=2.5, is_int=False)
        s(f"_{name}_scalar", a(1, 0, dtype=bool), scalar=1)
        s(f"_{name}_scalar", a(1, 0, dtype=bool), scalar=0.5, is_int=False)
    for name, old in (("minus", "Minus"), ("div", "Div"), ("mod", "Mod"), ("power", "Power")):
        s(f"_r{name}_scalar _R{old}Scalar", p(3, 4), scalar=0.5)
        s(f"_r{name}_scalar", ints[3:], scalar=3)
    s("_mod_scalar _rmod_scalar", ticks, scalar=-0.75)
    s("_power_scalar _rpower_scalar", a(3, 0, 1, dtype=np.int8), scalar=2)
    s("_power", a(3, 2, 1, dtype=np.uint8), a(3, 2, 0, dtype=np.uint8))
    s("_scatter_plus_scalar _scatter_minus_scalar", x34, scalar=2)

    # reduction
    for op in ("sum", "mean", "prod", "max", "min", "nansum", "nanprod", "sum_axis", "max_axis", "min_axis"):
        s(op, x234)
        s(op, x234, axis=1, keepdims=True)
        s(op, x234, axis=(0, -1))
        s(op, x234, axis=(1,), exclude=True)
    s("sum mean max", ints)
    s("sum", a(200, 100, dtype=np.uint8))
    s("nansum nanprod", a(1, np.nan, 3))
    s("norm", x234, ord=1, axis=2)
    s("norm", x234, axis=(0, 1), keepdims=True)
    s("norm", x34)
    s("argmax argmin", x234)
    s("argmax argmin", x234, axis=1, keepdims=True)
    s("argmax argmin", x234, axis=-1)
    s("argmax", x234, keepdims=True)
    s("argmax_channel", x34)
    nan, inf = np.nan, np.inf
    odd = a([1, nan, 3, inf], [nan, 1, inf, nan], [inf, 2, nan, -inf], [nan, nan, nan, nan], [-inf, -inf, 2, 1], [2, inf, 1, 2])
    s("max min max_axis min_axis argmax argmin", odd, axis=1)
    s("max min argmax argmin", odd, axis=0)
    s("max min argmax argmin argmax_channel sign", odd)
    s("moments", x234, axes=(0, 2), heads=2)
    s("moments", x234, axes=(1,), keepdims=True, heads=2)
    s("_contrib_allclose", x34, x34 + np.float32(1e-3))
    s("_contrib_allclose", ints, ints)

    # shape
    for shape in ((6, 4), (-1, 2), (0, -1), (-2,), (-3, 4), (-4, 1, 2, -2), (0, -4, -1, 1, -2), (0, -3), (4, 0, 0)):
        if shape != (4, 0, 0):
            s("Reshape reshape", x234, shape=shape)
    s("Reshape", x234, shape=(-1, 0), reverse=True)
    s("Reshape", x234, shape=(-1, -3), reverse=True)
    s("Reshape", x234, target_shape=(0, 6))
    s("Reshape", x234, target_shape=(0, 0), keep_highest=True)
    s("reshape_like _npx_reshape_like", x234, f(6, 4))
    s("reshape_like", f(30, 7), f(15, 2, 4), lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)
    s("reshape_like", f(30, 7), f(4, 15, 2), lhs_begin=-2, lhs_end=-1, rhs_begin=1)
    s("Flatten flatten _npx_batch_flatten", img)
    s("transpose", x234)
    s("transpose", x234, axes=(1, 0, 2))
    s("SwapAxis swapaxes", x234, dim1=0, dim2=2)
    s("expand_dims", x34, axis=1)
    s("expand_dims", x34, axis=-1)
    s("squeeze", f(1, 3, 1))
    s("squeeze", f(1, 3, 1), axis=-1)
    s("squeeze", f(1, 1))
    s("Concat concat", x34, f(3, 2), num_args=2, dim=1)
    s("Concat", x234, f(2, 3, 1), num_args=2, dim=-1)
    s("_rnn_param_concat", f(4), f(6), num_args=2, dim=0)
    s("stack", x34, f(3, 4), num_args=2, axis=-1)
    s("SliceChannel split", f(6, 4), num_outputs=2, axis=0, heads=2)
    s("SliceChannel", x234, num_outputs=3, axis=1, squeeze_axis=True, heads=3)
    s("SliceChannel", x234, num_outputs=1, axis=1)
    s("_split_v2", f(6, 4), indices=(0, 1, 4), axis=0, heads=3)
    s("_split_v2", f(6, 4), indices=(), sections=3, axis=0, heads=3)
    s("_split_v2", f(5, 4), indices=(), sections=4, axis=0, heads=4)
    s("slice crop", x34, begin=(1, None), end=(None, 3))
    s("slice", x34, begin=(2, None), end=(None, None), step=(-1, 2))
    s("slice", x34, begin=(-2,), end=(None,))
    s("slice_axis", x34, axis=1, begin=1, end=-1)
    s("slice_axis", x34, axis=0, begin=-2, end=None)
    s("slice_like", x34, f(2, 2))
    s("slice_like", x234, f(1, 2, 2), axes=(-1,))
    s("Crop", img, num_args=1, h_w=(3, 4), offset=(1, 2))
    s("Crop", img, f(1, 1, 3, 4), num_args=2, center_crop=True)
    s("reverse flip", x234, axis=(0, 2))
    s("tile", x34, reps=(2, 1, 3))
    s("tile", x234, reps=(2,))
    s("repeat", x34, repeats=2)
    s("repeat", x34, repeats=3, axis=-1)
    s("broadcast_to", f(3, 1), shape=(0, 4))
    s("broadcast_axis broadcast_axes", f(3, 1, 1), axis=(1, 2), size=(2, 4))
    s("broadcast_like", f(3, 1), x34)
    s("broadcast_like", f(3, 1), f(5, 9), lhs_axes=(1,), rhs_axes=(0,))
    s("shape_array size_array zeros_like ones_like", x34)
    s("_npx_shape_array", x34)
    s("depth_to_space space_to_depth", img, block_size=2)
    for dtype in ("float64", "int32", "int64", "int8", "uint8", "float16", "bool"):
        s("Cast cast", p(3, 4) * 9, dtype=dtype)
    s("amp_cast", x34, dtype="float16")
    s("amp_cast", ints, dtype="float16")
    s("amp_multicast", x34, f(3, 4), num_outputs=2, heads=2)
    s("cast_storage", x34, stype="default")
    for mode in ("reflect", "edge", "constant"):
        s("Pad pad", img, mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=1.5)
    for k in (0, 1, -2):
        s("diag", f(4), k=k)
        s("diag", f(4, 5), k=k)
        s("diag", x234, k=k, axis1=2, axis2=0)
    s("_zeros _ones", shape=(2, 3), dtype="int32")
    s("_full", shape=(2, 3), value=2.5)
    s("_eye", N=3, M=4, k=1)
    s("_arange", start=1, stop=7, step=1.5, repeat=2)
    s("_arange", start=4, dtype="int64")
    s("_linspace", start=0, stop=2, num=5)
    s("_contrib_arange_like", x34, axis=1)
    s("_contrib_arange_like", x34, start=2, step=0.5, repeat=3)

    # indexing
    s("take", x34, a(5, -1, 1))
    s("take", x34, a(5, -1, 1), mode="wrap", axis=1)
    s("take", x34, a(2, 0), mode="raise")
    s("Embedding _npx_embedding", i(5, 2, 3), f(5, 4), input_dim=5, output_dim=4, known=(1,))
    s("Embedding", a(-1, 7), f(5, 4), input_dim=5, output_dim=4)
    s("_contrib_SparseEmbedding", i(5, 2, 3), f(5, 4), input_dim=5, output_dim=4)
    s("pick choose_element_0index _npx_pick", x34, i(4, 3), axis=1)
    s("pick", x34, a(0, -1, 9), keepdims=True)
    s("pick _npx_pick", f(5), a(1))
    s("pick", x34, a(0, -1, 9), mode="wrap")
    s("pick", x234, i(3, 2, 4), axis=1)
    s("batch_take", x34, a(1, 0, 3, dtype=np.int32))
    s("gather_nd _npx_gather_nd", x234, np.array([[0, 1], [2, 0]], np.float32))
    s("scatter_nd", f(2, 4), np.array([[0, 1], [2, 0]], np.float32), shape=(2, 3, 4))
    s("one_hot _npx_one_hot", a(0, -1, 9, 1.7), depth=3, on_value=3, off_value=-1, dtype="int32")
    s("where", i(2, 3, 4), x34, f(3, 4))
    s("where", a(1, 0, 1), x34, f(3, 4))
    s("_contrib_boolean_mask", f(4, 3), a(1, 0, 1, 1))
    s("_contrib_index_copy", f(5, 3), a(0, 3), f(2, 3))
    s("_contrib_index_array", x34)
    s("_contrib_index_array", x234, axes=(1, 0))
    s("_unravel_index unravel_index", i(12, 4), shape=(3, 4))
    s("_unravel_index", a(37, 14, 3, 0, -1, -6), shape=(-1, 4))
    s("_ravel_multi_index ravel_multi_index", np.array([[0, 2], [1, 3]], np.float32), shape=(3, 4))
    s("_ravel_multi_index", np.array([[0.7, -1.5, 2], [1.9, 2.5, -0.5]], np.float32), shape=(3, 4))
    s("_ravel_multi_index", np.array([[0, 2], [1, 3], [4, 1]], np.int32), shape=(3, 4, 5))
    s("sort argsort", x34, axis=0, is_ascend=False)
    s("sort argsort", x34)
    s("sort argsort", x34, axis=None)
    s("argsort", a(1, 1, 2, 2, 1), is_ascend=False, dtype="int32")
    for kind, heads in (("value", 1), ("indices", 1), ("mask", 1), ("both", 2)):
        s("topk _npx_topk", x34, k=2, ret_typ=kind, heads=heads)
    s("topk", x34, k=0, ret_typ="value", is_ascend=True, axis=0)
    s("topk", x34, axis=None, k=3)
    s("topk", x34, axis=None, k=3, ret_typ="mask")
    s("cumsum _np_cumsum", x234, axis=1)
    s("cumsum", x234)
    s("cumsum", ints, dtype="float32")
    s("_slice_assign _crop_assign", x34, f(2, 2), begin=(1, 0), end=(3, 4), step=(1, 2))
    s("_slice_assign_scalar _crop_assign_scalar", x34, scalar=7, begin=(None, 1), end=(2, None))

    # conv
    k3 = {"kernel": (3, 3), "num_filter": 6}
    s("Convolution _npx_convolution", img, f(6, 4, 3, 3), f(6), known=(1, 2), **k3)
    s("Convolution", img, f(6, 2, 3, 3), known=(1,), num_group=2, no_bias=True, stride=(2, 1), pad=(1, 2), dilate=(2, 1), **k3)
    s("Convolution", img, f(4, 1, 3, 3), f(4), kernel=(3, 3), num_filter=4, num_group=4, workspace=9, layout="NCHW")
    s("Convolution", f(2, 4, 9), f(5, 4, 3), f(5), kernel=(3,), num_filter=5, layout="NCW", stride=2)
    s("Convolution", f(1, 2, 5, 5, 5), f(3, 2, 3, 2, 1), f(3), kernel=(3, 2, 1), num_filter=3, pad=(1, 0, 0))
    s("Convolution_v1", img, f(6, 4, 3, 3), f(6), **k3)
    s("Deconvolution _npx_deconvolution", img, f(4, 6, 3, 3), **k3)
    s("Deconvolution", img, f(4, 3, 3, 3), f(6), num_group=2, stride=(2, 2), adj=(1, 1), pad=(1, 1), no_bias=False, **k3)
    s("Deconvolution", img, f(4, 6, 4, 4), kernel=(4, 4), num_filter=6, stride=(2, 2), pad=(1, 1), target_shape=(12, 12))
    s("Deconvolution", f(2, 4, 9), f(4, 5, 3), kernel=(3,), num_filter=5, stride=(2,), dilate=(2,), layout="NCW")
    s("Deconvolution", f(1, 2, 3, 3, 3), f(2, 3, 2, 2, 2), kernel=(2, 2, 2), num_filter=3, stride=(2, 2, 2))
    s("FullyConnected _npx_fully_connected", img, f(5, 144), f(5), num_hidden=5, known=(1, 2))
    s("FullyConnected", x234, f(5, 4), f(5), num_hidden=5, flatten=False)
    s("FullyConnected", x34, f(5, 4), num_hidden=5, no_bias=True)
    s("_contrib_ModulatedDeformableConvolution", img, f(2, 18, 6, 6) * 0.3, p(2, 9, 6, 6), f(5, 4, 3, 3), f(5), kernel=(3, 3),
      num_filter=5, pad=(1, 1))  # fmt: skip

    # norm
    stats = (f(4), f(4), f(4), p(4))
    for extra in ({}, {"fix_gamma": False}, {"fix_gamma": False, "use_global_stats": True, "eps": 1e-5, "momentum": 0.5}):
        s("BatchNorm _npx_batch_norm", img, *stats, known=(1, 2, 3, 4), **extra)
    s("BatchNorm", img, *stats, fix_gamma=False, output_mean_var=True, heads=3)
    s("BatchNorm", f(2, 6, 6, 4), *stats, fix_gamma=False, axis=-1)
    s("BatchNorm", f(4, 6), *stats, fix_gamma=False, axis=0)
    s("BatchNorm", x34, *stats)
    s("_contrib_SyncBatchNorm", img, *stats, key="a")
    s("_contrib_BatchNormWithReLU", img, *stats, fix_gamma=False)
    s("LayerNorm _npx_layer_norm", x234, f(4), f(4))
    s("LayerNorm", x234, f(3), f(3), axis=1)
    s("LayerNorm", x234, f(4), f(4), output_mean_var=True, heads=3)
    s("LayerNorm", x234, f(3), f(3), axis=1, output_mean_var=True, heads=3)
    s("InstanceNorm", img, f(4), f(4))
    s("GroupNorm", img, f(2), f(2), num_groups=2)
    s("GroupNorm", img, f(2), f(2), heads=3, num_groups=2, output_mean_var=True, eps=1e-3)
    for mode in ("instance", "channel", "spatial"):
        s("L2Normalization", img, mode=mode)
    s("L2Normalization", f(3), eps=0.1)
    s("LRN", img, nsize=3, alpha=0.01, beta=0.7, knorm=1.5)
    s("LRN", img, nsize=4, alpha=0.5)

    # pooling
    for kind in ("max", "avg", "sum", "lp"):
        lp = {"p_value": 2} if kind == "lp" else {}
        for convention in ("valid", "full"):
            s("Pooling", img, kernel=(3, 3), stride=(2, 2), pool_type=kind, pooling_convention=convention, **lp)
            s("Pooling", img, kernel=(3, 2), stride=(2, 3), pad=(1, 1), pool_type=kind, pooling_convention=convention, **lp)
        s("Pooling _npx_pooling", img, global_pool=True, pool_type=kind, **lp)
        s("Pooling", f(1, 4, 4, 6, 6), kernel=(2, 3, 2), stride=(2, 1, 2), pool_type=kind, **lp)
    s("Pooling", f(2, 4, 9), kernel=(2,), stride=(2,), layout="NCW")
    s("Pooling", f(2, 4, 9), kernel=2, pool_type="avg")
    s("Pooling", f(1, 1, 10), kernel=2, stride=2, pad=(0, 0, 0), pooling_convention="same")
    s("Pooling", img, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg", pooling_convention="full",
      count_include_pad=False)  # fmt: skip
    s("Pooling", img, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False)
    s("Pooling", img, kernel=(1, 1), stride=(4, 4), pad=(0, 0), pooling_convention="full")
    s("Pooling", img, kernel=(2, 2), pool_type="max", layout="NHWC")
    s("Pooling", img, kernel=(2, 2), pool_type="lp", p_value=3)
    s("Pooling", img, kernel=(2, 2), pool_type="lp", p_value=1)
    s("Pooling_v1", img, kernel=(2, 2), stride=(2, 2))
    for size in ((), 1, (3, 5), (2, 2), 4):
        s("_contrib_AdaptiveAvgPooling2D", img, output_size=size)

    # image
    s("UpSampling", img, scale=3, sample_type="nearest", num_args=1)
    s("UpSampling", img, f(2, 3, 3, 3), scale=2, sample_type="nearest", num_args=2)
    s("UpSampling", img, f(2, 4, 3, 3), scale=2, sample_type="nearest", num_args=2, multi_input_mode="sum")
    for scale in (2, 3):
        size = 2 * scale - scale % 2
        s("UpSampling", img, p(4, 1, size, size), scale=scale, sample_type="bilinear", num_filter=4, num_args=2)
    s("_contrib_BilinearResize2D", img, height=9, width=11)
    s("_contrib_BilinearResize2D", img, height=9, width=4, align_corners=False)
    s("_contrib_BilinearResize2D", img, scale_height=1.5, scale_width=2.3)
    s("_contrib_BilinearResize2D", img, f(2, 4, 9, 11), mode="like")
    s("_contrib_BilinearResize2D", img, mode="to_odd_up")
    s("_contrib_BilinearResize2D", f(1, 2, 5, 4), mode="odd_scale", scale_height=2.5, scale_width=1.3)
    s("_contrib_BilinearResize2D", img, height=1, width=9, align_corners=False)
    s("GridGenerator", f(2, 6), transform_type="affine", target_shape=(5, 4))
    s("GridGenerator", f(2, 2, 5, 4), transform_type="warp")
    s("BilinearSampler", img, r.uniform(-1.1, 1.1, (2, 2, 5, 5)).astype(np.float32))
    s("SpatialTransformer", img, f(2, 6) * np.float32(0.3), transform_type="affine", sampler_type="bilinear", target_shape=(5, 5))
    rois = np.array([[0, 0, 0, 4, 4], [1, 1, 1, 5, 5]], np.float32)
    s("ROIPooling _npx_roi_pooling", img, rois, pooled_size=(3, 3), spatial_scale=1.0)
    s("ROIPooling", img, rois, pooled_size=(2, 2), spatial_scale=0.5)
    s("im2col", img, kernel=(3, 3), pad=(1, 1), stride=(2, 1))
    s("col2im", f(1, 36, 16), output_size=(6, 6), kernel=(3, 3))

    detection(s, r)

    # linalg
    s("dot", x34, f(4, 5))
    s("dot", f(4, 3), f(5, 4), transpose_a=True, transpose_b=True)
    s("dot", f(4), f(4))
    s("dot", x234, f(4, 2, 5))
    s("dot", f(4, 2, 3), f(5, 2, 4), transpose_a=True, transpose_b=True)
    s("batch_dot _npx_batch_dot", f(2, 4, 3), f(2, 5, 4), transpose_a=True, transpose_b=True)
    s("khatri_rao", f(2, 3), f(4, 3), num_args=2)
    s("_linalg_gemm linalg_gemm", x34, f(4, 5), f(3, 5), alpha=2.0, beta=0.5)
    s("_linalg_gemm2 linalg_gemm2", x234, f(2, 5, 4), transpose_b=True, alpha=0.5)
    s("_linalg_gemm2", f(3, 2, 5, 4), f(4, 2, 5, 6), axis=0)
    s("_linalg_gemm", f(2, 4, 3, 5), f(2, 4, 3, 6), f(2, 5, 3, 6), transpose_a=True, axis=-3)
    s("_linalg_syrk linalg_syrk", x34)
    s("_linalg_syrk", x34, transpose=True, alpha=2.0)
    spd = np.array([[4, 1, 0], [1, 5, 2], [0, 2, 6]], np.float32)
    s("_linalg_trmm linalg_trmm", f(3, 3), x34)
    s("_linalg_trmm", f(3, 3), f(4, 3), rightside=True, lower=False, transpose=True, alpha=0.5)
    s("_linalg_det linalg_det", spd)
    s("_linalg_det", np.stack([spd, spd * 2]))
    s("_linalg_sumlogdiag linalg_sumlogdiag", spd)
    s("_linalg_extractdiag linalg_extractdiag", spd)
    s("_linalg_extractdiag", f(2, 3, 3), offset=-1)
    s("_linalg_makediag linalg_makediag", f(2, 3), offset=1)
    s("_linalg_makediag", f(3), offset=-2)
    s("_linalg_extracttrian linalg_extracttrian", f(2, 3, 3))
    s("_linalg_extracttrian", f(3, 3), offset=1)
    s("_linalg_extracttrian", f(3, 3), lower=False)

    # attention
    s("_contrib_interleaved_matmul_selfatt_qk", f(3, 2, 36), heads_=3)
    s("_contrib_interleaved_matmul_selfatt_valatt", f(3, 2, 36), p(6, 3, 3), heads_=3)
    s("_contrib_interleaved_matmul_encdec_qk", f(3, 2, 12), f(4, 2, 24), heads_=3)
    s("_contrib_interleaved_matmul_encdec_valatt", f(4, 2, 24), p(6, 3, 4), heads_=3)

    # sequence
    s("SequenceLast SequenceMask SequenceReverse", seq)
    s("SequenceLast SequenceMask SequenceReverse _npx_sequence_mask", seq, a(2, 4), use_sequence_length=True)
    s("SequenceLast SequenceMask", seq, a(2, 1, 2, 1, 2), use_sequence_length=True, axis=1)
    s("SequenceMask", seq, a(2, 4), use_sequence_length=True, value=-3)

    # random, and operators that are random in training only
    s("Dropout _npx_dropout", x34)
    s("_npx_rnn", f(4, 2, 3), f(50), f(1, 2, 5), mode="rnn_relu", state_size=5, num_layers=1)
    s("_random_uniform random_uniform uniform", low=1, high=2, shape=(2, 3), scatter=True)
    s("_random_normal random_normal normal", loc=1, scale=2, shape=(2, 3), dtype="float64", scatter=True)
    s("_random_uniform_like _random_normal_like", x34, scatter=True)
    s("Dropout", f(30, 20), mode="always", p=0.5, scatter=True)
    s("Dropout", f(30, 20), mode="always", p=0.5, axes=(1,), scatter=True)

    # recurrent
    for mode, gates in (("rnn_relu", 1), ("rnn_tanh", 1), ("gru", 3), ("lstm", 4)):
        for layers, ways in ((1, 1), (2, 2)):
            count = sum(ways * gates * 5 * ((3 if n == 0 else ways * 5) + 5 + 2) for n in range(layers))
            states = [f(layers * ways, 2, 5)] * (1 + (mode == "lstm"))
            for known in ((1,), ()):
                s("RNN", f(4, 2, 3), f(count) * np.float32(0.3), *states, mode=mode, state_size=5, num_layers=layers,
                  bidirectional=ways == 2, state_outputs=True, heads=1 + len(states), known=known)  # fmt: skip
    rest = np.zeros((1, 2, 5), np.float32)
    s("RNN", f(4, 2, 3), f(50) * np.float32(0.3), rest, mode="rnn_tanh", state_size=5, num_layers=1, known=(2,))
    for ways in (1, 2):
        weights = f(ways * (20 * 3 + 20 * 2 + 10 + 40)) * np.float32(0.4)
        s("RNN", f(4, 2, 3), weights, f(ways, 2, 2), f(ways, 2, 5), mode="lstm",
          state_size=5, num_layers=1, projection_size=2, state_outputs=True, bidirectional=ways == 2, heads=3,
          known=(1,))  # fmt: skip
    return found
