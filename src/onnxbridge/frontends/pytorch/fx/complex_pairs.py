"""Complex tensors, for which ONNX has no operators, as pairs of real tensors.

Complex inputs and outputs of the model become real tensors with a last axis of size 2. Calls with a complex operand or result are
named "complex::" instead of "aten::", and have separate rules.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, result_type
from onnxbridge.hub.decompositions.complex_numbers.pairs import PART_DTYPE, Complex, join, split, zeros

__all__ = ["PART_DTYPE", "Complex", "join", "on_each_part", "part_dtype", "promote", "split", "to_complex", "zeros"]


def to_complex(op: Any, x: Any, part: ir.DataType) -> Complex:
    """Convert a complex tensor, a real tensor or a Python number to a Complex with parts of this dtype."""
    if isinstance(x, Complex):
        return Complex(cast(op, x.real, part), cast(op, x.imag, part))
    if isinstance(x, ir.Value):
        return Complex(cast(op, x, part), zeros(op, x, part))
    number = complex(x)
    return Complex(cast(op, number.real, part), cast(op, number.imag, part))


def part_dtype(*operands: Any) -> ir.DataType:
    """The dtype of the parts of the operands' common complex dtype."""
    return PART_DTYPE[result_type(*(_placeholder(x) if isinstance(x, Complex) else x for x in operands), 0j)]


def _placeholder(x: Complex) -> ir.Value:
    return ir.Value(name=None, type=ir.TensorType(x.dtype), shape=x.shape)


def promote(op: Any, *operands: Any) -> list[Complex]:
    """Convert the operands to complex tensors of their common dtype."""
    part = part_dtype(*operands)
    return [to_complex(op, x, part) for x in operands]


def on_each_part(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a rule for real tensors into a rule for complex ones that applies it to each part."""

    @functools.wraps(lower)
    def on_complex(op: Any, *args: Any, **attrs: Any) -> Any:
        part = part_dtype(*(x for x in _leaves((args, tuple(attrs.values()))) if isinstance(x, Complex)))
        parts = []
        for imaginary in (False, True):
            select = functools.partial(_part, op, part=part, imaginary=imaginary)
            parts.append(lower(op, *map(select, args), **{k: select(v) for k, v in attrs.items()}))
        if isinstance(parts[0], tuple):
            return tuple(map(Complex, *parts))
        return Complex(*parts)

    on_complex.__signature__ = inspect.signature(lower)  # type: ignore[attr-defined]
    return on_complex


def _leaves(item: Any) -> list[Any]:
    return [leaf for i in item for leaf in _leaves(i)] if isinstance(item, (tuple, list)) else [item]


def _part(op: Any, item: Any, *, part: ir.DataType, imaginary: bool) -> Any:
    """The real or imaginary part of each complex tensor in an argument; in a mixed list, real tensors are converted."""
    if isinstance(item, Complex):
        return item.imag if imaginary else item.real
    if isinstance(item, (tuple, list)):
        if any(isinstance(i, Complex) for i in item):
            item = [to_complex(op, i, part) if isinstance(i, ir.Value) else i for i in item]
        return type(item)(_part(op, i, part=part, imaginary=imaginary) for i in item)
    if isinstance(item, ir.DataType):
        return PART_DTYPE.get(item, item)
    return item
