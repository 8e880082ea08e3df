"""Elementwise arithmetic, comparison and logic, with NumPy broadcasting."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Str
from onnxbridge.runtime.executor.numpy.kernels.special import erf
from onnxbridge.runtime.mil.ops import rule

# fmt: off
rule.table(
    abs=np.abs, acos=np.arccos, asin=np.arcsin, atan=np.arctan, atanh=np.arctanh, ceil=np.ceil, cos=np.cos, cosh=np.cosh,
    erf=erf, exp=np.exp, floor=np.floor, logical_not=np.logical_not, round=np.rint, sign=np.sign, sin=np.sin,
    sinh=np.sinh, sqrt=np.sqrt, square=np.square, tan=np.tan, tanh=np.tanh,
    add=np.add, equal=np.equal, floor_div=np.floor_divide, greater=np.greater, greater_equal=np.greater_equal, less=np.less,
    less_equal=np.less_equal, logical_and=np.logical_and, logical_or=np.logical_or, logical_xor=np.logical_xor,
    maximum=np.maximum, minimum=np.minimum, mod=np.mod, mul=np.multiply, not_equal=np.not_equal, sub=np.subtract,
)
# fmt: on

DTYPES = {
    "bool": np.bool_,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "int64": np.int64,
    "uint32": np.uint32,
    "string": np.str_,
}


@rule("cast", kind="move")
def cast(x, dtype: Str):
    if dtype not in DTYPES:
        raise Unsupported(f"dtype {dtype}")
    return np.asarray(x).astype(DTYPES[dtype])


@rule("clip")
def clip(x, alpha, beta):
    return np.minimum(np.maximum(x, alpha), beta)


@rule("threshold")
def threshold(x, alpha):
    return np.maximum(x, alpha)


@rule("exp2")
def exp2(x):
    return np.exp2(x).astype(x.dtype)


@rule("inverse")
def inverse(x, epsilon=1e-4):
    return 1 / (x + epsilon)


@rule("log")
def log(x, epsilon=1e-45):
    return np.log(x + epsilon)


@rule("rsqrt")
def rsqrt(x, epsilon=1e-12):
    return 1 / np.sqrt(x + epsilon)


@rule("pow")
def pow(x, y):
    if x.dtype.kind == "f":
        return np.power(x, y)
    return np.power(x.astype(np.float64), y).astype(x.dtype)


@rule("real_div")
def real_div(x, y):
    """The quotient; that of integers is truncated."""
    if x.dtype.kind == "f":
        return np.true_divide(x, y)
    return np.trunc(np.true_divide(x, y)).astype(x.dtype)
