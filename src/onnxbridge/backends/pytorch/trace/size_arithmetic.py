"""Arithmetic on sizes: what a model computes from Shape stays numbers and sizes, not tensors.

`Reshape` then gets `x.size(0)` itself, so the module works at any size and exports with relations between sizes intact.
Each function here is an operator on NumPy arrays of numbers and `Value`s; it returns None where it cannot tell.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from onnxbridge.backends.pytorch.trace.tracer import Value, at_run_time, leaf

MOST = 64
_EXACT = 1 << 24
Elements = np.ndarray[Any, Any]


def objects(items: Sequence[Any], scalar: bool = False) -> Elements:
    """Numbers and sizes as an array, one by one: NumPy must not look into a `Value`."""
    made = np.empty(len(items), dtype=object)
    for i, e in enumerate(items):
        made[i] = e
    return made.reshape([]) if scalar else made


@leaf
def tensor_of(sizes: Sequence[Any], scalar: bool, device: Any = None) -> torch.Tensor:
    """Sizes as an int64 tensor, 0-d for a scalar."""
    made = [torch.scalar_tensor(s, dtype=torch.int64, device=device) for s in sizes]
    return made[0] if scalar else torch.stack(made) if made else torch.zeros(0, dtype=torch.int64, device=device)


def whole(array: np.ndarray[Any, Any]) -> Elements | None:
    """A small constant's elements, where they are whole numbers, of a floating type too: sizes are scaled by such."""
    if array.size > MOST or array.dtype.kind not in "iubf":
        return None
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # float16 holds no number as large as the bound
        if not np.isfinite(array).all() or (array != np.floor(array)).any() or (np.abs(array) > _EXACT).any():
            return None
        array = array.astype(np.int64)
    return array.astype(object)


def elements(value: Any) -> Elements | None:
    """The elements of an integer value as numbers and sizes, None where they are known only when the module runs."""
    return getattr(value, "elements", None)


def sizes(value: Any) -> list[Any]:
    """The elements of a 1-D integer tensor one by one, read from it when the module runs where nothing else tells them."""
    known = elements(value)
    if known is not None:
        return list(known.reshape(-1).tolist())
    (length,) = value.shape
    return [item(value[i]) for i in range(length)]


def size(value: Any) -> Any:
    """The one element of an integer tensor."""
    known = elements(value)
    return item(value) if known is None else known.reshape(-1)[0]


def item(value: Any) -> Any:
    return value.item()


def number(value: Any) -> Any:
    """The number in a 0-d or one-element tensor, as Python has it, when the module runs."""
    return value.reshape([]).item()


def _all_numbers(*arrays: Any) -> bool:
    return not any(isinstance(e, Value) for a in arrays for e in a.reshape(-1))


@leaf
def divided(size: Any, by: int) -> Any:
    """A quotient towards zero, as the standard has it; Python's own of a negative number is one less."""
    return torch.sym_max(size, 0) // by - torch.sym_max(-size, 0) // by


def _is_negative(size: Value) -> bool:
    """Whether a number computed from sizes may be negative, where all of these have an element at least."""
    made = size.known
    if isinstance(made, int):
        return made < 0
    expression, env = made.node.expr, made.node.shape_env
    ranges = {s: env.var_to_range[s] for s in expression.free_symbols}
    ranges |= {s: r & ValueRanges(1, int_oo) for s, r in ranges.items() if s in env.backed_var_to_val}
    return bool(bound_sympy(expression, ranges).lower < 0)


def _divide(a: Elements, b: Elements) -> Any:
    if not _all_numbers(b) or not (b > 0).all():
        return None

    def one(x: Any, y: int) -> Any:
        return divided(x, y) if (_is_negative(x) if isinstance(x, Value) else x < 0) else x // y

    return np.frompyfunc(one, 2, 1)(a, b)


def _gather(data: Elements, indices: Elements, *, axis: int = 0) -> Any:
    return np.take(data, indices.astype(np.int64), axis=axis) if _all_numbers(indices) else None


def _slice(data: Elements, starts: Elements, ends: Elements, axes: Any = None, steps: Any = None) -> Any:
    if data.ndim != 1 or not _all_numbers(starts, ends) or (steps is not None and not _all_numbers(steps)):
        return None
    begin, end, step = int(starts.item()), int(ends.item()), 1 if steps is None else int(steps.item())
    end = None if step < 0 and end < -data.size else end  # type: ignore[assignment]
    return data[begin:end:step]


def _squeeze(data: Elements, axes: Any = None) -> Any:
    return data.reshape([]) if data.size == 1 else None


def _reshape(data: Elements, shape: Elements, *, allowzero: int = 0) -> Any:
    return data.reshape([int(s) for s in shape]) if _all_numbers(shape) and not (shape == 0).any() else None


def _product(data: Elements, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
    if data.ndim != 1 or (axes is None and noop_with_empty_axes):
        return None
    product = np.multiply.reduce(data, initial=1)
    return objects([product], scalar=not keepdims)


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A comparison of sizes; each time the module runs it is decided anew, but between numbers."""

    def one(x: Any, y: Any) -> Any:
        size = next((v for v in (x, y) if isinstance(v, Value)), None)
        if size is None:
            return bool(compare(x, y))
        if compare is operator.eq and any(not isinstance(v, Value) and v < 0 for v in (x, y)):
            return False  # sizes are never negative
        return size.tracer.create_proxy("call_function", compare, (x, y), {})

    def each(a: Elements, b: Elements) -> Any:
        found = np.frompyfunc(one, 2, 1)(a, b)
        return found if isinstance(found, np.ndarray) else objects([found], scalar=True)

    return each


def _not(data: Elements) -> Any:
    def one(x: Any) -> Any:
        return x.tracer.create_proxy("call_function", operator.not_, (x,), {}) if isinstance(x, Value) else not x

    return objects([one(x) for x in data.reshape(-1)]).reshape(data.shape)


def _where(condition: Elements, x: Elements, y: Elements) -> Any:
    return np.where(condition.astype(bool), x, y) if _all_numbers(condition) else None


def _concat(*inputs: Elements, axis: int) -> Any:
    return np.concatenate(inputs) if axis in (0, -1) else None


ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Gather": _gather, "Slice": _slice, "Concat": _concat,
    "Squeeze": _squeeze, "Unsqueeze": lambda data, axes: data.reshape(-1) if data.ndim == 0 else None, "Reshape": _reshape,
    "ReduceProd": _product, "Equal": _compared(operator.eq), "Less": _compared(operator.lt), "Greater": _compared(operator.gt),
    "LessOrEqual": _compared(operator.le), "GreaterOrEqual": _compared(operator.ge), "Not": _not,
    "Where": _where, "Identity": lambda input: input,
    "Cast": lambda input, *, to, saturate=1, round_mode="up": input if to in (1, 6, 7, 11) else None,
    "Floor": lambda X: X, "Ceil": lambda X: X,
}  # fmt: skip


def derive(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Elements | None:
    """The elements of an operator's result, where all of its inputs' are known."""
    if op == "Gather" and (of := inputs[0].shape_of) is not None and (known := elements(inputs[1])) is not None:
        return objects([of.size(int(i)) for i in known.reshape(-1)]).reshape(known.shape) if _all_numbers(known) else None
    function = ARITHMETIC.get(op)
    arrays = [None if v is None else elements(v) for v in inputs]
    if function is None or any(a is None and v is not None for a, v in zip(arrays, inputs, strict=True)):
        return None
    if op == "Div" and any(v.dtype.is_floating_point for v in inputs):
        return None
    if op == "Cast" and inputs[0].dtype == torch.bool and not _all_numbers(*arrays):
        return None
    found = function(*arrays, **attrs)
    if found is None:
        return None
    if not isinstance(found, np.ndarray):
        found = objects([found], scalar=True)
    return found if found.size <= MOST else None


@at_run_time
def reshape_to(data: Any, shape: Any) -> Any:
    """Reshape by a tensor whose length is not known before."""
    return data.reshape(shape.tolist())


def known_ints(value: Any) -> Any:
    """A tuple of the elements of an integer tensor where all are known numbers, otherwise the value itself; None stays None."""
    known = elements(value)
    return tuple(int(e) for e in known.reshape(-1)) if known is not None and _all_numbers(known) else value


def joined(data: Value, wanted: Sequence[Any]) -> tuple[int, ...] | None:
    """The first and the last of the dimensions that a shape makes one of, where that is all it does; None otherwise.

    The size of the one that becomes many times its own is then not in the module, whichever size the model was traced at.
    """
    count = data.ndim - len(wanted) + 1 if data.is_known else 0
    asked = [w.known if isinstance(w, Value) else w for w in wanted]
    open_ = [i for i, w in enumerate(asked) if isinstance(w, int) and w == -1]
    if count < 2 or len(open_) > 1 or any(isinstance(w, int) and w == 0 for w in asked):
        return None
    have = data.known.shape
    for first in range(len(asked)):
        last = first + count - 1
        made = (*have[:first], math.prod(have[first : last + 1]), *have[last + 1 :])
        if all(i in open_ or data.tracer.same_size(a, b) for i, (a, b) in enumerate(zip(asked, made, strict=True))):
            return (first,) if last == data.ndim - 1 else (first, last)
    return None
