"""Cases of arithmetic, elementary functions, reductions, normalization, matrix products and quantization."""

from __future__ import annotations

import numpy as np

from tests.hub.decompositions.compare import Constant, StaticAxes, case

R = np.random.default_rng(1)
INF, NAN = np.float32(np.inf), np.float32(np.nan)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def integers(low, high, shape, dtype):
    return R.integers(low, high, shape).astype(dtype)


EDGES = np.array([0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3.7, -3.2, 1e-7, 1e7, INF, -INF, NAN], np.float32)
UNIT = np.concatenate((np.linspace(-1, 1, 21), [1e-6, -1e-6, 0.999999, np.nan])).astype(np.float32)
WIDE = np.concatenate((np.linspace(-9, 9, 19), [1e-6, -1e-6, 3e4, -3e4, 88.0, -88.0])).astype(np.float32)
PAIR = EDGES[:, None], EDGES[None, :]
BITS = [
    np.array(v, d)
    for d, v in (
        (np.uint8, [0, 7, 255, 129]),
        (np.int32, [-1, 7, -128, 2**31 - 1]),
        (np.int64, [-(2**63), -1, 2**62, 5]),
        (np.uint64, [2**63, 2**64 - 1, 3, 0]),
    )
]


def _quantized(bias, group=1, channels=4, per_channel=True):
    out = 6
    return case(
        "QLinearConv",
        integers(0, 256, (2, channels * group, 7, 8), np.uint8),
        Constant(np.float32(0.05)),
        Constant(np.uint8(120)),
        Constant(integers(-128, 128, (out, channels, 3, 3), np.int8)),
        Constant((R.random(out) / 40 + 0.01).astype(np.float32) if per_channel else np.float32(0.02)),
        Constant(np.zeros(out, np.int8) if per_channel else np.int8(0)),
        Constant(np.float32(2.5)),
        Constant(np.uint8(110)),
        *([Constant(integers(-500, 500, (out,), np.int32))] if bias else []),
        group=group,
        pads=[1, 1, 1, 1],
        strides=[2, 1],
        atol=1,  # a sum halfway between two quantized values may round either way
    )


CASES = [
    *(case(op, EDGES) for op in ("Neg", "Abs", "Ceil", "Round", "IsNaN", "IsInf", "Sigmoid")),
    case("Sign", EDGES[:-1]),
    case("Reciprocal", EDGES[2:11]),
    case("Neg", np.array([3, -4], np.int32)),
    case("Abs", np.array([3, -4], np.int64)),
    case("Abs", np.array([3, 4], np.uint8)),
    case("Sign", np.array([3, 0, -4], np.int32)),
    case("IsInf", EDGES, detect_negative=0),
    case("IsInf", EDGES, detect_positive=0),
    case("IsInf", EDGES, detect_positive=0, detect_negative=0),
    case("Round", EDGES.astype(np.float64)),
    case("Tan", WIDE[:19]),
    case("Asin", UNIT),
    case("Acos", UNIT),
    case("Atanh", UNIT),
    case("Sinh", np.concatenate((WIDE[:21], WIDE[23:]))),
    case("Cosh", np.concatenate((WIDE[:21], WIDE[23:]))),
    case("Asinh", WIDE, reference="executor"),
    case("Acosh", np.abs(WIDE[:19]) + 1),
    case("Sinh", UNIT * 1e-3, atol=0, rtol=1e-6),
    case("Asinh", UNIT[:21] * 1e-3, atol=0, rtol=1e-6, reference="executor"),
    case("Atanh", UNIT[:21] * 1e-3, atol=0, rtol=1e-6),
    case("Acosh", 1 + np.abs(UNIT[:21]) * 1e-3, atol=0, rtol=1e-5, reference="executor"),
    *(case(op, *PAIR) for op in ("Max", "Min", "Sum", "Mean")),
    *(case(op, f(2, 3), f(3), f(1, 1)) for op in ("Max", "Min", "Sum", "Mean")),
    *(case(op, f(2, 3)) for op in ("Max", "Min", "Sum", "Mean")),
    case("Max", integers(-9, 9, (4,), np.int64), integers(-9, 9, (4,), np.int64)),
    case("Xor", np.array([True, False, True, False]), np.array([[True], [False]])),
    *(case(op, b, b[::-1].copy()) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor") for b in BITS),
    *(case("BitwiseNot", b) for b in BITS),
    *(
        case("BitShift", np.array([1, 7, 200], d), np.array([0, 3, 6], d), direction=w)
        for d in (np.uint32, np.uint64)
        for w in ("LEFT", "RIGHT")
    ),
    case("BitShift", np.array([1, 7, 200], np.uint8), np.array([0, 3, 6], np.uint8), direction="LEFT", engine="executor"),
    # reductions
    *(
        case(op, f(3, 5), Constant(np.int64(a)), exclusive=e, reverse=r, reference="ort" if op == "CumSum" else "executor")
        for op in ("CumSum", "CumProd")
        for a in (0, -1)
        for e in (0, 1)
        for r in (0, 1)
    ),
    case("CumSum", f(3, 5), np.int64(1)),
    case("CumSum", integers(-9, 9, (7,), np.int32), Constant(np.int64(0)), reverse=1),
    case("ReduceMean", f(2, 3, 4), Constant(np.array([0, -1])), keepdims=0),
    case("ReduceMean", f(2, 3, 4), np.array([1])),
    case("ReduceMean", f(2, 3, 4)),
    case("ReduceMean", f(2, 3), None, noop_with_empty_axes=1),
    # normalization
    case("InstanceNormalization", f(2, 3, 4, 5), f(3), f(3), epsilon=1e-3),
    case("InstanceNormalization", f(2, 3, 6), f(3), f(3)),
    case("BatchNormalization", f(2, 3, 4), f(3), f(3), f(3), np.abs(f(3)), epsilon=1e-3),
    case(
        "BatchNormalization",
        f(2, 3, 4, 5),
        f(3),
        f(3),
        f(3),
        np.abs(f(3)),
        training_mode=1,
        momentum=0.7,
        outputs=3,
        reference="executor",
    ),
    *(case("LRN", f(2, 7, 3, 2), size=s, alpha=0.3, beta=0.6, bias=1.5) for s in (1, 3, 5)),
    case("LRN", f(2, 7, 3), size=4, reference="executor"),
    *(
        case("LpNormalization", np.concatenate((f(3, 4), np.zeros((1, 4), np.float32))), axis=a, p=p, reference="executor")
        for a in (-1, 0)
        for p in (1, 2)
    ),
    case("LayerNormalization", f(2, 3, 4), f(3, 4), f(3, 4), axis=1),
    case(
        "LayerNormalization",
        f(2, 4).astype(np.float16),
        f(4).astype(np.float16),
        reference="executor",
        engine="executor",
        rtol=4 * 2**-11,  # the normalized element and its product with the scale are rounded, in both
        atol=0,
    ),
    case("RMSNormalization", f(2, 3, 4), f(4)),
    *(
        case(
            "MeanVarianceNormalization",
            f(2, 3, 2, 4).astype(dtype) * (np.arange(3) > 0).reshape(3, 1, 1).astype(dtype),
            axes=a,
            reference="executor",
        )
        for dtype, a in ((np.float16, [0, 2, 3]), (np.float64, [0, 2, 3]), (np.float32, [1]))
    ),
    # matrices
    case("Gemm", f(3, 4), f(4, 5), f(5)),
    case("Gemm", f(4, 3), f(5, 4), f(3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
    case("Gemm", f(3, 4), f(4, 5), alpha=2.0),
    *(case("Det", f(*s), rtol=1e-4, atol=1e-4) for s in ((1, 1), (3, 3), (2, 4, 4), (2, 2, 5, 5), (9, 9))),
    case("Det", np.float32([[0, 1, 2], [1, 0, 3], [4, -3, 8]]), rtol=1e-4, atol=1e-4),
    case("Det", np.float32([[1, 2], [2, 4]])),
    *(
        case("Einsum", *(f(*s) for s in shapes), equation=e)
        for e, shapes in {
            "ij,jk->ik": ((2, 3), (3, 4)),
            "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
            "ij->ji": ((2, 3),),
            "ij->": ((2, 3),),
            "i,j->ij": ((2,), (3,)),
            "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
            "abc,cd,de->abe": ((2, 3, 4), (4, 5), (5, 6)),
            "bij,bjk": ((2, 3, 4), (2, 4, 5)),
            "abcd,cdef->abef": ((2, 3, 4, 5), (4, 5, 2, 3)),
            "ij,ij->i": ((2, 3), (2, 3)),
            "bik,bkjl->bijl": ((2, 3, 4), (2, 4, 5, 2)),
        }.items()
    ),
    case("Einsum", f(3, 3), equation="ii->i", unsupported="a diagonal of dynamic length"),
    # recurrent layers, in every direction
    *(
        case(
            op,
            f(5, 2, 3),
            StaticAxes(f(ways, gates * 4, 3)),
            StaticAxes(f(ways, gates * 4, 4)),
            StaticAxes(f(ways, gates * 8)),
            hidden_size=4,
            direction=way,
            outputs=outputs,
            opset=14,
            rtol=1e-4,
            atol=1e-5,
        )
        for op, gates, outputs in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3))
        for way, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2))
    ),
    case(
        "LSTM",
        f(5, 2, 3),
        StaticAxes(f(1, 16, 3)),
        StaticAxes(f(1, 16, 4)),
        None,
        np.array([5, 2], np.int32),
        hidden_size=4,
        direction="reverse",
        outputs=3,
        opset=14,
        rtol=1e-4,
        atol=1e-5,
    ),
    # quantization
    case("MatMulInteger", integers(0, 256, (2, 4), np.uint8), integers(0, 256, (4, 3), np.uint8), np.uint8(3), np.uint8(9)),
    case(
        "MatMulInteger",
        integers(0, 256, (2, 4), np.uint8),
        integers(-64, 64, (4, 3), np.int8),  # with eight bits ONNX Runtime's products are not exact on every processor
        None,
        integers(-9, 9, (3,), np.int8),
    ),
    case("MatMulInteger", integers(0, 256, (2, 3, 4), np.uint8), integers(0, 256, (2, 4, 3), np.uint8)),
    case(
        "ConvInteger",
        integers(0, 256, (1, 2, 5, 6), np.uint8),
        Constant(integers(0, 256, (3, 2, 3, 3), np.uint8)),
        np.uint8(7),
        pads=[1, 1, 0, 0],
    ),
    case(
        "ConvInteger",
        integers(0, 256, (1, 40, 5, 6), np.uint8),
        Constant(integers(0, 256, (3, 40, 3, 3), np.uint8)),
        np.uint8(7),
        np.uint8(99),
    ),
    case(
        "ConvInteger",
        integers(0, 256, (1, 700, 3, 3), np.uint8),
        Constant(integers(0, 256, (2, 700, 3, 3), np.uint8)),
        np.uint8(0),
        np.uint8(255),
    ),
    case(
        "ConvInteger",
        integers(0, 256, (1, 4, 5, 6), np.uint8),
        integers(0, 256, (4, 2, 3, 3), np.uint8),
        group=2,
        unsupported="size is dynamic",
    ),
    _quantized(bias=False),
    _quantized(bias=True, per_channel=False),
    _quantized(bias=True, group=2),
    case(
        "QLinearMatMul",
        integers(0, 256, (2, 4), np.uint8),
        np.float32(0.01),
        np.uint8(113),
        integers(0, 256, (4, 3), np.uint8),
        np.float32(0.02),
        np.uint8(114),
        np.float32(0.05),
        np.uint8(118),
        atol=1,
    ),
    case("QuantizeLinear", f(4, 6) * 50, np.float32(0.5), np.uint8(128)),
    case("QuantizeLinear", f(4, 6) * 50, np.abs(f(6)) + 0.1, integers(-9, 9, (6,), np.int8), axis=-1),
    case("QuantizeLinear", f(4, 6) * 500, np.abs(f(4)) + 0.1, integers(-9, 9, (4,), np.int16), axis=0),
    case("QuantizeLinear", f(4, 6) * 50, np.abs(f(4, 2)) + 0.1, axis=1, block_size=3, output_dtype=3),
    case("QuantizeLinear", np.float32([0.5, 1.5, 2.5, -0.5, 300, -300]), np.float32(1.0)),
    case("DequantizeLinear", integers(0, 256, (4, 6), np.uint8), np.float32(0.5), np.uint8(128)),
    case("DequantizeLinear", integers(-128, 128, (4, 6), np.int8), np.abs(f(4)), integers(-9, 9, (4,), np.int8), axis=0),
    case(
        "DequantizeLinear",
        integers(-128, 128, (4, 6), np.int8),
        np.abs(f(4, 2)),
        integers(-9, 9, (4, 2), np.int8),
        axis=1,
        block_size=3,
    ),
    case("DequantizeLinear", integers(-999, 999, (6,), np.int32), np.float32(0.5)),
]
