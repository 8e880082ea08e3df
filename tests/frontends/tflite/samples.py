# ruff: noqa: E501  one operator per line
"""One-line samples of TensorFlow Lite operators: inputs, constants (`c`) and options by the schema's names.

A sample is also run with its floats quantized to int8 where it says `q`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.frontends.tflite.build import T


@dataclass(eq=False)
class Sample:
    op: str
    inputs: list[T | None]
    options: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    label: str = ""
    custom: bytes = b""
    q: bool = False
    out_scale: float = 0.05
    version: int = 1


def _rng(shape):
    return np.random.default_rng(abs(hash(shape)) % 1000 + 7)


def f32(*shape, low=-2.0, high=2.0, dynamic=()):
    return T(_rng(shape).uniform(low, high, shape).astype(np.float32), dynamic=dynamic)


def pos(*shape):
    return f32(*shape, low=0.1, high=3.0)


def i32(*shape, low=-9, high=10, dtype=np.int32):
    return T(_rng(shape).integers(low, high, shape).astype(dtype))


def flags(*shape):
    return T(_rng(shape).integers(0, 2, shape).astype(bool))


def state(*shape):
    """A variable, which starts at zero."""
    return T(type="FLOAT32", shape=shape, variable=True)


def c(value, dtype=np.int32):
    """A constant: a tensor made one, or numbers."""
    if isinstance(value, T):
        return T(value.value, constant=True)
    return T(np.array(value, dtype), constant=True)


def S(op, *inputs, options="", out=(), label="", custom=b"", q=False, out_scale=0.05, version=1, **values):
    return Sample(op, list(inputs), options, values, tuple(out), label, custom, q, out_scale, version)


RELU, RELU6, N1 = ({"fused_activation_function": n} for n in ("RELU", "RELU6", "RELU_N1_TO_1"))
POOL = {"options": "Pool2DOptions", "stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 2}
CONV = {"options": "Conv2DOptions", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
DEPTH = {"options": "DepthwiseConv2DOptions", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
CONV3 = {"options": "Conv3DOptions", "stride_d": 1, "stride_w": 1, "stride_h": 1, "dilation_d_factor": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
BOXES = T(np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]], np.float32))
SCORES = T(np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32))

def z64(*shape):
    return T((_rng(shape).standard_normal((*shape, 2)) @ np.array([1, 1j])).astype(np.complex64))


SAMPLES = [
    *(S(op, f32(2, 3), q=True) for op in ("RELU", "RELU6", "RELU_N1_TO_1")),
    S("RELU_0_TO_1", f32(2, 3)),
    *(S(op, f32(2, 3)) for op in ("ABS", "EXP", "SIN", "COS", "NEG", "CEIL", "FLOOR", "ROUND", "SIGN", "SQUARE", "ELU", "ZEROS_LIKE")),
    *(S(op, pos(2, 3)) for op in ("LOG", "SQRT", "RSQRT")),
    S("LOGISTIC", f32(2, 3), q=True, out_scale=1 / 256),
    S("TANH", f32(2, 3), q=True, out_scale=1 / 128),
    S("HARD_SWISH", f32(2, 8), q=True),
    S("GELU", f32(2, 3), options="GeluOptions", approximate=False),
    S("GELU", f32(2, 3), options="GeluOptions", approximate=True, label="tanh"),
    S("LEAKY_RELU", f32(2, 3), options="LeakyReluOptions", alpha=0.3, q=True),
    S("PRELU", f32(1, 2, 3), c(pos(1, 1, 3))),
    S("SOFTMAX", f32(2, 5), options="SoftmaxOptions", beta=1.0, q=True, out_scale=1 / 256),
    S("SOFTMAX", f32(2, 5), options="SoftmaxOptions", beta=0.5, label="beta"),
    S("LOG_SOFTMAX", f32(2, 5)),
    S("ADD", f32(2, 3), f32(3), options="AddOptions", **RELU),
    S("ADD", f32(2, 3), f32(2, 3), options="AddOptions", q=True, label="same"),
    S("ADD", i32(2, 3), i32(3), options="AddOptions", label="int"),
    S("SUB", f32(2, 3), f32(3), options="SubOptions", **RELU6),
    S("SUB", f32(2, 3), f32(2, 3), options="SubOptions", q=True, label="same"),
    S("MUL", f32(2, 3), f32(3), options="MulOptions", **N1),
    S("MUL", f32(2, 3), f32(2, 3), options="MulOptions", q=True, label="same"),
    S("DIV", f32(2, 3), pos(3), options="DivOptions"),
    S("DIV", i32(2, 3), i32(3, low=1), options="DivOptions", label="int"),
    S("FLOOR_DIV", i32(2, 3), i32(3, low=1)), S("FLOOR_DIV", f32(2, 3), pos(3), label="float"),
    S("FLOOR_MOD", i32(2, 3), i32(3, low=1)), S("FLOOR_MOD", f32(2, 3), pos(3), label="float"),
    S("POW", pos(2, 3), f32(3)), S("MAXIMUM", f32(2, 3), f32(3)), S("MINIMUM", f32(2, 3), f32(3)),
    S("SQUARED_DIFFERENCE", f32(2, 3), f32(3)), S("ATAN2", f32(2, 3), f32(2, 3)),
    S("ADD_N", f32(2, 3), f32(2, 3), f32(2, 3)),
    *(S(op, i32(2, 3, low=0, high=3), i32(3, low=0, high=3), out=("BOOL",)) for op in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")),
    *(S(op, flags(2, 3), flags(3)) for op in ("LOGICAL_AND", "LOGICAL_OR")), S("LOGICAL_NOT", flags(2, 3)),
    S("BITWISE_XOR", i32(2, 3), i32(2, 3)), S("RIGHT_SHIFT", i32(2, 3, low=-99), i32(2, 3, low=0, high=5)),
    S("CAST", f32(2, 3, low=-20, high=20), options="CastOptions", in_data_type="FLOAT32", out_data_type="INT32", out=("INT32",)),
    S("CAST", i32(2, 3), options="CastOptions", in_data_type="INT32", out_data_type="FLOAT32", out=("FLOAT32",), label="float"),
    S("CAST", i32(2, 3, low=-1, high=2), options="CastOptions", in_data_type="INT32", out_data_type="BOOL", out=("BOOL",), label="bool"),
    S("SELECT", flags(2), f32(2, 3), f32(2, 3), out=("FLOAT32",)), S("SELECT_V2", flags(2, 1), f32(2, 3), f32(3), out=("FLOAT32",)),
    S("CONV_2D", f32(1, 7, 6, 3), c(f32(4, 3, 3, 3)), c(f32(4)), padding="SAME", q=True, out_scale=0.3, **CONV, **RELU),
    S("CONV_2D", f32(1, 8, 7, 3), c(f32(4, 3, 2, 3)), c(f32(4)), padding="VALID", label="strides", **{**CONV, "stride_w": 2, "stride_h": 3}),
    S("CONV_2D", f32(2, 8, 7, 3), c(f32(4, 3, 2, 3)), c(f32(4)), padding="SAME", label="dilations", **{**CONV, "dilation_w_factor": 2, "dilation_h_factor": 3}),
    S("CONV_2D", f32(1, 5, 5, 4), c(f32(6, 2, 2, 2)), c(f32(6)), padding="SAME", label="groups", **CONV),
    S("CONV_2D", T(np.zeros((1, 9, 9, 2), np.float32), dynamic=(0, 1, 2)), c(f32(4, 3, 3, 2)), c(f32(4)), padding="SAME", label="dynamic", **{**CONV, "stride_w": 2, "stride_h": 2}),
    S("DEPTHWISE_CONV_2D", f32(1, 7, 6, 3), c(f32(1, 3, 3, 6)), c(f32(6)), padding="SAME", depth_multiplier=2, q=True, out_scale=0.2, **DEPTH),
    S("DEPTHWISE_CONV_2D", f32(1, 7, 6, 3), c(f32(1, 3, 3, 3)), c(f32(3)), padding="VALID", depth_multiplier=1, label="strides", **{**DEPTH, "stride_w": 2, "stride_h": 2}, **RELU6),
    S("CONV_3D", f32(1, 4, 5, 6, 2), c(f32(2, 3, 3, 2, 4)), c(f32(4)), padding="SAME", **CONV3),
    S("CONV_3D_TRANSPOSE", c([1, 4, 5, 6, 3]), c(f32(2, 3, 3, 3, 2)), f32(1, 4, 5, 6, 2), c(f32(3)), padding="SAME", out=("FLOAT32",), **CONV3),
    S("TRANSPOSE_CONV", c([1, 8, 10, 3]), c(f32(3, 3, 3, 2)), f32(1, 4, 5, 2), options="TransposeConvOptions", padding="SAME", stride_w=2, stride_h=2, out=("FLOAT32",)),
    S("TRANSPOSE_CONV", c([1, 9, 11, 3]), c(f32(3, 3, 3, 2)), f32(1, 4, 5, 2), c(f32(3)), options="TransposeConvOptions", padding="VALID", stride_w=2, stride_h=2, out=("FLOAT32",), label="bias"),
    S("AVERAGE_POOL_2D", f32(1, 7, 6, 3), padding="SAME", q=True, **POOL), S("AVERAGE_POOL_2D", f32(1, 7, 6, 3), padding="VALID", label="valid", **POOL),
    S("MAX_POOL_2D", f32(1, 7, 6, 3), padding="SAME", q=True, **POOL), S("L2_POOL_2D", f32(1, 7, 6, 3), padding="SAME", **POOL),
    S("L2_NORMALIZATION", f32(2, 5), options="L2NormOptions"),
    S("LOCAL_RESPONSE_NORMALIZATION", f32(1, 2, 2, 7), options="LocalResponseNormalizationOptions", radius=2, bias=1.0, alpha=0.5, beta=0.75),
    S("FULLY_CONNECTED", f32(2, 3), c(f32(4, 3)), c(f32(4)), options="FullyConnectedOptions", q=True, out_scale=0.1, **RELU),
    S("FULLY_CONNECTED", f32(2, 5, 3), c(f32(4, 3)), None, options="FullyConnectedOptions", keep_num_dims=True, label="dims"),
    S("FULLY_CONNECTED", f32(2, 2, 3), c(f32(4, 6)), c(f32(4)), options="FullyConnectedOptions", label="flattened"),
    S("FULLY_CONNECTED", f32(2, 3), f32(4, 3), f32(4), options="FullyConnectedOptions", label="computed"),
    S("BATCH_MATMUL", f32(2, 3, 4), f32(2, 4, 5), options="BatchMatMulOptions"), S("BATCH_MATMUL", f32(2, 4, 3), f32(5, 4), options="BatchMatMulOptions", adj_x=True, adj_y=True, label="adj"),
    S("MATRIX_DIAG", f32(2, 3)), S("MATRIX_SET_DIAG", f32(2, 3, 3), f32(2, 3)), S("MATRIX_SET_DIAG", f32(2, 4, 3), f32(2, 3), label="tall"), S("MATRIX_SET_DIAG", f32(2, 3, 4), f32(2, 3), label="wide"),
    *(S(op, f32(2, 3, 4), c([1]), options="ReducerOptions", keep_dims=False) for op in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")),
    S("MEAN", f32(1, 4, 3, 5), c([1, 2]), options="ReducerOptions", keep_dims=True, q=True), S("SUM", f32(2, 3, 4), c([-1, 0]), options="ReducerOptions", keep_dims=True, label="two"),
    *(S(op, flags(2, 3), c([1]), options="ReducerOptions") for op in ("REDUCE_ALL", "REDUCE_ANY")),
    S("ARG_MAX", f32(2, 5), c([1]), options="ArgMaxOptions", output_type="INT32", out=("INT32",)), S("ARG_MIN", f32(2, 5), c(0), options="ArgMinOptions", output_type="INT64", out=("INT64",)),
    S("CUMSUM", f32(2, 5), c([1]), options="CumsumOptions", exclusive=True, reverse=True),
    S("TOPK_V2", f32(2, 5), c(2), out=("FLOAT32", "INT32")),
    S("RESHAPE", f32(2, 3, 4), c([4, -1]), q=True), S("RESHAPE", f32(2, 3, 4), options="ReshapeOptions", new_shape=[6, 4], label="options"), S("RESHAPE", f32(1, 1), c(np.zeros(0)), label="scalar"),
    S("RESHAPE", f32(2, 3, 4), T(np.array([4, 6], np.int32)), label="computed"),
    S("SQUEEZE", f32(1, 3, 1), options="SqueezeOptions", squeeze_dims=[0]), S("SQUEEZE", f32(1, 3, 1), options="SqueezeOptions", squeeze_dims=[], label="all"),
    S("EXPAND_DIMS", f32(2, 3), c([1])), S("TRANSPOSE", f32(2, 3, 4), c([2, 0, 1]), q=True),
    S("CONCATENATION", f32(2, 3), f32(2, 3), options="ConcatenationOptions", axis=-1, q=True), S("CONCATENATION", f32(2, 3), f32(4, 3), options="ConcatenationOptions", axis=0, label="first"),
    S("PACK", f32(2, 3), f32(2, 3), options="PackOptions", values_count=2, axis=1), S("UNPACK", f32(2, 3), options="UnpackOptions", num=3, axis=1, out=("FLOAT32",) * 3),
    S("SPLIT", c(1), f32(2, 6), options="SplitOptions", num_splits=3, out=("FLOAT32",) * 3), S("SPLIT_V", f32(2, 6), c([1, -1, 2]), c(1), options="SplitVOptions", num_splits=3, out=("FLOAT32",) * 3),
    S("TILE", f32(2, 3), c([2, 3])), S("SHAPE", f32(2, 3), options="ShapeOptions", out_type="INT64", out=("INT64",)), S("RANK", f32(2, 3), out=("INT32",)),
    S("FILL", T(np.array([2, 3], np.int32)), f32(), out=("FLOAT32",)), S("BROADCAST_TO", f32(3), c([2, 3]), version=2), S("BROADCAST_ARGS", T(np.array([2, 1], np.int32)), T(np.array([3], np.int32))),
    S("PAD", f32(2, 3), c([[1, 0], [2, 1]]), q=True), S("PADV2", f32(2, 3), c([[1, 0], [2, 1]]), c([5.5], np.float32)),
    S("MIRROR_PAD", f32(3, 4), c([[1, 2], [0, 3]]), options="MirrorPadOptions", mode="REFLECT"), S("MIRROR_PAD", f32(3, 4), c([[1, 2], [0, 3]]), options="MirrorPadOptions", mode="SYMMETRIC", label="symmetric"),
    S("SPACE_TO_DEPTH", f32(1, 4, 6, 3), options="SpaceToDepthOptions", block_size=2), S("DEPTH_TO_SPACE", f32(1, 2, 3, 8), options="DepthToSpaceOptions", block_size=2),
    S("SPACE_TO_BATCH_ND", f32(1, 4, 5, 2), c([2, 3]), c([[0, 0], [1, 0]])), S("BATCH_TO_SPACE_ND", f32(6, 2, 3, 2), c([2, 3]), c([[0, 1], [2, 0]])),
    S("RANGE", T(np.array(1, np.int32)), T(np.array(9, np.int32)), T(np.array(3, np.int32))),
    S("GATHER", f32(4, 3), i32(2, 2, low=0, high=3), options="GatherOptions", axis=1), S("GATHER", f32(2, 4, 3), i32(2, 2, low=0, high=4), options="GatherOptions", axis=1, batch_dims=1, label="batch"),
    S("GATHER_ND", f32(3, 4, 2), i32(5, 2, low=0, high=3)), S("EMBEDDING_LOOKUP", i32(4, low=0, high=5), f32(5, 3), out=("FLOAT32",)),
    S("SCATTER_ND", c([[1], [3], [1]]), f32(3, 2), c([5, 2]), out=("FLOAT32",)),
    S("SLICE", f32(4, 5), c([1, 2]), c([2, -1]), q=True), S("SLICE", f32(4, 5), T(np.array([1, 2], np.int32)), c([2, 3]), label="computed"),
    S("STRIDED_SLICE", f32(4, 5, 6), c([1, 0, 4]), c([4, 1, 0]), c([2, 1, -2]), options="StridedSliceOptions", shrink_axis_mask=2), S("STRIDED_SLICE", f32(4, 5), c([1, 1]), c([2, 3]), c([1, 1]), options="StridedSliceOptions", offset=True, label="offset", version=8),
    S("DYNAMIC_UPDATE_SLICE", f32(4, 5), f32(2, 3), T(np.array([1, 9], np.int32))), S("DYNAMIC_UPDATE_SLICE", f32(4, 5), f32(4, 2), T(np.array([1, 1], np.int32)), label="columns"),
    S("ONE_HOT", i32(4, low=-1, high=4), c(3), c(2.0, np.float32), c(-1.0, np.float32), options="OneHotOptions", axis=-1, out=("FLOAT32",)),
    S("REVERSE_V2", f32(2, 3), c([1])), S("REVERSE_SEQUENCE", f32(3, 4, 2), T(np.array([1, 4, 2], np.int32)), options="ReverseSequenceOptions", seq_dim=1, batch_dim=0),
    S("WHERE", flags(3, 4), out=("INT64",)), S("UNIQUE", i32(9, low=0, high=4), options="UniqueOptions", idx_out_type="INT32", out=("INT32", "INT32")),
    *(S(f"UNSORTED_SEGMENT_{k}", f32(4, 3), i32(4, low=0, high=3), c(4)) for k in ("SUM", "PROD", "MAX", "MIN")),
    S("SEGMENT_SUM", f32(5, 3), T(np.array([0, 0, 1, 2, 2], np.int32))), S("BUCKETIZE", f32(2, 3), options="BucketizeOptions", boundaries=[-1.0, 0.0, 1.0], out=("INT32",)),
    S("SPARSE_TO_DENSE", c([1, 3]), c([6]), f32(2), c(-1.0, np.float32), options="SparseToDenseOptions", out=("FLOAT32",)), S("SPARSE_TO_DENSE", i32(4, 2, low=0, high=1), c([3, 4]), f32(), c(0.5, np.float32), options="SparseToDenseOptions", out=("FLOAT32",), label="matrix"),
    S("NON_MAX_SUPPRESSION_V4", BOXES, SCORES, c(4), c(0.5, np.float32), c(0.4, np.float32), out=("INT32", "INT32")),
    S("NON_MAX_SUPPRESSION_V5", BOXES, SCORES, c(5), c(0.5, np.float32), c(0.4, np.float32), c(0.0, np.float32), out=("INT32", "FLOAT32", "INT32")),
    *(S("RESIZE_BILINEAR", f32(1, 4, 5, 2), c([7, 9]), options="ResizeBilinearOptions", align_corners=a, half_pixel_centers=h, label=f"{a}-{h}") for a, h in ((False, False), (True, False), (False, True))),
    *(S("RESIZE_NEAREST_NEIGHBOR", f32(1, 4, 5, 2), c([7, 9]), options="ResizeNearestNeighborOptions", align_corners=a, half_pixel_centers=h, label=f"{a}-{h}") for a, h in ((False, False), (True, False), (False, True))),
    S("BITCAST", f32(2, 3), out=("INT32",)), S("BITCAST", i32(2, 2), out=("INT16",), label="narrower"), S("BITCAST", i32(3, 2, dtype=np.int16), out=("INT32",), label="wider"),
    S("BATCH_MATMUL", i32(2, 3, dtype=np.int8), i32(3, 4, dtype=np.int8), options="BatchMatMulOptions", out=("INT32",), label="int8"),
    S("SPLIT_V", f32(2, 6), T(np.array([1, 2, 3], np.int32)), c(1), options="SplitVOptions", num_splits=3, out=("FLOAT32",) * 3, label="computed"),
    *(S(op, z64(2, 3), out=("FLOAT32",)) for op in ("REAL", "IMAG", "COMPLEX_ABS")),
    S("RFFT2D", f32(2, 4, 8), c([4, 8]), out=("COMPLEX64",)), S("RFFT2D", f32(2, 1, 5), c([1, 8]), out=("COMPLEX64",), label="padded"),
    S("MUL", z64(2, 3), z64(3), options="MulOptions", label="complex"), S("RESHAPE", z64(2, 3), c([3, 2]), label="complex"),
    S("SQUEEZE", z64(1, 3), options="SqueezeOptions", squeeze_dims=[0], label="complex"), S("EXPAND_DIMS", z64(2, 3), c([1]), label="complex"),
    S("BROADCAST_TO", z64(3), c([2, 3]), version=2, label="complex"), S("SHAPE", z64(2, 3), options="ShapeOptions", out_type="INT32", out=("INT32",), label="complex"),
    S("CAST", z64(2, 3), options="CastOptions", in_data_type="COMPLEX64", out_data_type="FLOAT32", out=("FLOAT32",), label="complex"),
    S("CAST", f32(2, 3), options="CastOptions", in_data_type="FLOAT32", out_data_type="COMPLEX64", out=("COMPLEX64",), label="to complex"),
    S("FAKE_QUANT", f32(3, 40, low=-8.0, high=8.0), options="FakeQuantOptions", min=-5.0, max=6.0, num_bits=8, narrow_range=False),
    *(S("UNIDIRECTIONAL_SEQUENCE_LSTM", f32(2, 5, 3), *(c(f32(4, 3, low=-1 - i / 9)) for i in range(4)), *(c(f32(4, 4, low=-1 - i / 9)) for i in range(4)), *((None,) * 3), *(c(f32(4, low=-1 - i / 9)) for i in range(4)), None, None, state(5 if t else 2, 4), state(5 if t else 2, 4), *((None,) * 4), options="UnidirectionalSequenceLSTMOptions", fused_activation_function="TANH", time_major=t, label=f"{t}") for t in (False, True)),
    S("UNIDIRECTIONAL_SEQUENCE_RNN", f32(2, 5, 3), c(f32(4, 3)), c(f32(4, 4)), c(f32(4)), state(2, 4), options="SequenceRNNOptions", fused_activation_function="TANH"),
]
