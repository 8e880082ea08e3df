"""Elementwise arithmetic, comparison and logic, and conversion between element types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim_broadcast
from onnxbridge.runtime.executor.buffer_pool import empty_like
from onnxbridge.runtime.executor.numpy import cast as types
from onnxbridge.runtime.executor.numpy.dtypes import dtype_of, is_float, widened
from onnxbridge.runtime.executor.numpy.kernels.special import erf
from onnxbridge.runtime.executor.numpy.ops import rule


def broadcast(function: Callable[..., Any], allocate: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """The function, with the broadcast result checked against the budget.

    `allocate` allocates a result like the first argument.
    """

    @functools.wraps(function)
    def run(*arrays: Any) -> Any:
        claim_broadcast(*arrays)
        out = None if allocate is None else allocate(arrays[0])
        if out is not None and all(a.dtype == out.dtype and np.broadcast_shapes(a.shape, out.shape) == out.shape for a in arrays):
            return function(*arrays, out=out)
        return function(*arrays)

    return run


rule.table(
    Abs=np.abs,
    Acos=np.arccos,
    Acosh=np.arccosh,
    Asin=np.arcsin,
    Asinh=np.arcsinh,
    Atan=np.arctan,
    Atanh=np.arctanh,
    BitwiseNot=np.bitwise_not,
    Ceil=np.ceil,
    Cos=np.cos,
    Cosh=np.cosh,
    Exp=np.exp,
    Floor=np.floor,
    IsNaN=np.isnan,
    Log=np.log,
    Neg=np.negative,
    Not=np.logical_not,
    Round=np.rint,
    Sign=np.sign,
    Sin=np.sin,
    Sinh=np.sinh,
    Sqrt=np.sqrt,
    Tan=np.tan,
    Tanh=np.tanh,
)
rule.table(
    Add=broadcast(np.add, empty_like),
    And=broadcast(np.logical_and),
    BitwiseAnd=broadcast(np.bitwise_and),
    BitwiseOr=broadcast(np.bitwise_or),
    BitwiseXor=broadcast(np.bitwise_xor),
    Equal=broadcast(np.equal),
    Greater=broadcast(np.greater),
    GreaterOrEqual=broadcast(np.greater_equal),
    Less=broadcast(np.less),
    LessOrEqual=broadcast(np.less_equal),
    Mul=broadcast(np.multiply, empty_like),
    Or=broadcast(np.logical_or),
    Sub=broadcast(np.subtract, empty_like),
    Where=broadcast(np.where),
    Xor=broadcast(np.logical_xor),
)


@rule("Div")
def div(A, B):
    """Integer division rounds towards zero."""
    claim_broadcast(A, B)
    if is_float(A.dtype):
        return np.divide(A, B)
    quotient = np.floor_divide(A, B)
    if A.dtype.kind == "i":
        quotient += ((A < 0) != (B < 0)) & (quotient * B != A)
    return quotient


@rule("Mod")
def mod(A, B, *, fmod=0):
    claim_broadcast(A, B)
    return np.fmod(A, B) if fmod else np.mod(A, B)


@rule("Pow")
def pow(X, Y):
    claim_broadcast(X, Y)
    if is_float(X.dtype):
        return widened(np.power)(X, Y.astype(X.dtype))
    if is_float(Y.dtype) or (Y < 0).any():
        return np.power(X.astype(np.float64), Y.astype(np.float64)).astype(X.dtype)
    return np.power(X, Y.astype(X.dtype))


@rule("Max")
def max_(*data_0):
    return functools.reduce(broadcast(np.maximum), data_0)


@rule("Min")
def min_(*data_0):
    return functools.reduce(broadcast(np.minimum), data_0)


@rule("Sum")
@widened
def sum_(*data_0):
    return functools.reduce(broadcast(np.add), data_0)


@rule("Mean")
@widened
def mean(*data_0):
    return sum_(*data_0) / np.asarray(len(data_0), data_0[0].dtype)


@rule("Reciprocal")
def reciprocal(X):
    return np.divide(X.dtype.type(1), X)


@rule("Clip")
def clip(input, min=None, max=None):
    if min is not None:
        input = np.maximum(input, min.reshape(()))
    if max is not None:
        input = np.minimum(input, max.reshape(()))
    return input


@rule("BitShift")
def bit_shift(X, Y, *, direction):
    claim_broadcast(X, Y)
    return np.left_shift(X, Y) if direction == "LEFT" else np.right_shift(X, Y)


@rule("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    found = np.isinf(X)
    if not detect_negative:
        found = found & (X > 0)
    return found if detect_positive else found & (X < 0)


rule("Erf")(widened(lambda input: erf(input) if is_float(input.dtype) else erf(input.astype(np.float64)).astype(input.dtype)))


@rule("Cast")
def cast(input, *, to, saturate=1, round_mode="up"):
    return types.cast(input, dtype_of(to), saturate=bool(saturate), round_mode=round_mode)


@rule("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    return types.cast(input, target_type.dtype, saturate=bool(saturate), round_mode=round_mode)


@rule("BitCast", kind="bits")
def bit_cast(input, *, to):
    return np.ascontiguousarray(input).view(dtype_of(to)).reshape(input.shape)


@rule("ai.onnx.ml::Binarizer")
def binarizer(X, *, threshold=0.0):
    return (threshold < X).astype(X.dtype)


@rule("ai.onnx.ml::Imputer")
def imputer(X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0):
    """Elements that are the replaced value (NaN equals NaN) become the imputed one of their column."""
    is_integer = X.dtype.kind in "iu"
    old = replaced_value_int64 if is_integer else replaced_value_float
    new = np.asarray(imputed_value_int64s if is_integer else imputed_value_floats, X.dtype)
    gone = np.isnan(X) if old != old else X.dtype.type(old) == X
    return np.where(gone, new, X).astype(X.dtype)
