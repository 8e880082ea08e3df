"""One or more uses of every operator that the Core ML backend has a rule for, as functions of the `op` builder and of `t`.

`t(array)` is an input of the graph; arrays given to `op` are constants. Samples of one family go into one model, so that it is
converted and compared once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder

R = np.random.default_rng(0)


def f(*shape, low=-2.0, high=2.0):
    return R.uniform(low, high, shape).astype(np.float32)


def i(*shape, low=-9, high=9, dtype=np.int32):
    return R.integers(low, high, shape).astype(dtype)


def b(*shape):
    return R.random(shape) > 0.5


def ints(*values):
    return np.array(values, np.int64)


IMAGE, VOLUME, LINE = f(2, 4, 7, 6), f(1, 2, 5, 4, 3), f(2, 4, 9)
SPECIAL = np.array([0.5, -1.5, 2.5, np.inf, -np.inf, np.nan, 0.0, -0.5], np.float32)

ACTIVATION = {
    "Sigmoid": [lambda op, t: op.Sigmoid(t(f(3, 4)))],
    "Tanh": [lambda op, t: op.Tanh(t(f(3, 4)))],
    "Softsign": [lambda op, t: op.Softsign(t(f(3, 4)))],
    "Erf": [lambda op, t: op.Erf(t(f(3, 4)))],
    "Relu": [lambda op, t: op.Relu(t(f(3, 4))), lambda op, t: op.Relu(t(i(3, 4)))],
    "Softplus": [lambda op, t: op.Softplus(t(np.float32([-200, -1, 0, 1, 200])))],
    "LeakyRelu": [lambda op, t: op.LeakyRelu(t(f(3, 4)), alpha=0.3)],
    "Elu": [lambda op, t: op.Elu(t(f(3, 4)), alpha=1.5)],
    "ThresholdedRelu": [lambda op, t: op.ThresholdedRelu(t(f(3, 4)), alpha=0.7)],
    "HardSigmoid": [lambda op, t: op.HardSigmoid(t(f(3, 4)), alpha=0.4, beta=0.3)],
    "Selu": [lambda op, t: op.Selu(t(f(3, 4)))],
    "Gelu": [lambda op, t: op.Gelu(t(f(3, 4))), lambda op, t: op.Gelu(t(f(3, 4)), approximate="tanh")],
    "Softmax": [lambda op, t: op.Softmax(t(f(3, 4, 5)), axis=1)],
    "PRelu": [
        lambda op, t: op.PRelu(t(IMAGE), f(4, 1, 1)), lambda op, t: op.PRelu(t(f(3, 4)), t(f(1, 4))),
        lambda op, t: op.PRelu(t(LINE), f(4, 1)), lambda op, t: op.PRelu(t(VOLUME), f(2, 1, 1, 1)),
        lambda op, t: op.PRelu(t(LINE), np.full((4, 1), 0.2, np.float32)),
    ],
    "Hardmax": [lambda op, t: op.Hardmax(t(f(3, 4, 5)), axis=1)],
    "by expansion": [
        lambda op, t: op.LogSoftmax(t(f(3, 4))),
        lambda op, t: op.HardSwish(t(f(3, 4))),
        lambda op, t: op.Mish(t(f(3, 4))),
        lambda op, t: op.Celu(t(f(3, 4)), alpha=0.7),
        lambda op, t: op.Shrink(t(f(3, 4)), lambd=0.5, bias=0.2),
    ],
}

ARITHMETIC = {
    **{n: [lambda op, t, n=n: op.call(n, t(f(2, 3, 4)), t(f(3, 1)))] for n in ("Add", "Sub", "Mul", "Div")},
    **{
        n: [lambda op, t, n=n: op.call(n, t(f(3, 4, low=-0.9, high=0.9)))]
        for n in (
            "Abs",
            "Exp",
            "Sin",
            "Cos",
            "Tan",
            "Asin",
            "Acos",
            "Atan",
            "Sinh",
            "Cosh",
            "Atanh",
            "Asinh",
            "Neg",
            "Reciprocal",
        )
    },
    **{n: [lambda op, t, n=n: op.call(n, t(f(3, 4, low=1.0, high=4.0)))] for n in ("Sqrt", "Acosh")},
    "Log": [lambda op, t: op.Log(t(np.float32([0.0, 1e-30, 0.5, 1.0, 7.0])))],
    **{
        n: [lambda op, t, n=n: op.call(n, t(np.float32([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5, 2.6])))]
        for n in ("Floor", "Ceil", "Round")
    },
    "Sign": [lambda op, t: op.Sign(t(np.float32([-3, 0, 2]))), lambda op, t: op.Sign(t(i(5)))],
    **{
        n: [lambda op, t, n=n: op.call(n, t(i(4, 5)), t(i(5))), lambda op, t, n=n: op.call(n, t(f(4, 5)), np.float32(0.3))]
        for n in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    "Equal": [lambda op, t: op.Equal(t(i(40, low=0, high=3)), t(i(40, low=0, high=3))), lambda op, t: op.Equal(t(b(9)), t(b(9)))],
    **{n: [lambda op, t, n=n: op.call(n, t(b(3, 4)), t(b(4)))] for n in ("And", "Or", "Xor")},
    "Not": [lambda op, t: op.Not(t(b(3, 4)))],
    "Mod": [
        lambda op, t: op.Mod(t(ints(-7, 7, -7, 7)), t(ints(3, -3, -3, 3))),
        lambda op, t: op.Mod(t(np.float32([-4.3, 7.2, 5.0, -8.0])), t(np.float32([2.1, -3.4, 8.0, 3.0])), fmod=1),
        lambda op, t: op.Mod(t(ints(-7, 7, -7, 7)), t(ints(3, -3, -3, 3)), fmod=1),
    ],
    "Div of integers": [lambda op, t: op.Div(t(ints(-7, 7, -7, 7, 0)), t(ints(2, -2, -2, 2, 5)))],
    "Pow": [lambda op, t: op.Pow(t(f(3, 4, low=0.1)), t(f(4))), lambda op, t: op.Pow(t(f(3, 4)), ints(2))],
    "Max": [lambda op, t: op.Max(t(f(3, 4)), t(f(4)), t(f(3, 1)))],
    "Min": [lambda op, t: op.Min(t(i(3, 4)), t(i(4)))],
    "Sum": [lambda op, t: op.Sum(t(f(3, 4)), t(f(4)), t(f(3, 1)))],
    "Mean": [lambda op, t: op.Mean(t(f(3, 4)), t(f(4)), t(f(3, 1)))],
    "Clip": [
        lambda op, t: op.Clip(t(f(3, 4)), -0.5, 0.5),
        lambda op, t: op.Clip(t(i(3, 4)), None, np.int32(2)),
        lambda op, t: op.Clip(t(f(3, 4)), 1.0, t(np.float32(-1.0))),
    ],
    "Where": [
        lambda op, t: op.Where(t(b(3, 4)), t(f(3, 4)), t(f(3, 4))),
        lambda op, t: op.Where(t(b(2, 3, 4)), t(f(4)), np.float32(0.0)),
    ],
    "IsNaN": [lambda op, t: op.IsNaN(t(SPECIAL))],
    "IsInf": [
        lambda op, t: op.IsInf(t(SPECIAL)),
        lambda op, t: op.IsInf(t(SPECIAL), detect_negative=0),
        lambda op, t: op.IsInf(t(SPECIAL), detect_positive=0),
    ],
    "Cast": [
        lambda op, t: op.Cast(t(np.float32([-2.7, -0.5, 0.0, 0.3, 2.7])), to=ir.DataType.INT64),
        lambda op, t: op.Cast(t(np.float32([-2.7, 0.0, 0.3])), to=ir.DataType.BOOL),
        lambda op, t: op.Cast(t(i(9, low=-300, high=300)), to=ir.DataType.INT8),
        lambda op, t: op.Cast(t(b(5)), to=ir.DataType.FLOAT),
        lambda op, t: op.Cast(t(f(3, 4)), to=ir.DataType.FLOAT16),
        lambda op, t: op.Cast(t(f(3, 4)), to=ir.DataType.DOUBLE),
    ],
    "CastLike": [lambda op, t: op.CastLike(t(f(3, 4)), t(i(1))), lambda op, t: op.CastLike(t(i(3, low=-1, high=2)), t(b(1)))],
    "BitShift": [
        lambda op, t: op.BitShift(t(i(6, low=0, high=255, dtype=np.uint8)), t(np.uint8([0, 1, 2, 3, 7, 6])), direction="LEFT"),
        lambda op, t: op.BitShift(t(i(6, low=0, high=255, dtype=np.uint8)), t(np.uint8([0, 1, 2, 3, 7, 6])), direction="RIGHT"),
    ],
    "BitwiseNot": [lambda op, t: op.BitwiseNot(t(i(9))), lambda op, t: op.BitwiseNot(t(i(9, low=0, high=255, dtype=np.uint8)))],
    **{
        n: [
            lambda op, t, n=n: op.call(n, t(i(9, low=-(2**31), high=2**31 - 1)), t(i(9, low=-(2**31), high=2**31 - 1))),
            lambda op, t, n=n: op.call(n, t(i(9, low=0, high=256, dtype=np.uint8)), t(i(9, low=0, high=256, dtype=np.uint8))),
        ]
        for n in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    },
    "narrow integers wrap around": [lambda op, t: op.Cast(op.Mul(op.Cast(t(i(9, low=0, high=256)), to=2), np.uint8(9)), to=6)],
}

CONV = {
    "Conv": [
        lambda op, t: op.Conv(t(IMAGE), f(6, 4, 3, 3), f(6), pads=[1, 0, 2, 1], strides=[2, 1]),
        lambda op, t: op.Conv(t(IMAGE), f(6, 2, 3, 2), group=2, dilations=[2, 1]),
        lambda op, t: op.Conv(t(IMAGE), f(4, 1, 2, 2), f(4), group=4, auto_pad="SAME_UPPER", strides=[2, 2]),
        lambda op, t: op.Conv(t(IMAGE), f(4, 4, 2, 2), auto_pad="SAME_LOWER"),
        lambda op, t: op.Conv(t(LINE), f(3, 4, 3), f(3), pads=[1, 1]),
        lambda op, t: op.Conv(t(VOLUME), f(3, 2, 2, 2, 2), auto_pad="VALID"),
        lambda op, t: op.Conv(t(IMAGE), t(f(3, 4, 3, 3)), t(f(3))),
    ],
    "ConvTranspose": [
        lambda op, t: op.ConvTranspose(t(IMAGE), f(4, 3, 3, 3), f(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        lambda op, t: op.ConvTranspose(t(IMAGE), f(4, 3, 3, 3), f(3), strides=[3, 2], output_shape=[21, 14]),
        lambda op, t: op.ConvTranspose(t(IMAGE), f(4, 2, 3, 3), group=2, dilations=[2, 2], auto_pad="SAME_UPPER", strides=[2, 2]),
        lambda op, t: op.ConvTranspose(t(IMAGE), f(4, 3, 2, 2), f(3), strides=[3, 3], output_padding=[2, 2]),
        lambda op, t: op.ConvTranspose(t(LINE), f(4, 3, 3), auto_pad="SAME_LOWER", strides=[2]),
        lambda op, t: op.ConvTranspose(t(VOLUME), f(2, 3, 2, 2, 2)),
    ],
}

POOLING = {
    "MaxPool": [
        lambda op, t: op.MaxPool(t(IMAGE), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        lambda op, t: op.MaxPool(t(IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        lambda op, t: op.MaxPool(t(IMAGE), kernel_shape=[2, 2], strides=[3, 2], dilations=[2, 3], pads=[1, 1, 1, 1]),
        lambda op, t: op.MaxPool(t(IMAGE), kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1], outputs=2),
        lambda op, t: op.MaxPool(t(IMAGE), kernel_shape=[2, 2], strides=[2, 2], storage_order=1, outputs=2),
        lambda op, t: op.MaxPool(t(LINE), kernel_shape=[2], auto_pad="SAME_UPPER", strides=[2]),
        lambda op, t: op.MaxPool(t(VOLUME), kernel_shape=[2, 2, 2], ceil_mode=1, strides=[2, 2, 2]),
        lambda op, t: op.MaxPool(t(i(1, 2, 5, 5, dtype=np.int8)), kernel_shape=[2, 2]),
    ],
    "AveragePool": [
        lambda op, t: op.AveragePool(t(IMAGE), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        lambda op, t: op.AveragePool(t(IMAGE), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1),
        lambda op, t: op.AveragePool(t(IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
        lambda op, t: op.AveragePool(
            t(IMAGE), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1
        ),
        lambda op, t: op.AveragePool(t(IMAGE), kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 1, 1, 1]),
        lambda op, t: op.AveragePool(t(VOLUME), kernel_shape=[2, 2, 2], strides=[2, 1, 1], ceil_mode=1),
    ],
    "LpPool": [
        lambda op, t: op.LpPool(t(IMAGE), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], p=3),
        lambda op, t: op.LpPool(t(IMAGE), kernel_shape=[2, 2], dilations=[2, 2]),
    ],
    "GlobalAveragePool": [lambda op, t: op.GlobalAveragePool(t(VOLUME))],
    "GlobalMaxPool": [lambda op, t: op.GlobalMaxPool(t(IMAGE))],
}

NORM = {
    "BatchNormalization": [
        lambda op, t: op.BatchNormalization(t(IMAGE), f(4), f(4), f(4), f(4, low=0.1), epsilon=1e-3),
        lambda op, t: op.BatchNormalization(t(f(5, 4)), f(4), f(4), f(4), f(4, low=0.1)),
        lambda op, t: op.BatchNormalization(t(IMAGE), t(f(4)), t(f(4)), t(f(4)), t(f(4, low=0.1))),
    ],
    "InstanceNormalization": [
        lambda op, t: op.InstanceNormalization(t(IMAGE), f(4), f(4)),
        lambda op, t: op.InstanceNormalization(t(VOLUME), t(f(2)), t(f(2))),
    ],
    "LayerNormalization": [
        lambda op, t: op.LayerNormalization(t(f(3, 4, 5)), f(5), f(5)),
        lambda op, t: op.LayerNormalization(t(f(3, 4, 5)), f(4, 5), axis=1, epsilon=1e-3),
        lambda op, t: op.LayerNormalization(t(f(3, 4, 5)), t(f(5)), t(f(5)), outputs=3),
    ],
    "RMSNormalization": [lambda op, t: op.RMSNormalization(t(f(3, 4, 5)), f(5))],
    "GroupNormalization": [lambda op, t: op.GroupNormalization(t(IMAGE), f(4), f(4), num_groups=2)],
    "LRN": [lambda op, t: op.LRN(t(IMAGE), size=3)],
    "LpNormalization": [
        lambda op, t: op.LpNormalization(t(f(3, 4)), axis=0),
        lambda op, t: op.LpNormalization(t(f(3, 4)), axis=1, p=1),
    ],
}

REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
REDUCTION = {
    **{
        n: [
            lambda op, t, n=n: op.call(n, t(f(3, 4, 5)), ints(1, -1), keepdims=0),
            lambda op, t, n=n: op.call(n, t(f(3, 4, 5))),
            lambda op, t, n=n: op.call(n, t(f(3, 4)), keepdims=0),
        ]
        for n in REDUCTIONS
    },
    **{n: [lambda op, t, n=n: op.call(n, t(f(3, 4, 5, low=0.5)), ints(2))] for n in ("ReduceProd", "ReduceLogSum")},
    "ReduceMax of bool": [lambda op, t: op.ReduceMax(t(b(3, 4)), ints(1))],
    "ReduceSum of int64": [lambda op, t: op.ReduceSum(t(i(3, 4, dtype=np.int64)), ints(1))],
    "ArgMax": [
        lambda op, t: op.ArgMax(t(f(3, 4)), axis=1),
        lambda op, t: op.ArgMax(t(np.float32([[1, 3, 3, 2]])), axis=1, keepdims=0, select_last_index=1),
    ],
    "ArgMin": [lambda op, t: op.ArgMin(t(f(3, 4)), axis=0, keepdims=0)],
    "TopK": [
        lambda op, t: op.TopK(t(R.permutation(24).reshape(4, 6).astype(np.float32)), ints(3), axis=0, outputs=2),
        lambda op, t: op.TopK(t(R.permutation(24).reshape(4, 6).astype(np.float32)), ints(3), largest=0, outputs=2),
    ],
    "CumSum": [
        lambda op, t: op.CumSum(t(f(3, 4)), ints(1), exclusive=1, reverse=1),
        lambda op, t: op.CumSum(t(f(3, 4)), t(np.array(-1))),
    ],
}

LINALG = {
    "MatMul": [
        lambda op, t: op.MatMul(t(f(2, 3, 4)), f(4, 5)),
        lambda op, t: op.MatMul(t(f(4)), t(f(2, 4, 5))),
        lambda op, t: op.MatMul(t(f(2, 3, 4)), t(f(4))),
        lambda op, t: op.MatMul(t(f(4)), t(f(4))),
    ],
    "Gemm": [
        lambda op, t: op.Gemm(t(f(3, 4)), f(5, 4), f(5), transB=1),
        lambda op, t: op.Gemm(t(f(3, 4)), f(4, 5), f(1)),
        lambda op, t: op.Gemm(t(f(4, 3)), t(f(4, 5)), t(f(3, 1)), transA=1, alpha=0.5, beta=2.0),
    ],
    "Einsum": [
        lambda op, t: op.Einsum(t(f(2, 3, 4)), t(f(2, 4, 5)), equation="bij,bjk->bik"),
        lambda op, t: op.Einsum(t(f(3, 3)), equation="ii->i"),
        lambda op, t: op.Einsum(t(f(2, 3, 4)), t(f(4)), t(f(3)), equation="...ij,j,i"),
        lambda op, t: op.Einsum(t(f(2, 3)), t(f(4, 5)), equation="ij,kl->ljik"),
    ],
    "Det": [lambda op, t: op.Det(t(f(2, 3, 3)))],
}

SHAPE = {
    "Identity": [lambda op, t: op.Identity(t(f(2)))],
    "Dropout": [lambda op, t: op.Dropout(t(f(3, 4)), outputs=2)],
    "Reshape": [
        lambda op, t: op.Reshape(t(f(2, 3, 4)), ints(0, -1)),
        lambda op, t: op.Reshape(t(f(2, 3, 4)), op.Concat(t(ints(4)), ints(-1), axis=0)),
        lambda op, t: op.Reshape(t(f(1, 1)), np.zeros(0, np.int64)),
    ],
    "Flatten": [lambda op, t: op.Flatten(t(f(2, 3, 4)), axis=-1), lambda op, t: op.Flatten(t(f(2, 3)), axis=0)],
    "Squeeze": [lambda op, t: op.Squeeze(t(f(1, 3, 1)), ints(-1)), lambda op, t: op.Squeeze(t(f(1, 3, 1)))],
    "Unsqueeze": [lambda op, t: op.Unsqueeze(t(f(3, 4)), ints(0, -1))],
    "Transpose": [lambda op, t: op.Transpose(t(f(2, 3, 4)), perm=[1, 2, 0]), lambda op, t: op.Transpose(t(f(2, 3)))],
    "Concat": [lambda op, t: op.Concat(t(f(2, 3)), f(2, 1), axis=-1), lambda op, t: op.Concat(t(b(2)), t(b(3)), axis=0)],
    "Split": [
        lambda op, t: op.Split(t(f(2, 7)), axis=1, num_outputs=3, outputs=3),
        lambda op, t: op.Split(t(f(2, 7)), ints(3, 4), axis=1, outputs=2),
    ],
    "Shape": [lambda op, t: op.call("Shape", op.NonZero(t(np.float32([1, 0, 2]))), start=1)],
    "Size": [lambda op, t: op.Size(op.NonZero(t(np.float32([1, 0, 2]))))],
    "Expand": [
        lambda op, t: op.Expand(t(f(3, 1)), ints(2, 1, 4)),
        lambda op, t: op.Expand(t(f(3, 1)), t(ints(2, 3, 4))),
        lambda op, t: op.Expand(t(b(3, 1)), t(ints(3, 4))),
    ],
    "Tile": [lambda op, t: op.Tile(t(f(2, 3)), ints(2, 1)), lambda op, t: op.Tile(t(f(2, 3)), t(ints(1, 3)))],
    "ConstantOfShape": [lambda op, t: op.ConstantOfShape(t(ints(2, 3)), value=ir.tensor(np.array([7], np.int64)))],
    "Constant": [lambda op, t: op.Add(op.call("Constant", value=ir.tensor(f(300, 300))), t(f(1)))],
    "Range": [lambda op, t: op.Range(t(np.int64(1)), t(np.int64(9)), t(np.int64(3)))],
    "DepthToSpace": [
        lambda op, t: op.DepthToSpace(t(f(1, 8, 2, 3)), blocksize=2),
        lambda op, t: op.DepthToSpace(t(f(1, 8, 2, 3)), blocksize=2, mode="CRD"),
    ],
    "SpaceToDepth": [lambda op, t: op.SpaceToDepth(t(f(1, 2, 4, 6)), blocksize=2)],
    "Trilu": [
        lambda op, t: op.Trilu(t(f(4, 5))),
        lambda op, t: op.Trilu(t(f(2, 4, 5)), np.int64(-1), upper=0),
        lambda op, t: op.Trilu(t(i(4, 5)), t(np.int64(2))),
        lambda op, t: op.Trilu(t(b(4, 4)), upper=0),
    ],
    "EyeLike": [lambda op, t: op.EyeLike(t(f(3, 4)), k=1, dtype=6)],
}

INDEXING = {
    "Slice": [
        lambda op, t: op.Slice(t(f(5, 6)), ints(1, -3), ints(np.iinfo(np.int64).max, -1)),
        lambda op, t: op.Slice(t(f(5, 6)), ints(-1), ints(np.iinfo(np.int64).min), ints(1), ints(-2)),
        lambda op, t: op.Slice(t(f(5, 6)), t(ints(1)), t(ints(100)), ints(1)),
        lambda op, t: op.Slice(t(f(5, 6)), t(ints(4)), t(ints(-100)), ints(0), ints(-2)),
        lambda op, t: op.Slice(t(f(5, 6)), t(ints(-2)), t(ints(0)), t(ints(-1)), t(ints(-1))),
        lambda op, t: op.Slice(t(b(6)), ints(1), ints(4)),
    ],
    "Gather": [
        lambda op, t: op.Gather(t(f(5, 6)), ints(-1, 0, 2), axis=1),
        lambda op, t: op.Gather(t(f(5, 6)), t(ints(-1, 0, 2))),
        lambda op, t: op.Gather(t(b(5)), t(np.int64(-2))),
    ],
    "GatherElements": [
        lambda op, t: op.GatherElements(t(f(3, 4)), t(np.int64([[0, -1], [2, 1], [0, 0]])), axis=1),
        lambda op, t: op.GatherElements(t(f(3, 4)), np.int64([[0, -1], [2, 1]]), axis=0),
    ],
    "GatherND": [
        lambda op, t: op.GatherND(t(f(3, 4, 5)), t(np.int64([[0, -1], [2, 1]]))),
        lambda op, t: op.GatherND(t(f(3, 4, 5)), t(np.int64([[0], [-1], [2]])), batch_dims=1),
    ],
    "ScatterElements": [
        lambda op, t: op.ScatterElements(t(f(3, 4)), t(np.int64([[0, -1], [2, 1], [0, 3]])), t(f(3, 2)), axis=1),
        lambda op, t: op.ScatterElements(t(f(3, 4)), np.int64([[0, 0]]), t(f(1, 2)), axis=0, reduction="add"),
    ],
    "ScatterND": [
        lambda op, t: op.ScatterND(t(f(5, 3)), t(np.int64([[0], [-1]])), t(f(2, 3))),
        lambda op, t: op.ScatterND(t(f(5, 3)), np.int64([[0], [0]]), t(f(2, 3)), reduction="max"),
    ],
    "OneHot": [
        lambda op, t: op.OneHot(t(np.int64([0, -1, 3, 9])), np.int64(4), np.float32([0.5, 2.0])),
        lambda op, t: op.OneHot(t(np.int64([[0, 1], [2, 1]])), np.int64(3), t(ints(0, 7)), axis=1),
    ],
    "NonZero": [lambda op, t: op.NonZero(t(np.float32([[1, 0], [0, 2]])))],
    "Compress": [
        lambda op, t: op.Compress(t(f(3, 4)), np.array([True, False, True]), axis=0),
        lambda op, t: op.Compress(t(f(3, 4)), t(np.array([False, True, True]))),
    ],
    "ReverseSequence": [lambda op, t: op.ReverseSequence(t(f(4, 3)), t(ints(4, 2, 1)), time_axis=0, batch_axis=1)],
    "Pad": [
        lambda op, t: op.Pad(t(f(3, 4)), ints(1, 0, 0, 2), 1.5),
        lambda op, t: op.Pad(t(f(3, 4)), ints(-1, 1, 0, -2)),
        lambda op, t: op.Pad(t(i(3, 4)), ints(1, 0, 0, 2), np.int32(7)),
        lambda op, t: op.Pad(t(f(1, 3, 4)), ints(0, 1, 2, 0, 2, 1), mode="reflect"),
        lambda op, t: op.Pad(t(f(3, 4)), ints(2, 3), None, ints(0), mode="edge"),
        lambda op, t: op.Pad(t(i(3, 4)), ints(1, 2, 5, 0), mode="wrap"),
        lambda op, t: op.Pad(t(f(3, 4)), t(ints(1, 0, 0, 2)), t(np.float32(1.5))),
        lambda op, t: op.Pad(t(f(3, 4)), t(ints(1, 2)), None, t(ints(-1)), mode="reflect"),
    ],
}

GRID = f(2, 3, 5, 2, low=-1.2, high=1.2)
SIZES = (ints(2, 4, 14, 9), ints(2, 4, 3, 4))
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
IMAGES = {
    "Resize": [
        *(
            lambda op, t, m=m, c=c: op.Resize(t(IMAGE), None, None, SIZES[0], mode=m, coordinate_transformation_mode=c)
            for m in ("nearest", "linear", "cubic")
            for c in MODES
        ),
        lambda op, t: op.Resize(t(IMAGE), None, np.float32([1, 1, 2, 3]), mode="nearest", nearest_mode="ceil"),
        lambda op, t: op.Resize(t(IMAGE), None, None, SIZES[1], mode="linear", antialias=1),
        lambda op, t: op.Resize(t(IMAGE), None, None, SIZES[1], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5),
        lambda op, t: op.Resize(
            t(IMAGE), np.float32([0, 0, 0.2, -0.1, 1, 1, 0.8, 1.2]), None, SIZES[1], mode="linear", extrapolation_value=3.0,
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        lambda op, t: op.Resize(t(IMAGE), None, t(np.float32([1, 1, 1.4, 0.6])), mode="linear"),
        lambda op, t: op.Resize(t(LINE), None, None, ints(5), axes=[2], mode="linear"),
        *(
            lambda op, t, m=m, s=s: op.Resize(
                t(LINE), None, s(t, np.float32([0.3])), axes=[2], mode=m, coordinate_transformation_mode="pytorch_half_pixel"
            )
            for m in ("nearest", "linear")
            for s in (lambda t, scale: scale, lambda t, scale: t(scale))
        ),
        lambda op, t: op.Resize(t(i(1, 1, 3, 3, dtype=np.int32)), None, np.float32([1, 1, 2, 2])),
    ],
    "GridSample": [
        lambda op, t, a=a, p=p, m=m: op.GridSample(t(IMAGE), t(GRID), mode=m, padding_mode=p, align_corners=a)
        for a in (0, 1)
        for p in ("zeros", "border", "reflection")
        for m in ("linear", "nearest")
    ],
}  # fmt: skip

Q = {"x": i(2, 3, 5, 5, low=0, high=255, dtype=np.uint8), "w": i(4, 3, 3, 3, low=-9, high=9, dtype=np.int8)}
QUANT = {
    "QuantizeLinear": [
        lambda op, t: op.QuantizeLinear(t(f(3, 4) * 90), np.float32(0.7), np.uint8(120)),
        lambda op, t: op.QuantizeLinear(t(f(3, 4) * 90), np.float32([0.7, 1.1, 0.3]), np.int8([3, 0, -5]), axis=0),
    ],
    "DequantizeLinear": [
        lambda op, t: op.DequantizeLinear(t(i(3, 4, low=0, high=255, dtype=np.uint8)), np.float32(0.7), np.uint8(120)),
        lambda op, t: op.DequantizeLinear(t(i(3, 4, dtype=np.int8)), np.float32([0.7, 1.1, 0.3, 0.2])),
    ],
    "DynamicQuantizeLinear": [lambda op, t: op.DynamicQuantizeLinear(t(f(3, 4)), outputs=3)],
    "MatMulInteger": [
        lambda op, t: op.MatMulInteger(
            t(i(3, 4, low=0, high=255, dtype=np.uint8)), t(i(4, 5, low=0, high=255, dtype=np.uint8)), np.uint8(12), np.uint8(7)
        )
    ],
    "MatMulInteger of constant weights": [
        lambda op, t: op.MatMulInteger(
            t(i(3, 40, low=0, high=255, dtype=np.uint8)), i(40, 60, low=-127, high=127, dtype=np.int8), np.uint8(12)
        ),
        lambda op, t: op.MatMulInteger(  # sums that exceed exact float32, with zero points
            t(np.full((1, 2, 700), 255, np.uint8)), np.full((700, 5), 255, np.uint8), np.uint8(0), np.arange(5).astype(np.uint8)
        ),
    ],
    "QLinearMatMul": [
        lambda op, t: op.QLinearMatMul(
            t(i(3, 4, low=0, high=255, dtype=np.uint8)), np.float32(0.3), np.uint8(12),
            t(i(4, 5, low=0, high=255, dtype=np.uint8)), np.float32(0.2), np.uint8(7), np.float32(11.0), np.uint8(100),
        )
    ],
    "ConvInteger": [lambda op, t: op.ConvInteger(t(Q["x"]), t(i(4, 3, 3, 3, low=0, high=255, dtype=np.uint8)), np.uint8(3))],
    "ConvInteger of constant weights": [
        lambda op, t: op.ConvInteger(
            t(np.full((1, 300, 4, 4), 255, np.uint8)), np.full((8, 300, 3, 3), 127, np.int8), pads=[1, 1, 1, 1]
        ),
        lambda op, t: op.ConvInteger(
            t(i(1, 16, 9, 9, low=0, high=255, dtype=np.uint8)), i(16, 16, 3, 3, low=-127, high=127, dtype=np.int8), np.uint8(7),
            dilations=[2, 2],
        ),
        lambda op, t: op.ConvInteger(
            t(i(1, 4, 5, 5, low=0, high=255, dtype=np.uint8)), i(4, 2, 3, 3, low=0, high=255, dtype=np.uint8), np.uint8(7),
            np.uint8(3), group=2,
        ),
    ],
    "QLinearConv": [
        lambda op, t: op.QLinearConv(
            t(Q["x"]), np.float32(0.3), np.uint8(9), t(Q["w"]), np.float32([0.2, 0.1, 0.3, 0.2]), np.int8([0, 0, 0, 0]),
            np.float32(5.0), np.uint8(128), i(4, low=-50, high=50), pads=[1, 1, 1, 1],
        )
    ],
}  # fmt: skip


def _layer(name, gates, hidden, ways, **attrs):
    """A recurrent layer over 3 steps of a batch of 2 rows of 4."""
    weights = [f(ways, gates * hidden, 4), f(ways, gates * hidden, hidden), f(ways, 2 * gates * hidden)]

    def write(op, t, lengths=None, states=0, computed=False):
        given = [t(w) for w in weights] if computed else weights
        start = [t(f(ways, 2, hidden)) for _ in range(states)]
        count = 3 if name == "LSTM" else 2
        return op.call(name, t(f(3, 2, 4)), *given, lengths, *start, hidden_size=hidden, outputs=count, **attrs)

    return write


RECURRENT = {
    "LSTM": [
        _layer("LSTM", 4, 5, 1),
        _layer("LSTM", 4, 5, 2, direction="bidirectional"),
        lambda op, t: _layer("LSTM", 4, 5, 1, direction="reverse")(op, t, states=2),
        lambda op, t: _layer("LSTM", 4, 5, 2, direction="bidirectional")(op, t, lengths=np.int32([3, 1]), states=2),
        lambda op, t: _layer("LSTM", 4, 5, 1)(op, t, computed=True),
    ],
    "RNN": [
        _layer("RNN", 1, 5, 1),
        _layer("RNN", 1, 5, 1, activations=["Relu"], direction="reverse"),
        _layer("RNN", 1, 5, 2, direction="bidirectional"),
        lambda op, t: _layer("RNN", 1, 5, 2, direction="bidirectional", activations=["Relu", "Tanh"])(op, t, states=1),
    ],
    "GRU by expansion": [
        _layer("GRU", 3, 5, 1),
        _layer("GRU", 3, 5, 2, direction="bidirectional", linear_before_reset=1),
        lambda op, t: _layer("GRU", 3, 5, 1, direction="reverse")(op, t, lengths=np.int32([2, 3]), states=1),
    ],
}

CONTROL = {
    "If": [
        lambda op, t: _if(op, t(np.array(True)), t(f(3))),
        lambda op, t: _if(op, t(np.array(False)), t(f(3))),
        lambda op, t: _if_of_sizes(op, t(np.array(False)), t(f(3))),
        lambda op, t: _if_of_sequences(op, t(np.array(True)), t(f(3)), t(f(3))),
    ],
    "Loop": [
        lambda op, t: _loop(op, ints(5).reshape(()), t(f(3))),
        lambda op, t: _loop(op, t(np.int64(5)), t(f(3))),
        lambda op, t: _loop(op, np.int64(40), t(f(3))),
        lambda op, t: _collected(op, t(f(3))),
    ],
    "Scan": [
        lambda op, t: _scan(op, t(f(2)), t(f(4, 2)), scan_output_axes=[1]),
        lambda op, t: _scan(op, t(f(2)), t(f(50, 2)), scan_input_directions=[1], scan_output_directions=[1]),
    ],
}


def _scan(op, start, rows, **attrs):
    inner = Builder()
    state, row = (inner.input(n, ir.DataType.FLOAT, [2]) for n in ("state", "row"))
    new = inner.Mul(inner.Add(state, row), 0.5)
    body = inner.graph([state, row], [inner.output(new, "new"), inner.output(inner.Neg(row), "shown")], "body")
    results = op.Scan(start, rows, num_scan_inputs=1, body=body, outputs=2, **attrs)
    for result in results:
        result.type = ir.TensorType(ir.DataType.FLOAT)
    return results


def _if_of_sizes(op, cond, x):
    """The first branch has a static size, the second one a dynamic size that differs from it."""
    picked = lambda: op.Cast(op.Squeeze(op.NonZero(op.Greater(x, op.ReduceMin(x))), [0]), to=ir.DataType.FLOAT)  # noqa: E731
    return op.Relu(op.If(cond, then_branch=lambda: op.Neg(x), else_branch=picked))


def _if_of_sequences(op, cond, x, y):
    """Two sequences of the same length, of which one is selected."""
    pick = op.If(
        cond, then_branch=lambda: op.SequenceConstruct(x, y), else_branch=lambda: op.SequenceConstruct(y, op.Add(x, 1.0))
    )
    return op.ConcatFromSequence(pick, axis=0)


def _collected(op, x):
    """A loop that collects its results in a sequence."""

    def body(i, condition, rows):
        return condition, op.SequenceInsert(rows, op.Mul(x, op.Cast(i, to=ir.DataType.FLOAT)))

    return op.ConcatFromSequence(op.Loop(np.int64(40), True, op.SequenceConstruct(x), body=body, outputs=1), axis=0)


def _if(op, cond, x):
    return op.If(cond, then_branch=lambda: op.Add(x, 1.0), else_branch=lambda: x)


def _loop(op, count, x):
    def body(trip, going, state):
        new = op.Mul(op.Add(state, op.Cast(trip, to=1)), 0.5)
        return [going, new, op.Neg(state)]

    return op.Loop(count, True, x, body=body, outputs=2)


SEQUENCE = {
    "SequenceConstruct": [lambda op, t: op.ConcatFromSequence(op.SequenceConstruct(t(f(2, 3)), t(f(1, 3))), axis=0)],
    "ConcatFromSequence": [
        lambda op, t: op.ConcatFromSequence(op.SequenceConstruct(t(f(2, 3)), t(f(2, 3))), axis=1, new_axis=1),
    ],
    "SequenceAt": [
        lambda op, t: op.SequenceAt(op.SequenceConstruct(t(f(2)), t(f(3))), np.int64(-1)),
        lambda op, t: op.SequenceAt(op.SequenceConstruct(t(f(2)), t(f(2)), t(f(2))), t(np.array(-1, np.int64))),
    ],
    "SequenceInsert": [
        lambda op, t: op.ConcatFromSequence(
            op.SequenceInsert(op.SequenceConstruct(t(f(2)), t(f(3))), t(f(1)), np.int64(1)), axis=0
        )
    ],
    "SequenceEmpty": [lambda op, t: op.ConcatFromSequence(op.SequenceInsert(op.SequenceEmpty(), t(f(3))), axis=0)],
    "SequenceErase": [
        lambda op, t: op.ConcatFromSequence(op.SequenceErase(op.SequenceConstruct(t(f(2)), t(f(3))), np.int64(0)), axis=0)
    ],
    "SequenceLength": [lambda op, t: op.SequenceLength(op.SequenceConstruct(t(f(2)), t(f(3))))],
    "SplitToSequence": [
        lambda op, t: op.SequenceAt(op.SplitToSequence(t(f(5, 2)), np.int64(2)), np.int64(2)),
        lambda op, t: op.SequenceAt(op.SplitToSequence(t(f(5, 2)), keepdims=0), np.int64(1)),
    ],
    "Optional": [lambda op, t: op.OptionalGetElement(op.Optional(t(f(3))))],
    "OptionalGetElement": [lambda op, t: op.OptionalGetElement(t(f(3)))],
    "OptionalHasElement": [lambda op, t: op.OptionalHasElement(t(f(3)))],
}

ATTENTION = {
    "Attention": [
        lambda op, t: op.Attention(t(f(2, 3, 4, 8)), t(f(2, 3, 6, 8)), t(f(2, 3, 6, 8)), t(b(4, 6))),
        lambda op, t: op.Attention(t(f(2, 4, 24)), t(f(2, 6, 24)), t(f(2, 6, 24)), q_num_heads=3, kv_num_heads=3, is_causal=1),
        lambda op, t: op.Attention(t(f(2, 6, 4, 8)), t(f(2, 3, 6, 8)), t(f(2, 3, 6, 8)), scale=0.2, softcap=2.0),
        lambda op, t: op.Attention(
            t(f(2, 3, 4, 8)), t(f(2, 3, 6, 8)), t(f(2, 3, 6, 8)), None, t(f(2, 3, 2, 8)), t(f(2, 3, 2, 8)), is_causal=1, outputs=3
        ),
        lambda op, t: op.Attention(t(f(1, 1, 2, 8)), t(f(1, 1, 3, 8)), t(f(1, 1, 3, 8)), np.float32([[0, 0, 0], [-3.4e38] * 3])),
    ],
}

# Operators without a kernel in ONNX Runtime, compared with our executor.
WITHOUT_KERNEL = {
    "CumProd": [
        lambda op, t: op.CumProd(t(f(3, 5)), np.int64(1)),
        lambda op, t: op.CumProd(t(f(3, 5)), t(np.int64(-1)), exclusive=1, reverse=1),
        lambda op, t: op.CumProd(t(f(2)), np.int64(0), exclusive=1),
    ],
    "GlobalLpPool": [lambda op, t: op.GlobalLpPool(t(IMAGE), p=3)],
    "LRN of an even size": [lambda op, t: op.LRN(t(VOLUME), size=2, alpha=0.1, beta=0.5, bias=2.0)],
    "BitCast": [lambda op, t: op.BitCast(t(np.int8([-128, -1, 0, 5])), to=ir.DataType.UINT8)],
    "ai.onnx.preview::FlexAttention": [
        lambda op, t: op.call("FlexAttention", t(f(2, 4, 3, 8)), t(f(2, 2, 5, 8)), t(f(2, 2, 5, 6)), domain="ai.onnx.preview"),
    ],
    "Where of bool": [lambda op, t: op.Where(t(b(3, 4)), t(b(4)), t(b(3, 1)))],
    "by the standard's definition": [
        lambda op, t: op.AffineGrid(t(f(2, 2, 3)), ints(2, 3, 4, 5)),
        lambda op, t: op.CenterCropPad(t(f(5, 6)), ints(7, 3)),
        lambda op, t: op.MeanVarianceNormalization(t(IMAGE)),
        lambda op, t: op.SoftmaxCrossEntropyLoss(t(f(3, 5)), t(ints(1, 4, 0))),
    ],
}

FAMILIES = {
    "activation": ACTIVATION, "arithmetic": ARITHMETIC, "attention": ATTENTION, "control": CONTROL, "conv": CONV, "image": IMAGES,
    "indexing": INDEXING, "linalg": LINALG, "norm": NORM, "pooling": POOLING, "quant": QUANT, "recurrent": RECURRENT,
    "reduction": REDUCTION, "sequence": SEQUENCE, "shape": SHAPE,
}  # fmt: skip
