"""Generators of rarely used operators and attributes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.layers import image
from tests.fuzz.operators import KINDS, Constant, generator, ints
from tests.fuzz.random_values import FLOATS, INTS, NUMBERS


def int64(*values):
    return np.array(values, np.int64)


@generator(2)
def created(d):
    """Operators that create values from a shape, or from the dtype and shape of another value."""
    op = d.choice(("ConstantOfShape", "CastLike", "EyeLike", "Dropout", "Constant", "CumProd"))
    if op == "Constant":
        kind = d.choice((np.float32, np.int64, object))
        array = d.array(kind, d.shape(0, 2))
        values = [v.encode() for v in array.reshape(-1)] if kind is object else array.reshape(-1).tolist()
        return op, [], {"value": helper.make_tensor("v", KINDS[kind], array.shape, values)}, 1
    if op == "ConstantOfShape":
        kind = d.choice((np.float32, np.float16, np.int32, np.bool_, np.uint8, np.float64))
        value = helper.make_tensor("v", KINDS[kind], [1], [d.integer(0, 1)])
        return op, [int64(*d.shape(0, 3))], {"value": value} if d.coin(0.7) else {}, 1
    if op == "CastLike":
        x = d.array(d.choice((np.float32, np.int32, np.bool_)), d.shape(0, 3), edges=False)
        return op, [x, d.array(d.choice((*NUMBERS, np.bool_)), ())], {}, 1
    if op == "EyeLike":
        kind = d.choice((None, 1, 6, 7, 9, 10, 11))
        return op, [d.operand((np.float32, np.int64, np.int32), 2, 2)], {"dtype": kind} if kind else {}, 1
    if op == "Dropout":
        return op, [d.operand(FLOATS), np.array(0.3, np.float32)], {"seed": 3}, d.choice((1, 2))
    x = d.operand((np.float32, np.float64, np.int32, np.int64), 1, edges=False)
    attrs = {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)}
    return op, [x, Constant(np.array(d.axis(x.ndim), np.int64))], attrs, 1


@generator(2)
def bit_cast(d):
    pairs = ((np.float32, np.int32), (np.int32, np.float32), (np.uint8, np.int8), (np.float16, np.int16), (np.int64, np.uint64))
    of, to = d.choice(pairs)
    x = d.array(of, d.shape(0, 3), edges=False)
    return "BitCast", [np.abs(x)], {"to": KINDS[to]}, 1


@generator(2)
def spatial(d):
    op = d.choice(("CenterCropPad", "Col2Im", "AffineGrid", "MaxUnpool"))
    if op == "CenterCropPad":
        x = d.operand(NUMBERS, 1, 4)
        axes = list(dict.fromkeys(a % x.ndim for a in d.axes(x.ndim))) or [0]
        axes = [a - x.ndim if d.coin(0.3) else a for a in axes]
        return op, [x, int64(*(d.integer(1, 6) for _ in axes))], {"axes": axes}, 1
    if op == "AffineGrid":
        space = d.choice((2, 3))
        theta = d.array(np.float32, (d.integer(1, 2), space, space + 1), edges=False)
        size = int64(theta.shape[0], d.integer(1, 3), *(d.integer(1, 4) for _ in range(space)))
        return op, [theta, Constant(size)], {"align_corners": d.integer(0, 1)}, 1
    if op == "MaxUnpool":
        x = d.array(np.float32, (1, d.integer(1, 2), 2, 3), edges=False)
        permutations = [d.rng.permutation(24)[:6] for _ in range(x.shape[1])]
        at = np.stack([t + 24 * i for i, t in enumerate(permutations)]).reshape(x.shape)
        return op, [x, at.astype(np.int64)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 1
    image, block = [d.integer(3, 6) for _ in range(2)], [d.integer(1, 3) for _ in range(2)]
    steps, pads = [d.integer(1, 2) for _ in range(2)], [d.integer(0, 1) for _ in range(4)]
    spread = [d.choice((1, 1, 2)) if (b - 1) * 2 + 1 <= n else 1 for b, n in zip(block, image, strict=True)]
    count = [
        (n + pads[i] + pads[i + 2] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1 for i, n in enumerate(image)
    ]  # fmt: skip
    columns = d.array(np.float32, (d.integer(1, 2), d.integer(1, 2) * block[0] * block[1], count[0] * count[1]), edges=False)
    attrs = {"strides": steps, "pads": pads, "dilations": spread}
    return op, [columns, int64(*image), int64(*block)], attrs, 1


@generator(2)
def regions(d):
    op = d.choice(("RoiAlign", "MaxRoiPool", "NonMaxSuppression", "DeformConv"))
    x = image(d, 2)
    if op == "NonMaxSuppression":
        boxes = np.sort(d.rng.random((1, 6, 2, 2)), 2).reshape(1, 6, 4).astype(np.float32)
        boxes = boxes[..., d.rng.permutation(4)] if d.coin(0.2) else boxes
        scores = d.rng.random((1, d.integer(1, 2), 6)).astype(np.float32)
        limits = [np.array(v, np.float32) if d.coin(0.7) else None for v in (d.rng.random(), d.rng.random() / 2)]
        return op, [boxes, scores, np.array(d.integer(0, 4), np.int64), *limits], {"center_point_box": d.integer(0, 1)}, 1
    if op == "DeformConv":
        n, c, h, w = x.shape
        kernel = [d.integer(1, 2), d.integer(1, 3)]
        weights = d.array(np.float32, (d.integer(1, 3), c, *kernel), edges=False)
        size = (h - kernel[0] + 1, w - kernel[1] + 1)
        shift = d.array(np.float32, (n, 2 * kernel[0] * kernel[1], *size), edges=False)
        mask = d.array(np.float32, (n, kernel[0] * kernel[1], *size), edges=False) if d.coin(0.5) else None
        bias = d.array(np.float32, (weights.shape[0],), edges=False) if d.coin(0.5) else None
        return op, [x, weights, shift, bias, mask], {"pads": [0, 0, 0, 0]}, 1
    count = d.integer(1, 3)
    ends = np.sort(d.rng.random((count, 2, 2)) * 7, 1).reshape(count, 4).astype(np.float32)
    at = d.rng.integers(0, x.shape[0], count)
    if op == "MaxRoiPool":
        return op, [x, np.concatenate([at[:, None], np.round(ends)], 1).astype(np.float32)], {
            "pooled_shape": [d.integer(1, 3), d.integer(1, 3)], "spatial_scale": d.choice((1.0, 0.5)),
        }, 1  # fmt: skip
    return op, [x, ends, at], {
        "mode": d.choice(("avg", "max")), "output_height": d.integer(1, 3), "output_width": d.integer(1, 3),
        "sampling_ratio": d.integer(0, 2), "spatial_scale": d.choice((1.0, 0.5)),
        "coordinate_transformation_mode": d.choice(("half_pixel", "output_half_pixel")),
    }, 1  # fmt: skip


@generator(2)
def losses(d):
    op = d.choice(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    classes, rest = d.integer(1, 4), d.shape(0, 2, empty=False)
    scores = d.array(np.float32, (d.integer(1, 3), classes, *rest), edges=False)
    labels = d.rng.integers(0, classes, (scores.shape[0], *rest)).astype(d.choice((np.int64, np.int32)))
    weights = np.asarray(d.rng.random(classes) + 0.1, np.float32) if d.coin(0.5) else None
    attrs = {"reduction": d.choice(("none", "sum", "mean"))} | ({"ignore_index": 0} if classes > 1 and d.coin(0.4) else {})
    return op, [scores, labels, weights], attrs, d.integer(1, 2) if op[0] == "S" else 1


@generator(2)
def attention_variants(d):
    """Attention with 3-D inputs, grouped heads, a past and a float mask; and RotaryEmbedding."""
    batch, kv, size = d.integer(1, 2), d.integer(1, 2), d.choice((4, 8))
    if d.coin(0.3):
        flat, part = d.coin(0.5), d.coin(0.3)
        steps, half = d.integer(1, 3), size // 4 if part else size // 2
        x = d.array(np.float32, (batch, steps, kv * size) if flat else (batch, kv, steps, size), edges=False)
        at = d.rng.integers(0, 6, (batch, steps))
        tables = [d.array(np.float32, (6, half), edges=False) for _ in range(2)]
        attrs = {"interleaved": d.integer(0, 1)} | ({"num_heads": kv} if flat else {})
        return "RotaryEmbedding", [x, *tables, at], attrs | ({"rotary_embedding_dim": 2 * half} if part else {}), 1
    groups, queries, keys, past = d.integer(1, 2), d.integer(1, 3), d.integer(1, 4), d.choice((0, 0, 2))
    q, k, v = (d.array(np.float32, (batch, n, h, size), edges=False) for n, h in ((kv * groups, queries), (kv, keys), (kv, keys)))
    past_states = [d.array(np.float32, (batch, kv, past, size), edges=False) if past else None for _ in range(2)]
    if d.coin(0.5):
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
    flat = {"q_num_heads": kv * groups, "kv_num_heads": kv} if q.ndim == 3 else {}
    mask = d.array(np.float32, (batch, 1, queries, past + keys), edges=False) if d.coin(0.4) else None
    attrs = {"is_causal": d.integer(0, 1), "softcap": d.choice((0.0, 3.0)), **flat}
    return "Attention", [q, k, v, mask, *past_states], attrs, d.choice((1, 3)) if past else 1


@generator(2)
def resize_variants(d):
    """Resize with axes, keep_aspect_ratio_policy, tf_crop_and_resize or cubic_coeff_a."""
    x = image(d, d.choice((1, 2, 3)))
    variant = d.choice(("axes", "policy", "region", "coefficient"))
    mode = d.choice(("nearest", "linear"))
    if variant == "region":
        roi = np.concatenate([np.zeros(x.ndim), np.ones(x.ndim)]).astype(np.float32)
        roi[x.ndim - 1], roi[-1] = d.choice((0.1, 0.4)), d.choice((0.8, 1.2))
        attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 5.0}
        return "Resize", [x, Constant(roi), None, ints(*x.shape[:-1], d.integer(1, 6))], attrs, 1
    if variant == "coefficient":
        x = image(d, 2)
        attrs = {"mode": "cubic", "cubic_coeff_a": d.choice((-0.5, -1.0)), "exclude_outside": d.integer(0, 1)}
        return "Resize", [x, None, Constant(np.array([1, 1, 2, 1.5], np.float32))], attrs, 1
    axes = [x.ndim - 1, x.ndim - 2][: d.integer(1, 2)]
    attrs = {"mode": mode, "axes": [a - x.ndim if d.coin(0.3) else a for a in axes]}
    if variant == "axes" and d.coin(0.5):
        return "Resize", [x, None, Constant(np.array([d.choice((2, 0.5, 3)) for _ in axes], np.float32))], attrs, 1
    if variant == "policy":
        attrs["keep_aspect_ratio_policy"] = d.choice(("not_larger", "not_smaller"))
    return "Resize", [x, None, None, ints(*(d.integer(1, 9) for _ in axes))], attrs, 1


# The number of parameters of each activation: alpha, then beta.
ACTIVATION_PARAMETERS = {
    "Tanh": 0, "Sigmoid": 0, "Relu": 0, "HardSigmoid": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "ScaledTanh": 2, "Elu": 1,
    "Softsign": 0, "Softplus": 0, "Affine": 2,
}  # fmt: skip


@generator(2)
def recurrent_variants(d):
    """Recurrent layers with activations, clip, peepholes and batch-first layout."""
    op, gates, activation_count = d.choice((("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)))
    steps, batch, size, hidden = (d.integer(1, 4) for _ in range(4))
    directions, last = d.choice((1, 2)), d.coin(0.2)
    x = d.array(np.float32, (batch, steps, size) if last else (steps, batch, size), edges=False)
    w, r, b = (
        d.array(np.float32, s, edges=False)
        for s in ((directions, gates * hidden, size), (directions, gates * hidden, hidden), (directions, 2 * gates * hidden))
    )
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else d.choice(("forward", "reverse"))}
    if d.coin(0.7):
        attrs["activations"] = names = [d.choice(list(ACTIVATION_PARAMETERS)) for _ in range(activation_count * directions)]
        for k, name in enumerate(("activation_alpha", "activation_beta")):
            if any(ACTIVATION_PARAMETERS[n] > k for n in names):
                attrs[name] = [0.25 + d.integer(0, 3) / 4 for n in names if ACTIVATION_PARAMETERS[n] > k]
    if d.coin(0.4):
        attrs["clip"] = 0.5
    if op == "LSTM" and d.coin(0.3):
        attrs["input_forget"] = 1
    if last:
        attrs["layout"] = 1
    inputs = [x, w, r, b if d.coin(0.7) else None, None]
    if op == "LSTM" and d.coin(0.5):
        start = (batch, directions, hidden) if last else (directions, batch, hidden)
        inputs += [d.array(np.float32, s, edges=False) for s in (start, start, (directions, 3 * hidden))]
    return op, inputs, attrs, 3 if op == "LSTM" else 2


@generator(2)
def indexing_variants(d):
    """Attributes of indexing operators that the other generators leave at their defaults."""
    op = d.choice((
        "GatherND", "Unique", "ReverseSequence", "TopK", "ScatterElements", "IsInf", "TensorScatter", "Swish", "Compress",
    ))  # fmt: skip
    if op == "GatherND":
        x = d.array(np.float32, (2, 3, *d.shape(1, 2, empty=False)))
        limit = np.array(x.shape[1 : 1 + d.integer(1, x.ndim - 1)])
        return op, [x, d.rng.integers(-limit, limit, (2, d.integer(1, 3), len(limit)))], {"batch_dims": 1}, 1
    if op == "Unique":
        x = d.array(d.choice((np.float32, np.int64)), d.shape(1, 3, empty=False), edges=False).round()
        return op, [x], {"axis": d.axis(x.ndim), "sorted": d.integer(0, 1)}, d.choice((1, 4))
    if op == "ReverseSequence":
        x = d.array(np.float32, d.shape(2, 3, empty=False))
        return op, [x, d.rng.integers(1, x.shape[1] + 1, x.shape[0])], {"batch_axis": 0, "time_axis": 1}, 1
    if op == "TopK":
        x = d.operand((np.float32, np.int64, np.float64, np.int32), 1, edges=False)
        axis = d.axis(x.ndim)
        return op, [x, ints(d.integer(0, x.shape[axis]))], {"axis": axis, "largest": d.integer(0, 1), "sorted": 1}, 2
    if op == "ScatterElements":
        x = d.array(np.float32, d.shape(1, 3, empty=False), edges=False)
        axis = d.axis(x.ndim)
        shape = [d.integer(1, n) for n in x.shape]
        at = d.rng.integers(-x.shape[axis], x.shape[axis], shape)
        return (
            op,
            [x, at, d.array(np.float32, shape, edges=False)],
            {"axis": axis, "reduction": d.choice(("add", "mul", "max"))},
            1,
        )
    if op == "IsInf":
        return (
            op,
            [d.operand((np.float32, np.float64))],
            {"detect_negative": d.integer(0, 1), "detect_positive": d.integer(0, 1)},
            1,
        )
    if op == "TensorScatter":
        batch, cache_length, new = d.integer(1, 2), d.integer(2, 4), d.integer(1, 2)
        x, update = (d.array(np.float32, (batch, n, 3)) for n in (cache_length, new))
        circular = d.coin(0.5)
        at = d.rng.integers(0, cache_length if circular else cache_length - new + 1, batch)
        return op, [x, update, at], {"axis": d.choice((1, -2)), "mode": "circular" if circular else "linear"}, 1
    if op == "Swish":
        return op, [d.operand(FLOATS)], {"alpha": d.choice((1.0, 1.702, -0.5))}, 1
    x = d.operand((np.float32, np.int64), 1)
    return op, [x, d.array(np.bool_, (d.integer(0, x.size),))], {}, 1


@generator(2)
def window_variants(d):
    """Integer convolution and pooling with strides, pads and dilations."""
    op = d.choice(("ConvInteger", "QLinearConv", "MaxPool", "LpPool", "AveragePool", "GlobalLpPool", "ConvTranspose", "STFT"))
    x = image(d, 2)
    c = x.shape[1]
    kernel = [d.integer(1, min(3, n)) for n in x.shape[2:]]
    attributes = {"strides": [d.integer(1, 2), d.integer(1, 3)], "pads": [d.integer(0, k - 1) for k in (*kernel, *kernel)]}
    if op == "STFT":
        size = d.choice((2, 4))
        signal = d.array(np.float32, (d.integer(1, 2), d.integer(size, 9), 1), edges=False)
        window = d.array(np.float32, (size,), edges=False)
        return op, [signal, Constant(np.array(d.integer(1, 3), np.int64)), Constant(window)], {"onesided": d.integer(0, 1)}, 1
    if op == "GlobalLpPool":
        return op, [x], {"p": d.choice((1, 2, 3))}, 1
    if op in ("LpPool", "AveragePool", "MaxPool"):
        if all(k * 2 <= n for k, n in zip(kernel, x.shape[2:], strict=True)):
            attributes["dilations"] = [d.integer(1, 2), d.integer(1, 2)]
        extra = {"LpPool": {"p": d.choice((1, 2, 3))}, "AveragePool": {"count_include_pad": d.integer(0, 1)}, "MaxPool": {}}[op]
        return op, [x], {**attributes, **extra, "kernel_shape": kernel}, 1
    if op == "ConvTranspose":
        w = d.array(np.float32, (c, 2, *kernel), edges=False)
        size = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], attributes["strides"], kernel, strict=True)]
        return op, [x, w], {"strides": attributes["strides"], "output_shape": [max(1, n - d.integer(0, 1)) for n in size]}, 1
    group = d.choice([g for g in (1, 2, c) if c % g == 0])
    out_channels = group * d.integer(1, 2)
    attributes |= {"group": group, "kernel_shape": kernel, "dilations": [1, 1]}
    quantized = [d.rng.integers(0, 256, s).astype(np.uint8) for s in (x.shape, (out_channels, c // group, *kernel))]
    zero = np.array(d.integer(100, 140), np.uint8)
    if op == "ConvInteger":
        return op, [quantized[0], Constant(quantized[1]), zero, Constant(zero)], attributes, 1
    scale = [np.asarray(d.rng.random() / 20 + 0.01, np.float32) for _ in range(3)]
    bias = Constant(d.rng.integers(-99, 99, out_channels).astype(np.int32)) if d.coin(0.5) else None
    inputs = [
        quantized[0],
        scale[0],
        zero,
        Constant(quantized[1]),
        Constant(scale[1]),
        Constant(zero),
        scale[2] * np.float32(50),
        zero,
        bias,
    ]
    return op, inputs, attributes, 1


@generator(2)
def onnx_ml_variants(d):
    x = d.array(np.float32, (d.integer(1, 3), 3), edges=False)
    op = d.choice((
        "ArrayFeatureExtractor", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearRegressor", "OneHotEncoder", "Tfidf",
        "LinearClassifier", "SVMRegressor", "CategoryMapper", "TreeEnsembleRegressor",
    ))  # fmt: skip
    ml = f"ai.onnx.ml::{op}"
    if op == "ArrayFeatureExtractor":
        return ml, [x, d.rng.integers(0, 3, d.integer(1, 4))], {}, 1
    if op == "FeatureVectorizer":
        return ml, [x, x[:, :2]], {"inputdimensions": [3, 2]}, 1
    if op == "Imputer":
        x = np.where(d.rng.random(x.shape) < 0.4, np.nan, x).astype(np.float32)
        return ml, [x], {"imputed_value_floats": d.choice(([0.5], [1.0, 2.0, 3.0])), "replaced_value_float": float("nan")}, 1
    if op == "LabelEncoder":
        attrs = {"keys_strings": ["a", "b", ""], "values_int64s": [1, 2, 3], "default_int64": 7}
        return ml, [d.array(object, d.shape(1, 2))], attrs, 1
    if op == "CategoryMapper":
        return ml, [d.array(object, d.shape(1, 2))], {"cats_strings": ["a", "b"], "cats_int64s": [4, 5], "default_int64": -1}, 1
    if op == "OneHotEncoder":
        return ml, [d.rng.integers(0, 4, d.shape(1, 2, empty=False))], {"cats_int64s": [2, 0, 1], "zeros": 1}, 1
    if op == "Tfidf":
        attrs = {"mode": d.choice(("TF", "IDF", "TFIDF")), "min_gram_length": 1, "max_gram_length": 2}
        attrs |= {"max_skip_count": d.integer(0, 2)}
        attrs |= {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3], "pool_int64s": [1, 2, 1, 2, 2, 3]}
        quantized = d.rng.integers(0, 4, d.choice(((5,), (2, 4)))).astype(d.choice((np.int32, np.int64)))
        return "TfIdfVectorizer", [quantized], attrs | ({"weights": [0.5, 1.0, 2.0, 3.0]} if d.coin(0.5) else {}), 1
    transform = d.choice(("NONE", "SOFTMAX", "LOGISTIC"))
    if op == "LinearRegressor":
        return ml, [x], {"coefficients": d.rng.standard_normal(6).tolist(), "intercepts": [0.5, -1.0], "targets": 2}, 1
    if op == "LinearClassifier":
        attrs = {"coefficients": d.rng.standard_normal(9).tolist(), "intercepts": [0.5, -1.0, 0.0], "post_transform": transform}
        return ml, [x], attrs | d.choice(({"classlabels_ints": [3, 1, 2]}, {"classlabels_strings": ["p", "q", "r"]})), 2
    if op == "SVMRegressor":
        kernel = d.choice(("LINEAR", "POLY", "RBF", "SIGMOID"))
        attrs = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 2.0], "support_vectors": d.rng.standard_normal(6).tolist()}
        return ml, [x], attrs | {"coefficients": [0.5, -1.5], "rho": [0.25], "n_supports": 2, "one_class": d.integer(0, 1)}, 1
    modes = [d.choice(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ")) for _ in range(2)]
    attrs = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF"],
        "nodes_featureids": [d.integer(0, 2), d.integer(0, 2), 0, 0, 0], "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 2, 0, 0, 0], "nodes_falsenodeids": [4, 3, 0, 0, 0], "target_treeids": [0, 0, 0],
        "target_nodeids": [2, 3, 4], "target_ids": [0, 1, 0], "target_weights": [1.0, -2.0, 0.5], "n_targets": 2,
        "aggregate_function": d.choice(("SUM", "AVERAGE", "MIN", "MAX")),
        "nodes_missing_value_tracks_true": [d.integer(0, 1), 0, 0, 0, 0],
    }  # fmt: skip
    return ml, [x], attrs, 1


@generator()
def sequence_map(d):
    """SequenceMap with an additional input."""
    rows = [d.array(np.float32, (2, d.integer(1, 3)), edges=False) for _ in range(d.integer(1, 3))]
    value = helper.make_tensor_value_info
    nodes = [helper.make_node(d.choice(("Add", "Mul")), ["a", "b"], ["c"]), helper.make_node("Shape", ["a"], ["s"])]
    inputs = [value("a", TensorProto.FLOAT, None), value("b", TensorProto.FLOAT, [])]
    body = helper.make_graph(nodes, "body", inputs, [value("c", TensorProto.FLOAT, None), value("s", TensorProto.INT64, None)])
    return "SequenceMap", [rows, d.array(np.float32, (), edges=False)], {"body": body}, 2


@generator()
def integer_arithmetic(d):
    """Pow with two dtypes, and matrix products of integers."""
    op = d.choice(("Pow", "MatMul", "Gemm", "Einsum", "Clip"))
    kind = d.choice((np.int32, np.int64, np.uint32, np.uint64))
    if op == "Pow":
        x = d.array(d.choice((np.float32, np.float64, np.int32, np.int64)), d.shape(0, 3), edges=False)
        return (
            op,
            [x, np.abs(d.array(d.choice((np.float32, np.int32, np.int64)), d.broadcastable(x.shape), edges=False)).round()],
            {},
            1,
        )
    if op == "Clip":
        x = d.operand(INTS)
        return op, [x, *(np.asarray(d.array(x.dtype, ())) for _ in range(2))], {}, 1
    a, b = d.array(kind, (3, 4), edges=False), d.array(kind, (4, 2), edges=False)
    if op == "Gemm":
        return op, [a, b, d.array(kind, (2,), edges=False)], {"alpha": 1.0, "beta": 1.0}, 1
    return op, [a, b], {"equation": "ij,jk->ik"} if op == "Einsum" else {}, 1
