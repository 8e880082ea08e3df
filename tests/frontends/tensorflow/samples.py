# ruff: noqa: E501  one operator per line
"""One-line samples of TensorFlow operators, with the parameters of tf.raw_ops.

Arguments made by `f32`, `i32`, ... are inputs; all others are constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Input:
    """An input: its value, and which axes are dynamic."""

    value: np.ndarray
    dynamic: tuple[int, ...] = ()


@dataclass(eq=False)
class Sample:
    op: str
    args: dict[str, Any]
    outputs: tuple[int, ...] | None = None
    label: str = field(default="")


def _rng(shape):
    return np.random.default_rng(abs(hash(shape)) % 1000 + 7)


def f32(*shape, low=-2.0, high=2.0, dynamic=(), dtype=np.float32):
    return Input(_rng(shape).uniform(low, high, shape).astype(dtype), dynamic)


def f64(*shape, **kw):
    return f32(*shape, dtype=np.float64, **kw)


def pos(*shape, **kw):
    return f32(*shape, low=0.1, high=3.0, **kw)


def unit(*shape, **kw):
    return f32(*shape, low=-0.95, high=0.95, **kw)


def i32(*shape, low=-9, high=10, dynamic=(), dtype=np.int32):
    return Input(_rng(shape).integers(low, high, shape).astype(dtype), dynamic)


def i64(*shape, **kw):
    return i32(*shape, dtype=np.int64, **kw)


def u8(*shape, **kw):
    return i32(*shape, **{"low": 0, "high": 200, "dtype": np.uint8} | kw)


def flags(*shape):
    return Input(_rng(shape).integers(0, 2, shape).astype(bool))


def fed(value, dtype=np.float32, dynamic=()):
    return Input(np.array(value, dtype), dynamic)


def const(*shape, low=-1.0, high=1.0):
    return _rng((*shape, 3)).uniform(low, high, shape).astype(np.float32)


EDGES = fed([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-8, -1e-8, 0.4, -0.4, 3e4])
NHWC = ((1, 1, 1, 1), (1, 2, 2, 1), (1, 2, 3, 1))

SAMPLES: list[Sample] = []


def S(op: str, *, outputs=None, label="", **args: Any) -> None:
    SAMPLES.append(Sample(op, args, outputs, label))


# activation
for _op in ["Relu", "Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu"]:
    S(_op, features=f32(2, 5, low=-8, high=8))
    if _op.startswith("Relu"):
        S(_op, features=f64(3, low=-8, high=8))
S("LeakyRelu", features=f32(7), alpha=0.01)
S("Relu", features=i32(6))
S("Relu6", features=i32(6))
S("Sigmoid", x=f32(3, 4))
S("Softmax", logits=f32(2, 6))
S("LogSoftmax", logits=f32(2, 6))

# arithmetic
for _op in (
    "Abs", "Neg", "Sign", "Sqrt", "Floor", "Ceil", "Round", "Rint", "Sin", "Cos", "Tan", "Exp", "Erf", "Erfc", "Tanh", "Square",
    "Sinh", "Cosh", "Asinh", "Atan",
):  # fmt: skip
    S(_op, x=f32(3, 5) if _op != "Sqrt" else pos(3, 5))
for _op in ["Log", "Rsqrt", "Reciprocal", "Inv"]:
    S(_op, x=pos(3, 5))
for _op in ["Asin", "Acos", "Atanh"]:
    S(_op, x=unit(9))
S("Acosh", x=f32(6, low=1.01, high=4))
S("Round", x=fed([0.5, 1.5, 2.5, -0.5, -1.5]))
for _op in ["Expm1", "Log1p"]:
    S(_op, x=f32(40, low=-0.9, high=3))
    S(_op, x=fed([1e-7, -1e-7, 1e-5, -3e-4, 1e-3, 0.0, 0.49, 0.51, np.inf]))
for _op in ["IsNan", "IsInf", "IsFinite"]:
    S(_op, x=EDGES)
for _op in ["Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "Div"]:
    S(_op, x=f32(2, 3, 4), y=pos(4) if _op not in ("Add",) else pos(2, 3, 4))
for _op in ["AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference"]:
    S(_op, x=i32(3, 4), y=i32(4))
for _op in ["FloorDiv", "FloorMod", "Mod"]:
    S(_op, x=fed([7, -7, 7, -7, 6, -6, 0], np.int32), y=fed([3, 3, -3, -3, 3, 3, 2], np.int32))
    S(_op, x=fed([7.5, -7.5, 7.5, -7.5, 6, -6, 0]), y=fed([3, 3, -3, -3, 3, 3, 2]))
S("FloorDiv", x=u8(5), y=fed([3, 4, 5, 6, 7], np.uint8))
S("TruncateDiv", x=fed([7, -7, 7, -7], np.int32), y=fed([3, 3, -3, -3], np.int32))
S("TruncateMod", x=fed([7, -7, 7, -7], np.int32), y=fed([3, 3, -3, -3], np.int32))
S("TruncateMod", x=fed([7.5, -7.5, 7.5]), y=fed([2.0, 2.0, -2.0]))
S("Pow", x=pos(4), y=f32(4))
S("Pow", x=i32(4), y=fed([2, 3, 0, 1], np.int32))
S("Atan2", y=fed([1, -1, 1, -1, 0, 0, -0.0, 2, -2, 0, 3]), x=fed([1, 1, -1, -1, 1, -1, -1, 0, 0, 0, 1e-3]))
for _op in ["Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"]:
    S(_op, x=i32(20, low=0, high=3), y=i32(20, low=0, high=3, dynamic=(0,)))
    S(_op, x=f32(3, 4), y=f32(4))
for _op in ["LogicalAnd", "LogicalOr"]:
    S(_op, x=flags(4, 5), y=flags(5))
S("LogicalNot", x=flags(6))
for _op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
    S(_op, x=i32(7), y=i32(7, low=0))
S("Invert", x=i32(5))
S("LeftShift", x=u8(5), y=fed([0, 1, 2, 3, 4], np.uint8))
S("RightShift", x=u8(5), y=fed([0, 1, 2, 3, 4], np.uint8))
S("AddN", inputs=[f32(2, 3), pos(2, 3), unit(2, 3)])
S("AddN", inputs=[i32(2, 3), i32(2, 3, low=0)])
S("AddN", inputs=[f32(2)])
S("BiasAdd", value=f32(2, 3, 4, 5), bias=const(5))
S("BiasAdd", value=f32(2, 3, 4, 5), bias=const(3), data_format="NCHW")
S("DivNoNan", x=f32(4), y=fed([0, 1, 0, -2]))
S("MulNoNan", x=fed([np.inf, 1, np.nan, 2]), y=fed([0, 1, 0, -2]))
S("Xdivy", x=fed([0, 1, 0, 2]), y=fed([0, 2, 3, -2]))
S("Xlogy", x=fed([0, 1, 0, 2]), y=fed([0, 2, 3, 1]))
S("Xlog1py", x=fed([0, 1, 0, 2]), y=fed([-1, 2, 3, 1e-6]))
S("ClipByValue", t=f32(3, 5), clip_value_min=np.float32(-1), clip_value_max=np.float32(0.5))
S("ApproximateEqual", x=fed([1, 2, 3]), y=fed([1, 2.1, 3]), tolerance=1e-3)
S("Select", condition=flags(3, 4), x=f32(3, 4), y=pos(3, 4))
S("Select", condition=flags(3), x=f32(3, 4), y=pos(3, 4), label="per row")
S("SelectV2", condition=flags(3, 1), t=f32(4), e=pos(3, 4))
S("Cast", x=f32(9, low=-50, high=50), DstT="int32")
S("Cast", x=f32(9, low=0, high=50), DstT="uint8")
S("Cast", x=i32(9), DstT="float64")
S("Cast", x=i32(9, low=-2, high=2), DstT="bool")
S("Cast", x=f32(9), DstT="float16")
S("Cast", x=f32(9), DstT="float64", Truncate=True)
for _op in ["Identity", "StopGradient", "PreventGradient", "Snapshot"]:
    S(_op, input=f32(3))
S("CheckNumerics", tensor=f32(3), message="m")
S("CheckNumericsV2", tensor=f32(3), message="m")
S("PlaceholderWithDefault", input=f32(3), shape=[3])
S("IdentityN", input=[f32(3), i32(2)])
S("EnsureShape", input=f32(3, 4, dynamic=(0,)), shape=[3, 4])

# reduction
for _op in ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"]:
    S(_op, input=f32(3, 4, 5), axis=[1])
    S(_op, input=f32(3, 4, 5, dynamic=(0,)), axis=[-1, 0], keep_dims=True)
    S(_op, input=f32(3, 4), axis=[0, 1])
for _op in ["Sum", "Mean", "Prod", "Max", "Min"]:
    S(_op, input=i32(3, 4), axis=[1])
S("Sum", input=f32(3, 4), axis=np.zeros(0, np.int32), label="no axes")
for _op in ["All", "Any"]:
    S(_op, input=flags(3, 4), axis=[1])
    S(_op, input=flags(3, 4), axis=[0, 1], keep_dims=True)
for _op in ["ArgMax", "ArgMin"]:
    S(_op, input=f32(4, 6), dimension=1)
    S(_op, input=f32(4, 6), dimension=-2, output_type="int32")
    S(_op, input=fed([[1, 3, 3, 1]]), dimension=1, label="ties")
for _op in ["Cumsum", "Cumprod"]:
    S(_op, x=f32(4, 3), axis=0)
    S(_op, x=f32(4, 3), axis=-1, exclusive=True)
    S(_op, x=f32(4, 3), axis=1, reverse=True)
    S(_op, x=f32(4, 3), axis=1, reverse=True, exclusive=True)
S("TopKV2", input=f32(3, 9), k=4)
S("TopKV2", input=f32(9), k=fed(3, np.int32))
S("L2Loss", t=f32(3, 4))

# linalg
S("MatMul", a=f32(3, 4), b=const(4, 5))
S("MatMul", a=f32(4, 3), b=const(5, 4), transpose_a=True, transpose_b=True)
S("MatMul", a=f32(3, 4, dynamic=(0,)), b=f32(4, 2))
S("BatchMatMul", x=f32(2, 3, 4), y=f32(2, 4, 5))
S("BatchMatMulV2", x=f32(2, 1, 3, 4), y=f32(5, 6, 4), adj_y=True)
S("BatchMatMulV2", x=f32(2, 4, 3), y=f32(4, 5), adj_x=True)
S("BatchMatMulV3", x=f32(2, 3, 4), y=f32(4, 5), Tout="float32")
S("Einsum", inputs=[f32(2, 3, 4), f32(4, 5, 6)], equation="abc,cde->abde")
S("Einsum", inputs=[f32(2, 3, 4, 5), f32(2, 6, 4, 5)], equation="aecd,abcd->acbe")
for _low, _up in ((-1, 0), (0, -1), (1, 2), (0, 0), (-1, -1)):
    S("MatrixBandPart", input=f32(2, 4, 5), num_lower=_low, num_upper=_up)

# shape
S("Reshape", tensor=f32(2, 6), shape=[3, -1])
S("Reshape", tensor=f32(2, 6, dynamic=(0,)), shape=[-1, 3, 2])
S("Reshape", tensor=f32(2, 6), shape=fed([4, 3], np.int32), label="shape fed")
S("Squeeze", input=f32(1, 3, 1))
S("Squeeze", input=f32(1, 3, 1), axis=[-1])
S("ExpandDims", input=f32(2, 3), axis=-1)
S("Transpose", x=f32(2, 3, 4), perm=[2, 0, 1])
S("ConcatV2", values=[f32(2, 3), f32(2, 4)], axis=-1)
S("Concat", values=[f32(2, 3), f32(1, 3)], concat_dim=0)
S("Pack", values=[f32(2, 3), pos(2, 3)], axis=1)
S("Pack", values=[f32(2), pos(2)], axis=-1)
S("Unpack", value=f32(3, 2), num=3, axis=0)
S("Unpack", value=f32(3, 2), num=2, axis=-1, outputs=(1,))
S("Unpack", value=f32(3, 1), num=1, axis=1)
S("Split", value=f32(4, 6), axis=1, num_split=3)
S("Split", value=f32(4, 6), axis=-1, num_split=1)
S("SplitV", value=f32(4, 6), size_splits=[1, -1, 2], axis=1, num_split=3)
S("Tile", input=f32(2, 3), multiples=[2, 1])
S("Tile", input=f32(2, 3), multiples=fed([1, 3], np.int32))
S("Shape", input=f32(2, 3, dynamic=(0,)))
S("Shape", input=f32(2, 3, dynamic=(1,)), out_type="int64")
S("ShapeN", input=[f32(2, 3, dynamic=(0,)), f32(4, dynamic=(0,))])
S("Size", input=f32(2, 3, dynamic=(0,)))
S("Rank", input=f32(2, 3))
S("Fill", dims=[2, 3], value=f32())
S("Fill", dims=fed([2, 3], np.int32), value=np.float32(1.5))
S("BroadcastTo", input=f32(3, 1), shape=[2, 3, 4])
S("ZerosLike", x=f32(2, 3, dynamic=(0,)))
S("OnesLike", x=i32(2, 3, dynamic=(0,)))
S("Pad", input=f32(2, 3), paddings=[[1, 0], [2, 3]])
S("Pad", input=f32(2, 3), paddings=fed([[1, 0], [2, 3]], np.int32), label="paddings fed")
S("PadV2", input=f32(), paddings=np.zeros((0, 2), np.int32), constant_values=np.float32(7))
S("PadV2", input=f32(2, 3), paddings=[[1, 0], [2, 3]], constant_values=np.float32(7))
S("MirrorPad", input=f32(3, 4), paddings=[[1, 2], [2, 3]], mode="REFLECT")
S("MirrorPad", input=f32(3, 4), paddings=[[1, 3], [2, 0]], mode="SYMMETRIC")
S("SpaceToDepth", input=f32(1, 4, 6, 3), block_size=2)
S("DepthToSpace", input=f32(1, 2, 3, 12), block_size=2)
S("SpaceToBatchND", input=f32(1, 5, 6, 2), block_shape=[2, 3], paddings=[[0, 1], [0, 0]])
S("SpaceToBatchND", input=f32(2, 4, 6, 2, dynamic=(0,)), block_shape=[2, 2], paddings=[[0, 0], [2, 0]])
S("BatchToSpaceND", input=f32(6, 3, 2, 2), block_shape=[2, 3], crops=[[0, 1], [1, 0]])
S("BatchToSpaceND", input=f32(4, 3, 2, 2, dynamic=(0,)), block_shape=[2, 2], crops=[[0, 0], [0, 0]])
S("InvertPermutation", x=np.array([2, 0, 1], np.int32))
S("Range", start=fed(1, np.int32), limit=fed(9, np.int32), delta=fed(3, np.int32))
S("LinSpace", start=f32(), stop=np.float32(4), num=5)
S("LinSpace", start=f32(), stop=np.float32(4), num=1)
S("Roll", input=f32(4, 5), shift=[2], axis=[1])
S("Roll", input=f32(4, 5), shift=[-1, 7], axis=[0, -1])

# indexing
S("Gather", params=f32(5, 3), indices=fed([4, 0], np.int32))
S("GatherV2", params=f32(5, 3), indices=fed([[2, 0], [1, 1]], np.int32), axis=1)
S("GatherV2", params=f32(2, 5, 3), indices=fed([[2, 0], [4, 1]], np.int32), axis=1, batch_dims=1)
S("GatherV2", params=f32(2, 3, 5), indices=fed([[2, 0, 4], [4, 1, 1]], np.int32), axis=2, batch_dims=1)
S("GatherV2", params=f32(2, 5), indices=fed([2, 0], np.int32), axis=1, batch_dims=1)
S("GatherV2", params=f32(2, 5), indices=fed([[2, 0], [1, 1]], np.int32), axis=1, batch_dims=-1)
S("GatherNd", params=f32(4, 5), indices=fed([[0, 1], [3, 4]], np.int32))
S("GatherNd", params=f32(4, 5), indices=fed([[2], [3]], np.int64))
S("ScatterNd", indices=fed([[1], [3], [1]], np.int32), updates=f32(3, 2), shape=[5, 2])
for _op in ["TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"]:
    S(_op, tensor=f32(5, 2), indices=fed([[1], [3]], np.int32), updates=f32(2, 2))
S("Slice", input=f32(4, 5, 6), begin=[1, 0, 2], size=[2, -1, 3])
S("Slice", input=f32(4, 5), begin=fed([1, 2], np.int32), size=[2, -1], label="begin fed")
for _begin, _end, _steps, _masks in (
    ([1, 0], [3, 4], [1, 2], {}),
    ([0, 1], [0, 4], [1, 1], {"begin_mask": 1, "end_mask": 1}),
    ([-1, 4], [0, 0], [-1, -2], {"end_mask": 1}),
    ([2, 0], [3, 0], [1, 1], {"shrink_axis_mask": 1, "end_mask": 2}),
    ([-1], [0], [1], {"shrink_axis_mask": 1}),
    ([0, 1], [0, 3], [1, 1], {"ellipsis_mask": 1}),
    ([0, 0, 1], [0, 0, 3], [1, 1, 1], {"new_axis_mask": 1, "ellipsis_mask": 2}),
    ([1, 0, 2], [2, 0, 3], [1, 1, 1], {"shrink_axis_mask": 5, "new_axis_mask": 2}),
    ([0, 0, -2], [0, 0, 9], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
    ([-9, 1], [9, -1], [1, 1], {}),
):
    S("StridedSlice", input=f32(4, 5, 6), begin=_begin, end=_end, strides=_steps, label=str(_masks), **_masks)
S("StridedSlice", input=f32(7, 3), begin=fed([1], np.int32), end=fed([5], np.int32), strides=[2], label="fed")
S("StridedSlice", input=f32(7, 3), begin=fed([2], np.int32), end=fed([3], np.int32), strides=[1], shrink_axis_mask=1, label="pick fed")
S("OneHot", indices=fed([0, 2, -1, 5], np.int32), depth=4, on_value=np.float32(2), off_value=np.float32(-1))
S("OneHot", indices=fed([[0, 2]], np.int64), depth=3, on_value=True, off_value=False, axis=1)
S("ReverseV2", tensor=f32(3, 4), axis=[-1, 0])
S("ReverseSequence", input=f32(3, 5, 2), seq_lengths=fed([2, 5, 0], np.int32), seq_dim=1, batch_dim=0)
S("ReverseSequence", input=f32(5, 3), seq_lengths=fed([2, 5, 1], np.int64), seq_dim=0, batch_dim=1)
S("Where", condition=flags(3, 4))
S("Where", condition=fed([0, 1, 0, 2]))
S("ResizeBilinear", images=f32(2, 5, 4, 3, dynamic=(0, 1, 2)), size=fed([7, 8], np.int32), label="size fed")

# conv
for _strides in NHWC[:2]:
    for _padding in ("SAME", "VALID"):
        S("Conv2D", input=f32(2, 9, 10, 3), filter=const(3, 2, 3, 4), strides=_strides, padding=_padding)
        S("DepthwiseConv2dNative", input=f32(2, 9, 10, 3), filter=const(3, 2, 3, 2), strides=_strides, padding=_padding)
S("Conv2D", input=f32(1, 7, 7, 3), filter=const(3, 3, 3, 4), strides=[1] * 4, padding="EXPLICIT", explicit_paddings=[0, 0, 2, 1, 0, 3, 0, 0])
S("Conv2D", input=f32(1, 9, 9, 3), filter=const(3, 3, 3, 4), strides=[1] * 4, padding="SAME", dilations=[1, 2, 3, 1])
S("Conv2D", input=f32(1, 9, 9, 4), filter=const(3, 3, 2, 6), strides=[1] * 4, padding="SAME", label="groups")
S("Conv2D", input=f32(1, 9, 8, 3, dynamic=(0, 1, 2)), filter=const(3, 4, 3, 4), strides=[1] * 4, padding="SAME", label="size open")
S("Conv2D", input=f32(1, 9, 8, 3, dynamic=(0, 1, 2)), filter=const(3, 4, 3, 4), strides=[1, 2, 2, 1], padding="SAME", label="size open")
S("Conv2D", input=f32(1, 5, 5, 2), filter=f32(2, 2, 2, 3), strides=[1] * 4, padding="VALID", label="filter fed")
S("DepthwiseConv2dNative", input=f32(1, 9, 9, 3), filter=const(3, 3, 3, 1), strides=[1] * 4, padding="SAME", dilations=[1, 2, 2, 1])
for _padding in ("SAME", "VALID"):
    S("Conv3D", input=f32(1, 5, 6, 7, 2), filter=const(2, 3, 3, 2, 4), strides=[1, 1, 2, 2, 1], padding=_padding)
    S(
        "Conv2DBackpropInput", input_sizes=[2, 9, 10, 3] if _padding == "SAME" else [2, 11, 11, 3], filter=const(3, 3, 3, 4),
        out_backprop=f32(2, 5, 5, 4), strides=[1, 2, 2, 1], padding=_padding,
    )  # fmt: skip
S("Conv2DBackpropInput", input_sizes=[1, 12, 12, 3], filter=const(3, 3, 3, 4), out_backprop=f32(1, 5, 5, 4), strides=[1, 2, 2, 1], padding="VALID")
S("Conv2DBackpropInput", input_sizes=[1, 10, 9, 3], filter=const(2, 2, 3, 4), out_backprop=f32(1, 4, 3, 4), strides=[1, 3, 3, 1], padding="SAME")
S("Conv3DBackpropInputV2", input_sizes=[1, 6, 6, 6, 2], filter=const(3, 3, 3, 2, 4), out_backprop=f32(1, 3, 3, 3, 4), strides=[1, 2, 2, 2, 1], padding="SAME")

# pooling
for _op, _name in (("MaxPool", "input"), ("AvgPool", "value")):
    for _strides in NHWC:
        for _padding in ("SAME", "VALID"):
            S(_op, **{_name: f32(2, 7, 8, 3)}, ksize=[1, 3, 2, 1], strides=_strides, padding=_padding)
S("MaxPool", input=f32(1, 6, 6, 2), ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 1, 0, 0, 0])
S("MaxPoolV2", input=f32(1, 6, 6, 2), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
for _op in ("MaxPool3D", "AvgPool3D"):
    S(_op, input=f32(1, 5, 6, 5, 2), ksize=[1, 2, 3, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME")

# norm
for _op in ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]:
    S(
        _op, x=f32(2, 3, 4, 5), scale=const(5, low=0.5), offset=const(5), mean=const(5), variance=const(5, low=0.5, high=2),
        is_training=False, epsilon=1e-3, outputs=(0,),
    )  # fmt: skip
S("LRN", input=f32(1, 3, 3, 8), depth_radius=2, bias=1.5, alpha=0.3, beta=0.75)

# image
for _op in ["ResizeNearestNeighbor", "ResizeBilinear"]:
    for _size in ([8, 10], [3, 2], [7, 5], [11, 9]):
        S(_op, images=f32(1, 5, 4, 3), size=_size)
        S(_op, images=f32(1, 5, 4, 3), size=_size, align_corners=True)
        S(_op, images=f32(1, 5, 4, 3), size=_size, half_pixel_centers=True)
S("ResizeBilinear", images=u8(1, 5, 4, 3), size=[8, 10], half_pixel_centers=True)
for _flags in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
    S("ResizeBicubic", images=f32(2, 5, 6, 2), size=[9, 11], **_flags)
    S("ResizeBicubic", images=u8(1, 8, 9, 2), size=[5, 4], **_flags)
for _kernel in ["triangle", "box", "lanczos1", "lanczos3", "lanczos5", "gaussian", "keyscubic", "mitchellcubic"]:
    S("ScaleAndTranslate", images=f32(1, 9, 8, 2), size=[5, 13], scale=[5 / 9, 13 / 8], translation=[0.0, 0.0], kernel_type=_kernel, label=_kernel)
    S("ScaleAndTranslate", images=f32(1, 9, 8, 2), size=[5, 13], scale=[0.6, 1.6], translation=[0.7, -1.2], kernel_type=_kernel, antialias=False, label=_kernel)
for _old, _new, _flags in ((2, 82, {}), (4, 75, {"align_corners": True}), (2, 41, {"half_pixel_centers": True})):
    S("ResizeNearestNeighbor", images=f32(1, _old, 3, 2), size=[_new, 5], label="rounding", **_flags)
S("AdjustContrastv2", images=f32(2, 4, 5, 3), contrast_factor=np.float32(1.7))
S("ExtractImagePatches", images=f32(2, 7, 8, 3), ksizes=[1, 3, 2, 1], strides=[1, 2, 1, 1], rates=[1, 1, 2, 1], padding="VALID")

for _op in ["Sum", "Prod", "Max", "Min"]:
    S("UnsortedSegment" + _op, data=f32(5, 2), segment_ids=fed([0, 3, -1, 0, 1], np.int32), num_segments=5)
    S("UnsortedSegment" + _op, data=i32(2, 3), segment_ids=fed([[0, 1, 0], [2, 2, 0]], np.int32), num_segments=3)
S("SegmentSum", data=f32(5, 2), segment_ids=fed([0, 0, 2, 2, 3], np.int32))
S("Bucketize", input=fed([-1, 0, 0.5, 2, 7]), boundaries=[0.0, 0.5, 3.0])
S("Bucketize", input=i32(5), boundaries=[-2.0, 0.0, 3.0])
S("DenseBincount", input=fed([[1, 2, 2, 9], [0, 0, 0, 3]], np.int32), size=4, weights=np.zeros(0, np.float32))
S("DenseBincount", input=fed([1, 2, 2, 9], np.int32), size=4, weights=np.zeros(0, np.float32), binary_output=True)
S("DenseBincount", input=fed([1, 2, 2], np.int32), size=4, weights=f32(3))
S("DenseBincount", input=fed(2, np.int32), size=4, weights=np.zeros(0, np.float32))
S(
    "NonMaxSuppressionV3", boxes=fed([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.6, 1, 11.6]]), scores=fed([0.9, 0.75, 0.6, 0.95]),
    max_output_size=3, iou_threshold=0.5, score_threshold=0.1,
)  # fmt: skip
S("MatrixDiagPartV3", input=f32(2, 3, 4), k=0, padding_value=np.float32(0))
S("MatrixDiagV3", diagonal=f32(2, 3), k=0, num_rows=-1, num_cols=-1, padding_value=np.float32(0))
S("Cross", a=f32(4, 3), b=pos(4, 3))
S("BroadcastArgs", s0=fed([2, 1, 3], np.int32), s1=fed([4, 1], np.int32))
