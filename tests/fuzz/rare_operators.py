"""How operators are drawn that few graphs have: images by places, losses, windows of signals, caches, learned models."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.draw import FLOATS, INTS, NUMBERS
from tests.fuzz.layers import _image
from tests.fuzz.operators import KINDS, Held, ints, spec


def whole(*values):
    return np.array(values, np.int64)


@spec(2)
def made(d):
    """From nothing but a shape, or from another value's type and shape."""
    op = d.pick(("ConstantOfShape", "CastLike", "EyeLike", "Dropout", "Constant", "CumProd"))
    if op == "Constant":
        kind = d.pick((np.float32, np.int64, object))
        array = d.array(kind, d.sizes(0, 2))
        values = [v.encode() for v in array.reshape(-1)] if kind is object else array.reshape(-1).tolist()
        return op, [], {"value": helper.make_tensor("v", KINDS[kind], array.shape, values)}, 1
    if op == "ConstantOfShape":
        kind = d.pick((np.float32, np.float16, np.int32, np.bool_, np.uint8, np.float64))
        value = helper.make_tensor("v", KINDS[kind], [1], [d.whole(0, 1)])
        return op, [whole(*d.sizes(0, 3))], {"value": value} if d.chance(0.7) else {}, 1
    if op == "CastLike":
        x = d.array(d.pick((np.float32, np.int32, np.bool_)), d.sizes(0, 3), edges=False)
        return op, [x, d.array(d.pick((*NUMBERS, np.bool_)), ())], {}, 1
    if op == "EyeLike":
        kind = d.pick((None, 1, 6, 7, 9, 10, 11))
        return op, [d.some((np.float32, np.int64, np.int32), 2, 2)], {"dtype": kind} if kind else {}, 1
    if op == "Dropout":
        return op, [d.some(FLOATS), np.array(0.3, np.float32)], {"seed": 3}, d.pick((1, 2))
    x = d.some((np.float32, np.float64, np.int32, np.int64), 1, edges=False)
    attrs = {"exclusive": d.whole(0, 1), "reverse": d.whole(0, 1)}
    return op, [x, Held(np.array(d.axis(x.ndim), np.int64))], attrs, 1


@spec(2)
def bits(d):
    pairs = ((np.float32, np.int32), (np.int32, np.float32), (np.uint8, np.int8), (np.float16, np.int16), (np.int64, np.uint64))
    of, to = d.pick(pairs)
    x = d.array(of, d.sizes(0, 3), edges=False)
    return "BitCast", [np.abs(x)], {"to": KINDS[to]}, 1


@spec(2)
def cropped(d):
    op = d.pick(("CenterCropPad", "Col2Im", "AffineGrid", "MaxUnpool"))
    if op == "CenterCropPad":
        x = d.some(NUMBERS, 1, 4)
        axes = list(dict.fromkeys(a % x.ndim for a in d.axes(x.ndim))) or [0]
        axes = [a - x.ndim if d.chance(0.3) else a for a in axes]
        return op, [x, whole(*(d.whole(1, 6) for _ in axes))], {"axes": axes}, 1
    if op == "AffineGrid":
        space = d.pick((2, 3))
        theta = d.array(np.float32, (d.whole(1, 2), space, space + 1), edges=False)
        size = whole(theta.shape[0], d.whole(1, 3), *(d.whole(1, 4) for _ in range(space)))
        return op, [theta, Held(size)], {"align_corners": d.whole(0, 1)}, 1
    if op == "MaxUnpool":
        x = d.array(np.float32, (1, d.whole(1, 2), 2, 3), edges=False)
        taken = [d.rng.permutation(24)[:6] for _ in range(x.shape[1])]
        at = np.stack([t + 24 * i for i, t in enumerate(taken)]).reshape(x.shape)
        return op, [x, at.astype(np.int64)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 1
    image, block = [d.whole(3, 6) for _ in range(2)], [d.whole(1, 3) for _ in range(2)]
    steps, pads = [d.whole(1, 2) for _ in range(2)], [d.whole(0, 1) for _ in range(4)]
    spread = [d.pick((1, 1, 2)) if (b - 1) * 2 + 1 <= n else 1 for b, n in zip(block, image, strict=True)]
    count = [
        (n + pads[i] + pads[i + 2] - spread[i] * (block[i] - 1) - 1) // steps[i] + 1 for i, n in enumerate(image)
    ]  # fmt: skip
    columns = d.array(np.float32, (d.whole(1, 2), d.whole(1, 2) * block[0] * block[1], count[0] * count[1]), edges=False)
    attrs = {"strides": steps, "pads": pads, "dilations": spread}
    return op, [columns, whole(*image), whole(*block)], attrs, 1


@spec(2)
def regions(d):
    op = d.pick(("RoiAlign", "MaxRoiPool", "NonMaxSuppression", "DeformConv"))
    x = _image(d, 2)
    if op == "NonMaxSuppression":
        boxes = np.sort(d.rng.random((1, 6, 2, 2)), 2).reshape(1, 6, 4).astype(np.float32)
        boxes = boxes[..., d.rng.permutation(4)] if d.chance(0.2) else boxes
        scores = d.rng.random((1, d.whole(1, 2), 6)).astype(np.float32)
        limits = [np.array(v, np.float32) if d.chance(0.7) else None for v in (d.rng.random(), d.rng.random() / 2)]
        return op, [boxes, scores, np.array(d.whole(0, 4), np.int64), *limits], {"center_point_box": d.whole(0, 1)}, 1
    if op == "DeformConv":
        n, c, h, w = x.shape
        kernel = [d.whole(1, 2), d.whole(1, 3)]
        weights = d.array(np.float32, (d.whole(1, 3), c, *kernel), edges=False)
        size = (h - kernel[0] + 1, w - kernel[1] + 1)
        shift = d.array(np.float32, (n, 2 * kernel[0] * kernel[1], *size), edges=False)
        mask = d.array(np.float32, (n, kernel[0] * kernel[1], *size), edges=False) if d.chance(0.5) else None
        bias = d.array(np.float32, (weights.shape[0],), edges=False) if d.chance(0.5) else None
        return op, [x, weights, shift, bias, mask], {"pads": [0, 0, 0, 0]}, 1
    count = d.whole(1, 3)
    ends = np.sort(d.rng.random((count, 2, 2)) * 7, 1).reshape(count, 4).astype(np.float32)
    at = d.rng.integers(0, x.shape[0], count)
    if op == "MaxRoiPool":
        return op, [x, np.concatenate([at[:, None], np.round(ends)], 1).astype(np.float32)], {
            "pooled_shape": [d.whole(1, 3), d.whole(1, 3)], "spatial_scale": d.pick((1.0, 0.5)),
        }, 1  # fmt: skip
    return op, [x, ends, at], {
        "mode": d.pick(("avg", "max")), "output_height": d.whole(1, 3), "output_width": d.whole(1, 3),
        "sampling_ratio": d.whole(0, 2), "spatial_scale": d.pick((1.0, 0.5)),
        "coordinate_transformation_mode": d.pick(("half_pixel", "output_half_pixel")),
    }, 1  # fmt: skip


@spec(2)
def losses(d):
    op = d.pick(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    classes, rest = d.whole(1, 4), d.sizes(0, 2, empty=False)
    scores = d.array(np.float32, (d.whole(1, 3), classes, *rest), edges=False)
    labels = d.rng.integers(0, classes, (scores.shape[0], *rest)).astype(d.pick((np.int64, np.int32)))
    weights = np.asarray(d.rng.random(classes) + 0.1, np.float32) if d.chance(0.5) else None
    attrs = {"reduction": d.pick(("none", "sum", "mean"))} | ({"ignore_index": 0} if classes > 1 and d.chance(0.4) else {})
    return op, [scores, labels, weights], attrs, d.whole(1, 2) if op[0] == "S" else 1


@spec(2)
def heads(d):
    """Attention as models write it: 3-D inputs, shared heads, a past, a mask of numbers; and rotations."""
    batch, kv, size = d.whole(1, 2), d.whole(1, 2), d.pick((4, 8))
    if d.chance(0.3):
        flat, part = d.chance(0.5), d.chance(0.3)
        steps, half = d.whole(1, 3), size // 4 if part else size // 2
        x = d.array(np.float32, (batch, steps, kv * size) if flat else (batch, kv, steps, size), edges=False)
        at = d.rng.integers(0, 6, (batch, steps))
        tables = [d.array(np.float32, (6, half), edges=False) for _ in range(2)]
        attrs = {"interleaved": d.whole(0, 1)} | ({"num_heads": kv} if flat else {})
        return "RotaryEmbedding", [x, *tables, at], attrs | ({"rotary_embedding_dim": 2 * half} if part else {}), 1
    groups, queries, keys, past = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.pick((0, 0, 2))
    q, k, v = (
        d.array(np.float32, (batch, n, h, size), edges=False)
        for n, h in ((kv * groups, queries), (kv, keys), (kv, keys))
    )
    held = [d.array(np.float32, (batch, kv, past, size), edges=False) if past else None for _ in range(2)]
    if d.chance(0.5):
        q, k, v = (x.transpose(0, 2, 1, 3).reshape(batch, x.shape[2], -1) for x in (q, k, v))
    flat = {"q_num_heads": kv * groups, "kv_num_heads": kv} if q.ndim == 3 else {}
    mask = d.array(np.float32, (batch, 1, queries, past + keys), edges=False) if d.chance(0.4) else None
    attrs = {"is_causal": d.whole(0, 1), "softcap": d.pick((0.0, 3.0)), **flat}
    return "Attention", [q, k, v, mask, *held], attrs, d.pick((1, 3)) if past else 1


@spec(2)
def resized_otherwise(d):
    """By some axes, with a policy, or out of a region."""
    x = _image(d, d.pick((1, 2, 3)))
    how = d.pick(("axes", "policy", "region", "coefficient"))
    mode = d.pick(("nearest", "linear"))
    if how == "region":
        roi = np.concatenate([np.zeros(x.ndim), np.ones(x.ndim)]).astype(np.float32)
        roi[x.ndim - 1], roi[-1] = d.pick((0.1, 0.4)), d.pick((0.8, 1.2))
        attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 5.0}
        return "Resize", [x, Held(roi), None, ints(*x.shape[:-1], d.whole(1, 6))], attrs, 1
    if how == "coefficient":
        x = _image(d, 2)
        attrs = {"mode": "cubic", "cubic_coeff_a": d.pick((-0.5, -1.0)), "exclude_outside": d.whole(0, 1)}
        return "Resize", [x, None, Held(np.array([1, 1, 2, 1.5], np.float32))], attrs, 1
    axes = [x.ndim - 1, x.ndim - 2][: d.whole(1, 2)]
    attrs = {"mode": mode, "axes": [a - x.ndim if d.chance(0.3) else a for a in axes]}
    if how == "axes" and d.chance(0.5):
        return "Resize", [x, None, Held(np.array([d.pick((2, 0.5, 3)) for _ in axes], np.float32))], attrs, 1
    if how == "policy":
        attrs["keep_aspect_ratio_policy"] = d.pick(("not_larger", "not_smaller"))
    return "Resize", [x, None, None, ints(*(d.whole(1, 9) for _ in axes))], attrs, 1


# How many numbers each activation takes: alpha, and beta.
CURVES = {
    "Tanh": 0, "Sigmoid": 0, "Relu": 0, "HardSigmoid": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "ScaledTanh": 2, "Elu": 1,
    "Softsign": 0, "Softplus": 0, "Affine": 2,
}  # fmt: skip


@spec(2)
def recurrent_otherwise(d):
    """With activations, a clip, peepholes, the layout of batches first."""
    op, gates, curves = d.pick((("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3)))
    steps, batch, size, hidden = (d.whole(1, 4) for _ in range(4))
    ways, last = d.pick((1, 2)), d.chance(0.2)
    x = d.array(np.float32, (batch, steps, size) if last else (steps, batch, size), edges=False)
    w, r, b = (
        d.array(np.float32, s, edges=False)
        for s in ((ways, gates * hidden, size), (ways, gates * hidden, hidden), (ways, 2 * gates * hidden))
    )
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if ways == 2 else d.pick(("forward", "reverse"))}
    if d.chance(0.7):
        attrs["activations"] = names = [d.pick(list(CURVES)) for _ in range(curves * ways)]
        for k, name in enumerate(("activation_alpha", "activation_beta")):
            if any(CURVES[n] > k for n in names):
                attrs[name] = [0.25 + d.whole(0, 3) / 4 for n in names if CURVES[n] > k]
    if d.chance(0.4):
        attrs["clip"] = 0.5
    if op == "LSTM" and d.chance(0.3):
        attrs["input_forget"] = 1
    if last:
        attrs["layout"] = 1
    inputs = [x, w, r, b if d.chance(0.7) else None, None]
    if op == "LSTM" and d.chance(0.5):
        start = (batch, ways, hidden) if last else (ways, batch, hidden)
        inputs += [d.array(np.float32, s, edges=False) for s in (start, start, (ways, 3 * hidden))]
    return op, inputs, attrs, 3 if op == "LSTM" else 2


@spec(2)
def choices(d):
    """Attributes of indexing that the plain draws leave alone."""
    op = d.pick((
        "GatherND", "Unique", "ReverseSequence", "TopK", "ScatterElements", "IsInf", "TensorScatter", "Swish", "Compress",
    ))  # fmt: skip
    if op == "GatherND":
        x = d.array(np.float32, (2, 3, *d.sizes(1, 2, empty=False)))
        limit = np.array(x.shape[1 : 1 + d.whole(1, x.ndim - 1)])
        return op, [x, d.rng.integers(-limit, limit, (2, d.whole(1, 3), len(limit)))], {"batch_dims": 1}, 1
    if op == "Unique":
        x = d.array(d.pick((np.float32, np.int64)), d.sizes(1, 3, empty=False), edges=False).round()
        return op, [x], {"axis": d.axis(x.ndim), "sorted": d.whole(0, 1)}, d.pick((1, 4))
    if op == "ReverseSequence":
        x = d.array(np.float32, d.sizes(2, 3, empty=False))
        return op, [x, d.rng.integers(1, x.shape[1] + 1, x.shape[0])], {"batch_axis": 0, "time_axis": 1}, 1
    if op == "TopK":
        x = d.some((np.float32, np.int64, np.float64, np.int32), 1, edges=False)
        axis = d.axis(x.ndim)
        return op, [x, ints(d.whole(0, x.shape[axis]))], {"axis": axis, "largest": d.whole(0, 1), "sorted": 1}, 2
    if op == "ScatterElements":
        x = d.array(np.float32, d.sizes(1, 3, empty=False), edges=False)
        axis = d.axis(x.ndim)
        shape = [d.whole(1, n) for n in x.shape]
        at = d.rng.integers(-x.shape[axis], x.shape[axis], shape)
        return op, [x, at, d.array(np.float32, shape, edges=False)], {"axis": axis, "reduction": d.pick(("add", "mul", "max"))}, 1
    if op == "IsInf":
        return op, [d.some((np.float32, np.float64))], {"detect_negative": d.whole(0, 1), "detect_positive": d.whole(0, 1)}, 1
    if op == "TensorScatter":
        batch, room, new = d.whole(1, 2), d.whole(2, 4), d.whole(1, 2)
        x, update = (d.array(np.float32, (batch, n, 3)) for n in (room, new))
        ring = d.chance(0.5)
        at = d.rng.integers(0, room if ring else room - new + 1, batch)
        return op, [x, update, at], {"axis": d.pick((1, -2)), "mode": "circular" if ring else "linear"}, 1
    if op == "Swish":
        return op, [d.some(FLOATS)], {"alpha": d.pick((1.0, 1.702, -0.5))}, 1
    x = d.some((np.float32, np.int64), 1)
    return op, [x, d.array(np.bool_, (d.whole(0, x.size),))], {}, 1


@spec(2)
def windows(d):
    """Integer convolutions and pools with all that moves them."""
    op = d.pick(("ConvInteger", "QLinearConv", "MaxPool", "LpPool", "AveragePool", "GlobalLpPool", "ConvTranspose", "STFT"))
    x = _image(d, 2)
    c = x.shape[1]
    kernel = [d.whole(1, min(3, n)) for n in x.shape[2:]]
    moves = {"strides": [d.whole(1, 2), d.whole(1, 3)], "pads": [d.whole(0, k - 1) for k in (*kernel, *kernel)]}
    if op == "STFT":
        size = d.pick((2, 4))
        signal = d.array(np.float32, (d.whole(1, 2), d.whole(size, 9), 1), edges=False)
        window = d.array(np.float32, (size,), edges=False)
        return op, [signal, Held(np.array(d.whole(1, 3), np.int64)), Held(window)], {"onesided": d.whole(0, 1)}, 1
    if op == "GlobalLpPool":
        return op, [x], {"p": d.pick((1, 2, 3))}, 1
    if op in ("LpPool", "AveragePool", "MaxPool"):
        if all(k * 2 <= n for k, n in zip(kernel, x.shape[2:], strict=True)):
            moves["dilations"] = [d.whole(1, 2), d.whole(1, 2)]
        extra = {"LpPool": {"p": d.pick((1, 2, 3))}, "AveragePool": {"count_include_pad": d.whole(0, 1)}, "MaxPool": {}}[op]
        return op, [x], {**moves, **extra, "kernel_shape": kernel}, 1
    if op == "ConvTranspose":
        w = d.array(np.float32, (c, 2, *kernel), edges=False)
        size = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], moves["strides"], kernel, strict=True)]
        return op, [x, w], {"strides": moves["strides"], "output_shape": [max(1, n - d.whole(0, 1)) for n in size]}, 1
    group = d.pick([g for g in (1, 2, c) if c % g == 0])
    maps = group * d.whole(1, 2)
    moves |= {"group": group, "kernel_shape": kernel, "dilations": [1, 1]}
    codes = [d.rng.integers(0, 256, s).astype(np.uint8) for s in (x.shape, (maps, c // group, *kernel))]
    zero = np.array(d.whole(100, 140), np.uint8)
    if op == "ConvInteger":
        return op, [codes[0], Held(codes[1]), zero, Held(zero)], moves, 1
    scale = [np.asarray(d.rng.random() / 20 + 0.01, np.float32) for _ in range(3)]
    bias = Held(d.rng.integers(-99, 99, maps).astype(np.int32)) if d.chance(0.5) else None
    inputs = [codes[0], scale[0], zero, Held(codes[1]), Held(scale[1]), Held(zero), scale[2] * np.float32(50), zero, bias]
    return op, inputs, moves, 1


@spec(2)
def learned_models(d):
    x = d.array(np.float32, (d.whole(1, 3), 3), edges=False)
    op = d.pick((
        "ArrayFeatureExtractor", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearRegressor", "OneHotEncoder", "Tfidf",
        "LinearClassifier", "SVMRegressor", "CategoryMapper", "TreeEnsembleRegressor",
    ))  # fmt: skip
    ml = f"ai.onnx.ml::{op}"
    if op == "ArrayFeatureExtractor":
        return ml, [x, d.rng.integers(0, 3, d.whole(1, 4))], {}, 1
    if op == "FeatureVectorizer":
        return ml, [x, x[:, :2]], {"inputdimensions": [3, 2]}, 1
    if op == "Imputer":
        x = np.where(d.rng.random(x.shape) < 0.4, np.nan, x).astype(np.float32)
        return ml, [x], {"imputed_value_floats": d.pick(([0.5], [1.0, 2.0, 3.0])), "replaced_value_float": float("nan")}, 1
    if op == "LabelEncoder":
        attrs = {"keys_strings": ["a", "b", ""], "values_int64s": [1, 2, 3], "default_int64": 7}
        return ml, [d.array(object, d.sizes(1, 2))], attrs, 1
    if op == "CategoryMapper":
        return ml, [d.array(object, d.sizes(1, 2))], {"cats_strings": ["a", "b"], "cats_int64s": [4, 5], "default_int64": -1}, 1
    if op == "OneHotEncoder":
        return ml, [d.rng.integers(0, 4, d.sizes(1, 2, empty=False))], {"cats_int64s": [2, 0, 1], "zeros": 1}, 1
    if op == "Tfidf":
        attrs = {"mode": d.pick(("TF", "IDF", "TFIDF")), "min_gram_length": 1, "max_gram_length": 2}
        attrs |= {"max_skip_count": d.whole(0, 2)}
        attrs |= {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3], "pool_int64s": [1, 2, 1, 2, 2, 3]}
        codes = d.rng.integers(0, 4, d.pick(((5,), (2, 4)))).astype(d.pick((np.int32, np.int64)))
        return "TfIdfVectorizer", [codes], attrs | ({"weights": [0.5, 1.0, 2.0, 3.0]} if d.chance(0.5) else {}), 1
    transform = d.pick(("NONE", "SOFTMAX", "LOGISTIC"))
    if op == "LinearRegressor":
        return ml, [x], {"coefficients": d.rng.standard_normal(6).tolist(), "intercepts": [0.5, -1.0], "targets": 2}, 1
    if op == "LinearClassifier":
        attrs = {"coefficients": d.rng.standard_normal(9).tolist(), "intercepts": [0.5, -1.0, 0.0], "post_transform": transform}
        return ml, [x], attrs | d.pick(({"classlabels_ints": [3, 1, 2]}, {"classlabels_strings": ["p", "q", "r"]})), 2
    if op == "SVMRegressor":
        kernel = d.pick(("LINEAR", "POLY", "RBF", "SIGMOID"))
        attrs = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 2.0], "support_vectors": d.rng.standard_normal(6).tolist()}
        return ml, [x], attrs | {"coefficients": [0.5, -1.5], "rho": [0.25], "n_supports": 2, "one_class": d.whole(0, 1)}, 1
    modes = [d.pick(("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ")) for _ in range(2)]
    attrs = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_modes": [modes[0], modes[1], "LEAF", "LEAF", "LEAF"],
        "nodes_featureids": [d.whole(0, 2), d.whole(0, 2), 0, 0, 0], "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 2, 0, 0, 0], "nodes_falsenodeids": [4, 3, 0, 0, 0], "target_treeids": [0, 0, 0],
        "target_nodeids": [2, 3, 4], "target_ids": [0, 1, 0], "target_weights": [1.0, -2.0, 0.5], "n_targets": 2,
        "aggregate_function": d.pick(("SUM", "AVERAGE", "MIN", "MAX")),
        "nodes_missing_value_tracks_true": [d.whole(0, 1), 0, 0, 0, 0],
    }  # fmt: skip
    return ml, [x], attrs, 1


@spec()
def mapped(d):
    """One graph for each item of a sequence, with another value beside it."""
    rows = [d.array(np.float32, (2, d.whole(1, 3)), edges=False) for _ in range(d.whole(1, 3))]
    value = helper.make_tensor_value_info
    nodes = [helper.make_node(d.pick(("Add", "Mul")), ["a", "b"], ["c"]), helper.make_node("Shape", ["a"], ["s"])]
    takes = [value("a", TensorProto.FLOAT, None), value("b", TensorProto.FLOAT, [])]
    body = helper.make_graph(nodes, "body", takes, [value("c", TensorProto.FLOAT, None), value("s", TensorProto.INT64, None)])
    return "SequenceMap", [rows, d.array(np.float32, (), edges=False)], {"body": body}, 2


@spec()
def numbers_of_kinds(d):
    """Powers and remainders over two types, products of whole numbers."""
    op = d.pick(("Pow", "MatMul", "Gemm", "Einsum", "Clip"))
    kind = d.pick((np.int32, np.int64, np.uint32, np.uint64))
    if op == "Pow":
        x = d.array(d.pick((np.float32, np.float64, np.int32, np.int64)), d.sizes(0, 3), edges=False)
        return op, [x, np.abs(d.array(d.pick((np.float32, np.int32, np.int64)), d.beside(x.shape), edges=False)).round()], {}, 1
    if op == "Clip":
        x = d.some(INTS)
        return op, [x, *(np.asarray(d.array(x.dtype, ())) for _ in range(2))], {}, 1
    a, b = d.array(kind, (3, 4), edges=False), d.array(kind, (4, 2), edges=False)
    if op == "Gemm":
        return op, [a, b, d.array(kind, (2,), edges=False)], {"alpha": 1.0, "beta": 1.0}, 1
    return op, [a, b], {"equation": "ij,jk->ik"} if op == "Einsum" else {}, 1
