"""Elementwise comparison, logical and bitwise operators."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float, promote
from onnxbridge.frontends.pytorch.ops import rule

D = ir.DataType


def _comparison(name, *, negated=False):
    def lower(op, self, other):
        a, b = promote(op, self, other)
        if a.dtype == D.BOOL and name != "Equal":
            a, b = op.Cast(a, to=D.INT32), op.Cast(b, to=D.INT32)
        y = op.call(name, a, b)
        return op.Not(y) if negated else y

    return lower


for _names, _onnx, _negated in (
    (("eq",), "Equal", False), (("ne", "not_equal"), "Equal", True), (("lt", "less"), "Less", False),
    (("le", "less_equal"), "LessOrEqual", False), (("gt", "greater"), "Greater", False),
    (("ge", "greater_equal"), "GreaterOrEqual", False),
):  # fmt: skip
    rule(*(f"aten::{n}.{o}" for n in _names for o in ("Tensor", "Scalar")))(_comparison(_onnx, negated=_negated))


@rule("aten::isin.Tensor_Tensor")
def isin(op, elements, test_elements, *, assume_unique=False, invert=False):
    a, b = promote(op, elements, test_elements)
    if 0 in b.shape:  # ONNX Runtime's ReduceSum keeps the axis of an empty tensor
        found = _all_false(op, a)
    else:
        equal = op.Equal(op.Unsqueeze(a, [-1]), op.reshape(b, [-1]))
        found = op.Greater(op.ReduceSum(op.Cast(equal, to=D.INT32), [-1], keepdims=0), np.int32(0))
    return op.Not(found) if invert else found


@rule("aten::isin.Tensor_Scalar")
def isin_scalar(op, elements, test_element, *, assume_unique=False, invert=False):
    return isin(op, elements, test_element, invert=invert)


@rule("aten::isin.Scalar_Tensor")
def scalar_isin(op, element, test_elements, *, assume_unique=False, invert=False):
    return isin(op, element, test_elements, invert=invert)


def to_bool(op, x):
    """Convert a value to bool: whether it is not zero."""
    return cast(op, x, D.BOOL)


@rule("aten::logical_and")
def logical_and(op, self, other):
    return op.And(to_bool(op, self), to_bool(op, other))


@rule("aten::logical_or")
def logical_or(op, self, other):
    return op.Or(to_bool(op, self), to_bool(op, other))


@rule("aten::logical_xor")
def logical_xor(op, self, other):
    return op.Xor(to_bool(op, self), to_bool(op, other))


@rule("aten::logical_not")
def logical_not(op, self):
    return op.Not(to_bool(op, self))


def _bitwise(logical, bits):
    def lower(op, self, other):
        a, b = promote(op, self, other)
        return op.call(logical if a.dtype == D.BOOL else bits, a, b)

    return lower


for _name, _logical in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    _ops = [f"aten::bitwise_{_name}.{o}" for o in ("Tensor", "Scalar", "Scalar_Tensor")]
    rule(*_ops, f"aten::__{_name}__.Tensor", f"aten::__{_name}__.Scalar")(_bitwise(_logical, f"Bitwise{_logical}"))


@rule("aten::bitwise_not")
def bitwise_not(op, self):
    return op.Not(self) if self.dtype == D.BOOL else op.BitwiseNot(self)


@rule("aten::isnan")
def isnan(op, self):
    return op.IsNaN(self) if is_float(self) else _all_false(op, self)


@rule("aten::isinf")
def isinf(op, self):
    return op.Equal(op.Abs(self), math.inf) if is_float(self) else _all_false(op, self)


@rule("aten::isfinite")
def isfinite(op, self):
    return op.Less(op.Abs(self), math.inf) if is_float(self) else op.Not(_all_false(op, self))


@rule("aten::isposinf")
def isposinf(op, self):
    return op.Equal(self, math.inf) if is_float(self) else _all_false(op, self)


@rule("aten::isneginf")
def isneginf(op, self):
    return op.Equal(self, -math.inf) if is_float(self) else _all_false(op, self)


def _all_false(op, x):
    """False in the shape of x."""
    x = cast(op, x, D.BOOL)
    return op.And(x, False)
