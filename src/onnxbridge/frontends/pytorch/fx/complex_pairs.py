"""Complex tensors, which ONNX has no operators for, as pairs of real ones; at the model's ends joined in a last axis of 2.

Calls with a complex operand or result are named "complex::" instead of "aten::", and have rules of their own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, common

D = ir.DataType
PART = {D.COMPLEX64: D.FLOAT, D.COMPLEX128: D.DOUBLE}
"""The dtype of the parts of complex numbers."""
_WHOLE = {part: whole for whole, part in PART.items()}


@dataclass(frozen=True)
class Complex:
    """A complex tensor's parts, of one shape and dtype."""

    real: ir.Value
    imag: ir.Value

    @property
    def dtype(self) -> ir.DataType:
        assert self.real.dtype is not None
        return _WHOLE[self.real.dtype]

    @property
    def shape(self) -> ir.Shape:
        assert self.real.shape is not None
        return self.real.shape


def split(op: Any, pair: Any) -> Complex:
    """A tensor whose last axis has the two parts."""
    return Complex(op.Gather(pair, np.int64(0), axis=-1), op.Gather(pair, np.int64(1), axis=-1))


def joined(op: Any, x: Complex) -> Any:
    """The parts in a new last axis."""
    return op.Concat(op.Unsqueeze(x.real, [-1]), op.Unsqueeze(x.imag, [-1]), axis=-1)


def of(op: Any, x: Any, part: ir.DataType) -> Complex:
    """Anything as a complex tensor: complex, real, or a Python number."""
    if isinstance(x, Complex):
        return Complex(cast(op, x.real, part), cast(op, x.imag, part))
    if isinstance(x, ir.Value):
        return Complex(cast(op, x, part), zeros(op, x, part))
    number = complex(x)
    return Complex(cast(op, number.real, part), cast(op, number.imag, part))


def zeros(op: Any, x: ir.Value, dtype: ir.DataType) -> Any:
    """Zeros in the shape of x."""
    shape = op.dims([op.size(x, i) for i in range(len(x.shape or ()))])
    return op.ConstantOfShape(shape, value=ir.tensor(np.zeros(1, dtype.numpy())))


def part_of(*operands: Any) -> ir.DataType:
    """The dtype of the parts of what these operands make together."""
    return PART[common(*(_stand_in(x) if isinstance(x, Complex) else x for x in operands), 0j)]


def _stand_in(x: Complex) -> ir.Value:
    return ir.Value(name=None, type=ir.TensorType(x.dtype), shape=x.shape)


def together(op: Any, *operands: Any) -> list[Complex]:
    """The operands as complex tensors of their common dtype."""
    part = part_of(*operands)
    return [of(op, x, part) for x in operands]


def by_parts(lower: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for real tensors that treats both parts of complex ones alike, as a rule for those."""

    @functools.wraps(lower)
    def both(op: Any, *args: Any, **attrs: Any) -> Any:
        part = part_of(*(x for x in _leaves((args, tuple(attrs.values()))) if isinstance(x, Complex)))
        sides = []
        for imaginary in (False, True):
            chosen = functools.partial(_side, op, part=part, imaginary=imaginary)
            sides.append(lower(op, *map(chosen, args), **{k: chosen(v) for k, v in attrs.items()}))
        if isinstance(sides[0], tuple):
            return tuple(map(Complex, *sides))
        return Complex(*sides)

    both.__signature__ = inspect.signature(lower)  # type: ignore[attr-defined]
    return both


def _leaves(item: Any) -> list[Any]:
    return [leaf for i in item for leaf in _leaves(i)] if isinstance(item, (tuple, list)) else [item]


def _side(op: Any, item: Any, *, part: ir.DataType, imaginary: bool) -> Any:
    """One part of what is complex, and the rest as it is; beside complex tensors in a list, real ones have parts too."""
    if isinstance(item, Complex):
        return item.imag if imaginary else item.real
    if isinstance(item, (tuple, list)):
        if any(isinstance(i, Complex) for i in item):
            item = [of(op, i, part) if isinstance(i, ir.Value) else i for i in item]
        return type(item)(_side(op, i, part=part, imaginary=imaginary) for i in item)
    if isinstance(item, ir.DataType):
        return PART.get(item, item)
    return item
