"""Symbolic arithmetic on sizes: values that a model computes from Shape stay ints and sizes instead of tensors.

`Reshape` then receives `x.size(0)` itself, so that the module works at any size and exports with the relations between sizes.
Each function here is an operator on NumPy arrays of ints and `Value`s; it returns None if it cannot compute the result.
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

from onnxbridge.backends.pytorch.trace.tracer import Value, data_dependent_call, opaque_call

MAX_ELEMENTS = 64
_MAX_INTEGER = 1 << 24
Elements = np.ndarray[Any, Any]


def object_array(items: Sequence[Any], scalar: bool = False) -> Elements:
    """Ints and sizes as an object array, filled one by one because NumPy must not iterate over a `Value`."""
    made = np.empty(len(items), dtype=object)
    for i, e in enumerate(items):
        made[i] = e
    return made.reshape([]) if scalar else made


@opaque_call
def tensor_of(sizes: Sequence[Any], scalar: bool, device: Any = None) -> torch.Tensor:
    """Sizes as an int64 tensor, 0-d if `scalar`."""
    made = [torch.scalar_tensor(s, dtype=torch.int64, device=device) for s in sizes]
    return made[0] if scalar else torch.stack(made) if made else torch.zeros(0, dtype=torch.int64, device=device)


def integer_elements(array: np.ndarray[Any, Any]) -> Elements | None:
    """The elements of a small constant if they are integers. Floating dtypes are included, because sizes are scaled by them."""
    if array.size > MAX_ELEMENTS or array.dtype.kind not in "iubf":
        return None
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # the bound exceeds float16's range
        if not np.isfinite(array).all() or (array != np.floor(array)).any() or (np.abs(array) > _MAX_INTEGER).any():
            return None
        array = array.astype(np.int64)
    return array.astype(object)


def elements(value: Any) -> Elements | None:
    """The elements of an integer value as ints and sizes; None if they are known only at run time."""
    return getattr(value, "elements", None)


def sizes(value: Any) -> list[Any]:
    """The elements of a 1-D integer tensor one by one, read at run time if they are not known."""
    known = elements(value)
    if known is not None:
        return list(known.reshape(-1).tolist())
    (length,) = value.shape
    return [item(value[i]) for i in range(length)]


def size(value: Any) -> Any:
    """The single element of an integer tensor."""
    known = elements(value)
    return item(value) if known is None else known.reshape(-1)[0]


def item(value: Any) -> Any:
    return value.item()


def number(value: Any) -> Any:
    """The element of a one-element tensor as a Python number, read at run time."""
    return value.reshape([]).item()


def _all_numbers(*arrays: Any) -> bool:
    return not any(isinstance(e, Value) for a in arrays for e in a.reshape(-1))


@opaque_call
def truncating_divide(size: Any, by: int) -> Any:
    """Division truncated toward zero, as ONNX specifies; Python's rounds down."""
    return torch.sym_max(size, 0) // by - torch.sym_max(-size, 0) // by


def _is_negative(size: Value) -> bool:
    """Whether a number computed from sizes may be negative if all sizes are at least 1."""
    made = size.fake
    if isinstance(made, int):
        return made < 0
    expression, env = made.node.expr, made.node.shape_env
    ranges = {s: env.var_to_range[s] for s in expression.free_symbols}
    backed = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val  # the latter in PyTorch 2.9
    ranges |= {s: r & ValueRanges(1, int_oo) for s, r in ranges.items() if s in backed}
    return bool(bound_sympy(expression, ranges).lower < 0)


def _divide(a: Elements, b: Elements) -> Any:
    if not _all_numbers(b) or not (b > 0).all():
        return None

    def one(x: Any, y: int) -> Any:
        return truncating_divide(x, y) if (_is_negative(x) if isinstance(x, Value) else x < 0) else x // y

    return np.frompyfunc(one, 2, 1)(a, b)


def _gather(data: Elements, indices: Elements, *, axis: int = 0) -> Any:
    return np.take(data, indices.astype(np.int64), axis=axis) if _all_numbers(indices) else None


def _slice(data: Elements, starts: Elements, ends: Elements, axes: Any = None, steps: Any = None) -> Any:
    if data.ndim != 1 or not _all_numbers(starts, ends) or (steps is not None and not _all_numbers(steps)):
        return None
    begin, end, step = int(starts.item()), int(ends.item()), 1 if steps is None else int(steps.item())
    return data[list(positions(data.size, begin, end, step))]


def positions(size: int, start: int, end: int, step: int) -> range:
    """The positions of a slice. Unlike Python's, one that goes back from before the first element has the first element."""
    if step < 0:
        return range(size)[0 if start < -size else start : None if end < -size else end : step]
    return range(size)[start:end:step]


def _squeeze(data: Elements, axes: Any = None) -> Any:
    return data.reshape([]) if data.size == 1 else None


def _reshape(data: Elements, shape: Elements, *, allowzero: int = 0) -> Any:
    return data.reshape([int(s) for s in shape]) if _all_numbers(shape) and not (shape == 0).any() else None


def _product(data: Elements, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
    if data.ndim != 1 or (axes is None and noop_with_empty_axes):
        return None
    product = np.multiply.reduce(data, initial=1)
    return object_array([product], scalar=not keepdims)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A comparison of sizes. Between ints it is evaluated now, otherwise each time the module runs."""

    def one(x: Any, y: Any) -> Any:
        size = next((v for v in (x, y) if isinstance(v, Value)), None)
        if size is None:
            return bool(compare(x, y))
        if compare is operator.eq and any(not isinstance(v, Value) and v < 0 for v in (x, y)):
            return False  # sizes are never negative
        return size.tracer.create_proxy("call_function", compare, (x, y), {})

    def each(a: Elements, b: Elements) -> Any:
        found = np.frompyfunc(one, 2, 1)(a, b)
        return found if isinstance(found, np.ndarray) else object_array([found], scalar=True)

    return each


def _not(data: Elements) -> Any:
    def one(x: Any) -> Any:
        return x.tracer.create_proxy("call_function", operator.not_, (x,), {}) if isinstance(x, Value) else not x

    return object_array([one(x) for x in data.reshape(-1)]).reshape(data.shape)


def _where(condition: Elements, x: Elements, y: Elements) -> Any:
    return np.where(condition.astype(bool), x, y) if _all_numbers(condition) else None


def _concat(*inputs: Elements, axis: int) -> Any:
    return np.concatenate(inputs) if axis in (0, -1) else None


ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Gather": _gather, "Slice": _slice, "Concat": _concat,
    "Squeeze": _squeeze, "Unsqueeze": lambda data, axes: data.reshape(-1) if data.ndim == 0 else None, "Reshape": _reshape,
    "ReduceProd": _product, "Equal": _comparison(operator.eq), "Less": _comparison(operator.lt),
    "Greater": _comparison(operator.gt), "LessOrEqual": _comparison(operator.le),
    "GreaterOrEqual": _comparison(operator.ge), "Not": _not,
    "Where": _where, "Identity": lambda input: input,
    "Cast": lambda input, *, to, saturate=1, round_mode="up": input if to in (1, 6, 7, 11) else None,
    "Floor": lambda X: X, "Ceil": lambda X: X,
}  # fmt: skip


def derive_elements(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Elements | None:
    """The elements of an operator's result if those of all inputs are known."""
    if op == "Gather" and (source := inputs[0].shape_of) is not None and (known := elements(inputs[1])) is not None:
        return (
            object_array([source.size(int(i)) for i in known.reshape(-1)]).reshape(known.shape) if _all_numbers(known) else None
        )
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
        found = object_array([found], scalar=True)
    return found if found.size <= MAX_ELEMENTS else None


@data_dependent_call
def reshape_to(data: Any, shape: Any) -> Any:
    """Reshape by a tensor of unknown length."""
    return data.reshape(shape.tolist())


def known_ints(value: Any) -> Any:
    """The elements of an integer tensor as a tuple if all are known ints, otherwise the value itself; None stays None."""
    known = elements(value)
    return tuple(int(e) for e in known.reshape(-1)) if known is not None and _all_numbers(known) else value


def merged_dims(data: Value, shape_: Sequence[Any]) -> tuple[int, ...] | None:
    """The first and last of the dimensions that a reshape merges into one, if it does nothing else; None otherwise.

    The merged size is then not computed in the module, so the module does not depend on the size it was traced at.
    """
    count = data.ndim - len(shape_) + 1 if data.is_known else 0
    targets = [w.fake if isinstance(w, Value) else w for w in shape_]
    inferred = [i for i, w in enumerate(targets) if isinstance(w, int) and w == -1]
    if count < 2 or len(inferred) > 1 or any(isinstance(w, int) and w == 0 for w in targets):
        return None
    sizes = data.fake.shape
    for first in range(len(targets)):
        last = first + count - 1
        made = (*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :])
        if all(i in inferred or data.tracer.provably_equal(a, b) for i, (a, b) in enumerate(zip(targets, made, strict=True))):
            return (first,) if last == data.ndim - 1 else (first, last)
    return None
