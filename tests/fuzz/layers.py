"""Generators of convolution, pooling, normalization, image, recurrent, quantized, attention, text and sequence nodes."""

from __future__ import annotations

import numpy as np

from tests.fuzz.operators import Constant, generator, ints
from tests.fuzz.random_values import FLOATS


def image(d, space=None, kinds=(np.float32,)):
    space = space or d.choice((1, 2, 2, 3))
    return d.array(d.choice(kinds), (d.integer(1, 2), d.choice((1, 2, 4)), *(d.integer(3, 7) for _ in range(space))), edges=False)


def _window_attributes(d, x, kernel, dilated=True):
    space = x.ndim - 2
    attrs = {"strides": [d.choice((1, 1, 2)) for _ in range(space)]}
    if dilated and d.coin(0.3):
        attrs["dilations"] = [d.choice((1, 2)) if k * 2 <= n else 1 for k, n in zip(kernel, x.shape[2:], strict=True)]
    if d.coin(0.3):
        attrs["auto_pad"] = d.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["pads"] = [d.integer(0, k - 1) for k in (*kernel, *kernel)]
    return attrs


@generator(4)
def conv(d):
    x = image(d)
    kernel = [d.integer(1, min(3, n)) for n in x.shape[2:]]
    group = d.choice([g for g in (1, 2, x.shape[1]) if x.shape[1] % g == 0])
    attrs = {**_window_attributes(d, x, kernel), "group": group}
    out = group * d.integer(1, 2)
    if d.coin(0.3):
        weights = d.array(np.float32, (x.shape[1], out // group, *kernel), edges=False)
        if "dilations" not in attrs and d.coin(0.3):
            attrs["output_padding"] = [d.integer(0, s - 1) for s in attrs["strides"]]
        return "ConvTranspose", [x, weights, d.array(np.float32, (out,), edges=False) if d.coin(0.5) else None], attrs, 1
    weights = d.array(np.float32, (out, x.shape[1] // group, *kernel), edges=False)
    return "Conv", [x, Constant(weights), d.array(np.float32, (out,), edges=False) if d.coin(0.5) else None], attrs, 1


@generator(3)
def pool(d):
    x = image(d)
    if d.coin(0.2):
        return d.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")), [x], {}, 1
    kernel = [d.integer(1, min(3, n)) for n in x.shape[2:]]
    op = d.choice(("MaxPool", "AveragePool", "LpPool"))
    attrs = {**_window_attributes(d, x, kernel, dilated=op == "MaxPool"), "kernel_shape": kernel}
    if "pads" in attrs or attrs["auto_pad"] == "VALID":
        attrs["ceil_mode"] = d.integer(0, 1)
    if op == "AveragePool":
        attrs["count_include_pad"] = d.integer(0, 1)
    return op, [x], attrs, 2 if op == "MaxPool" and x.ndim == 4 and d.coin(0.3) else 1


@generator(3)
def normalized(d):
    x = image(d)
    c = x.shape[1]
    scale, shift = (d.array(np.float32, (c,), edges=False) for _ in range(2))
    op = d.choice((
        "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "LpNormalization", "LRN",
        "MeanVarianceNormalization", "RMSNormalization",
    ))  # fmt: skip
    if op == "BatchNormalization":
        return op, [x, scale, shift, shift, np.abs(scale)], {"epsilon": 1e-3}, 1
    if op in ("LayerNormalization", "RMSNormalization"):
        axis = d.axis(x.ndim)
        tail = x.shape[axis % x.ndim :]
        weights = [d.array(np.float32, tail, edges=False) for _ in range(2)]
        return op, [x, *weights] if op[0] == "L" else [x, weights[0]], {"axis": axis}, 1
    if op == "GroupNormalization":
        return op, [x, scale, shift], {"num_groups": d.choice([g for g in (1, 2, c) if c % g == 0])}, 1
    if op == "LpNormalization":
        return op, [x], {"p": d.integer(1, 2), "axis": d.axis(x.ndim)}, 1
    if op == "LRN":
        return op, [image(d, 2)], {"size": d.choice((1, 2, 3, 5)), "alpha": 0.5, "bias": 2.0}, 1
    if op == "MeanVarianceNormalization":
        return op, [image(d, 2)], {}, 1
    return op, [x, scale, shift], {}, 1


@generator(3)
def resized(d):
    mode = d.choice(("nearest", "linear", "cubic"))
    x = image(d, 2)
    transformation = d.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
    attrs = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        attrs["nearest_mode"] = d.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attrs["exclude_outside"] = d.integer(0, 1)
    if mode != "nearest" and d.coin(0.3):
        attrs["antialias"] = 1
    if d.coin(0.5):
        return (
            "Resize",
            [x, None, Constant(np.array([1, 1, d.choice((0.5, 2, 1.7)), d.choice((0.4, 1, 2.5))], np.float32))],
            attrs,
            1,
        )
    return "Resize", [x, None, None, ints(*x.shape[:2], d.integer(1, 9), d.integer(1, 9))], attrs, 1


@generator()
def sampled(d):
    x = image(d, 2)
    if d.coin(0.5):
        grid = d.array(np.float32, (x.shape[0], 3, 2, 2), edges=False)
        attrs = {
            "mode": d.choice(("linear", "nearest", "cubic")), "align_corners": d.integer(0, 1),
            "padding_mode": d.choice(("zeros", "border", "reflection")),
        }  # fmt: skip
        return "GridSample", [x, grid], attrs, 1
    size = d.choice((1, 2))
    if d.coin(0.5):
        x = np.tile(x, (1, size * size, 1, 1))
        return "DepthToSpace", [x], {"blocksize": size, "mode": d.choice(("DCR", "CRD"))}, 1
    return "SpaceToDepth", [np.tile(x, (1, 1, size, size))], {"blocksize": size}, 1


@generator(2)
def recurrent(d):
    op, gates = d.choice((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    steps, batch, size, hidden = (d.integer(1, 4) for _ in range(4))
    direction = d.choice(("forward", "reverse", "bidirectional"))
    directions = 1 + (direction == "bidirectional")
    x, w, r, b = (
        d.array(np.float32, s, edges=False)
        for s in (
            (steps, batch, size),
            (directions, gates * hidden, size),
            (directions, gates * hidden, hidden),
            (directions, 2 * gates * hidden),
        )
    )
    lengths = d.rng.integers(1, steps + 1, batch).astype(np.int32) if d.coin(0.3) else None
    attrs = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = d.integer(0, 1)
    start = d.array(np.float32, (directions, batch, hidden), edges=False) if d.coin(0.5) else None
    return op, [x, w, r, b if d.coin(0.7) else None, lengths, start], attrs, 3 if op == "LSTM" else 2


@generator(4)
def quantized(d):
    kind = d.choice((np.uint8, np.int8))

    def integers(*shape):
        return np.asarray(d.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape)).astype(kind)

    def scale(*shape):
        return np.asarray(d.rng.random(shape) / 20 + 0.01, np.float32)

    op = d.choice((
        "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul", "ConvInteger",
        "QLinearConv",
    ))  # fmt: skip
    if op in ("QuantizeLinear", "DequantizeLinear"):
        x = d.operand((np.float32,), 1, edges=False) if op[0] == "Q" else integers(*d.shape(1, 3))
        axis, per_axis = d.axis(x.ndim), d.coin(0.4)
        shape = (x.shape[axis],) if per_axis else ()
        return op, [x, scale(*shape), integers(*shape)], {"axis": axis}, 1
    if op == "DynamicQuantizeLinear":
        return op, [d.operand((np.float32,), 1, edges=False)], {}, 3
    if op == "MatMulInteger":
        return op, [integers(3, 4).astype(np.uint8), integers(4, 2), integers().astype(np.uint8), integers()], {}, 1
    if op == "QLinearMatMul":
        return (
            op,
            [integers(2, 3, 4), scale(), integers(), integers(4, 2), scale(), integers(), np.asarray(scale() * 100), integers()],
            {},
            1,
        )
    x, w, zero = integers(1, 2, 5, 5).astype(np.uint8), integers(4, 2, 3, 2), integers().astype(np.uint8)
    if op == "ConvInteger":
        return op, [x, Constant(w), zero, Constant(integers())], {"pads": [1, 0, 0, 1]}, 1
    zero_points = np.zeros(4, kind) if kind == np.int8 else np.full(4, 120, kind)
    return (
        op,
        [x, scale(), zero, Constant(w), Constant(scale(4)), Constant(zero_points), np.asarray(scale() * 100), zero],
        {"strides": [2, 1]},
        1,
    )


@generator()
def attention(d):
    batch, heads, queries, keys, size = d.integer(1, 2), d.choice((1, 2)), d.integer(1, 3), d.integer(1, 4), d.choice((2, 4))
    q = d.array(np.float32, (batch, heads, queries, size), edges=False)
    k, v = (d.array(np.float32, (batch, heads, keys, size), edges=False) for _ in range(2))
    mask = d.array(np.bool_, (queries, keys)) if d.coin(0.4) else None
    attrs = {"is_causal": d.integer(0, 1), "softcap": d.choice((0.0, 0.0, 2.0)), "scale": d.choice((0.3, 0.5, 1.0))}
    return "Attention", [q, k, v, mask], attrs, 1


@generator()
def signal(d):
    op = d.choice(("DFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"))
    if op == "DFT":
        x = d.array(np.float32, (d.integer(1, 2), d.integer(1, 6), d.choice((1, 2))), edges=False)
        attrs = {"inverse": d.integer(0, 1)} if x.shape[-1] == 2 else {"onesided": d.integer(0, 1)}
        return op, [x, None, Constant(np.array(1, np.int64))], attrs, 1
    if op == "MelWeightMatrix":
        edges = [np.array(v, np.float32) for v in (0, 4000)]
        return op, [*(np.array(v, np.int64) for v in (d.integer(2, 5), 16, 8000)), *edges], {}, 1
    return op, [np.array(d.integer(1, 8), np.int64)], {"periodic": d.integer(0, 1)}, 1


@generator()
def text(d):
    x = d.array(object, d.shape(1, 2))
    op = d.choice(("StringConcat", "StringSplit", "RegexFullMatch", "Equal", "Identity", "Concat", "Transpose", "Expand"))
    if op == "StringSplit":
        return op, [x], {"delimiter": d.choice(("a", ""))}, 2
    if op == "RegexFullMatch":
        return op, [x], {"pattern": "a.?"}, 1
    if op in ("StringConcat", "Equal"):
        return op, [x, d.array(object, d.broadcastable(x.shape))], {}, 1
    if op == "Concat":
        return op, [x, x], {"axis": 0}, 1
    return (op, [x, ints(2, *x.shape)], {}, 1) if op == "Expand" else (op, [x], {}, 1)


@generator()
def sequence(d):
    x = d.operand((np.float32, np.int64), 1, empty=False)
    axis = d.axis(x.ndim)
    if d.coin(0.5):
        return "SplitToSequence", [x], {"axis": axis, "keepdims": d.integer(0, 1)}, 1
    return "SequenceConstruct", [x, d.array(x.dtype, x.shape)], {}, 1


@generator()
def onnx_ml(d):
    x = d.operand(FLOATS[:1], 2, 2, edges=False, empty=False)
    op, attrs = d.choice((
        ("Binarizer", {"threshold": 0.5}), ("Normalizer", {"norm": "L1"}), ("Normalizer", {"norm": "L2"}),
        ("Scaler", {"offset": [0.5], "scale": [2.0]}),
    ))  # fmt: skip
    return f"ai.onnx.ml::{op}", [x], attrs, 1
