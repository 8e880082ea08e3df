"""Elementwise arithmetic, comparison, logic, bit operations and casts."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import arithmetic as tf
from onnxbridge.frontends.tensorflow.ops import signal
from onnxbridge.frontends.tflite.ops import rule


def _unary(name, onnx):
    @rule(name)
    def unary(op, x):
        return op.call(onnx, x)


def _binary(name, onnx):
    @rule(name)
    def binary(op, lhs, rhs):
        return op.call(onnx, lhs, rhs)


for _name, _onnx in {
    "ABS": "Abs", "EXP": "Exp", "LOG": "Log", "SQRT": "Sqrt", "SIN": "Sin", "COS": "Cos", "NEG": "Neg", "CEIL": "Ceil",
    "FLOOR": "Floor", "ROUND": "Round", "SIGN": "Sign", "LOGICAL_NOT": "Not",
}.items():  # fmt: skip
    _unary(_name, _onnx)
for _name, _onnx in {
    "ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "POW": "Pow", "MAXIMUM": "Max", "MINIMUM": "Min",
    "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less", "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And", "LOGICAL_OR": "Or",
}.items():  # fmt: skip
    _binary(_name, _onnx)


@rule("BITWISE_XOR")
def bitwise_xor(op, lhs, rhs):
    return op.Xor(lhs, rhs) if lhs.dtype == ir.DataType.BOOL else op.BitwiseXor(lhs, rhs)


@rule("NOT_EQUAL")
def not_equal(op, lhs, rhs):
    return op.Not(op.Equal(lhs, rhs))


@rule("RSQRT")
def rsqrt(op, x):
    return op.Reciprocal(op.Sqrt(x))


@rule("SQUARE")
def square(op, x):
    return op.Mul(x, x)


@rule("SQUARED_DIFFERENCE")
def squared_difference(op, lhs, rhs):
    return tf.squared_difference(op, lhs, rhs)


@rule("FLOOR_DIV")
def floor_div(op, lhs, rhs):
    return tf.floor_div(op, lhs, rhs)


@rule("FLOOR_MOD")
def floor_mod(op, lhs, rhs):
    return tf.floor_mod(op, lhs, rhs)


@rule("ADD_N")
def add_n(op, *inputs):
    return tf.add_n(op, inputs)


@rule("ATAN2")
def atan2(op, y, x):
    return tf.atan2(op, y, x)


@rule("RIGHT_SHIFT")
def right_shift(op, lhs, rhs):
    """An arithmetic shift; those by the width or more fill the result with the sign."""
    if lhs.dtype.name.startswith("U"):
        return tf.right_shift(op, lhs, rhs)
    most = np.array(lhs.dtype.bitwidth - 1, rhs.dtype.numpy())
    # floor(x / 2^n), exact in float64 for 32 bits
    power = op.Pow(np.array(2.0), op.Cast(op.Min(rhs, most), to=ir.DataType.DOUBLE))
    return op.Cast(op.Floor(op.Div(op.Cast(lhs, to=ir.DataType.DOUBLE), power)), to=lhs.dtype)


@rule("CAST", kind="bits")
def cast(op, input, *, out_data_type):
    if out_data_type is None:
        raise Unsupported("a cast to a type that ONNX does not have")
    return tf.cast(op, input, DstT=out_data_type)


@rule("BITCAST", kind="bits")
def bitcast(op, input, *, type):
    return signal.bitcast(op, input, type=type)


@rule("SELECT")
def select(op, condition, x, y):
    return tf.select(op, condition, x, y)


@rule("SELECT_V2")
def select_v2(op, condition, x, y):
    return op.Where(condition, x, y)


@rule("ZEROS_LIKE")
def zeros_like(op, input):
    return op.Expand(np.zeros((), input.dtype.numpy()), op.Shape(input))
