"""Follows numbers through traces: torch.jit.trace records sizes, and what is computed from them, as tensors of one element.

Converting such a tensor back to a number would give torch.export a number of which it knows nothing, not even whether it is 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks

_INTEGERS = (3, 4)
"""What TorchScript writes for torch.int32 and torch.int64."""
_FLOATS = (6, 7)
"""What it writes for torch.float32 and torch.float64."""
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "aten::add": lambda a, b, alpha=1: a + b * alpha, "aten::sub": lambda a, b, alpha=1: a - b * alpha,
    "aten::rsub": lambda a, b, alpha=1: b - a * alpha,
    "aten::mul": operator.mul, "aten::floor_divide": operator.floordiv, "aten::remainder": operator.mod,
    "aten::div": lambda a, b, rounding=None: {None: operator.truediv, "floor": operator.floordiv}[rounding](a, b),
    "aten::neg": operator.neg, "aten::ceil": math.ceil, "aten::floor": math.floor, "aten::pow": operator.pow,
    "aten::sqrt": lambda a: a**0.5, "aten::to": lambda a, *options: _as_type(a, options),
}  # fmt: skip


def _as_type(number: Any, options: tuple[Any, ...]) -> Any:
    """The number after `Tensor.to`, whose options begin with a dtype, or with a device and a dtype; None for other forms."""
    codes = [o for o in options[:2] if type(o) is int]
    if len(codes) != 1 or codes[0] not in (*_INTEGERS, *_FLOATS):
        return None
    return math.trunc(number) if codes[0] in _INTEGERS else number * 1.0


def follow(kind: str, args: list[Any], result: Any, attributes: Any) -> None:
    """Note which number a one-element tensor holds, if it is made of numbers only."""
    torch = frameworks.torch()
    if not isinstance(result, torch.Tensor) or result.ndim:
        return
    if kind == "prim::NumToTensor":
        attributes.set_number(result, args[0])
    elif kind == "prim::Constant":
        with torch.utils._python_dispatch._disable_current_modes():
            attributes.set_number(result, result.item())
    elif kind.startswith("aten::"):
        number = _computed(kind.removesuffix("_"), args, attributes)
        changed = [result, args[0]] if kind.endswith("_") and isinstance(args[0], torch.Tensor) else [result]
        for tensor in changed:
            attributes.set_number(tensor, number)


def _computed(kind: str, args: list[Any], attributes: Any) -> Any:
    """The result of an operator on numbers, None if it is unknown."""
    tensor = frameworks.torch().Tensor
    numbers = [attributes.number(a) if isinstance(a, tensor) else a for a in args]
    if kind not in _ARITHMETIC or any(n is None for n, a in zip(numbers, args, strict=True) if isinstance(a, tensor)):
        return None
    try:
        return _ARITHMETIC[kind](*numbers)
    except (KeyError, ArithmeticError):  # another rounding, or a division by zero
        return None
