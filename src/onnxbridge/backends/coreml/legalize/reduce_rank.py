"""Tensors of more axes than Core ML holds, computed with in fewer: axes that an operator treats alike are one axis there.

`x.view(1, 3, 4, 2, 4, 2).mean((3, 5))` has six axes on paper. Its mean looks at four: the first three, which stay, the fourth,
the fifth and the sixth. So the tensor of six axes is never written; what is kept is its elements in their order, in the shape
that the last operator left them in, and each operator gets them in the axes that it tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.lowering import Body, Call, Ref

MOST = 5
"""Axes that a tensor of Core ML has."""
UNKNOWN = -1
"""A size that only the running model knows: one of them at most."""
Sizes = list[int]
ANY = object()
"""The mark of a group that has none yet."""


@dataclass(frozen=True)
class Rewritten(Call):
    """A call on tensors of too many axes, and what computes it in fewer."""

    body: Body | None = None


class _Cannot(Exception):
    """An operator is not known to be the same in fewer axes."""


def rewritten(given: Iterable[Call]) -> list[Call]:
    """The calls without tensors of too many axes, or as they are where that is not known to be the same."""
    given = list(given)
    if not any(_high(v) for call in given for v in _values(call)):
        return given
    held: dict[ir.Value, ir.Value] = {}
    try:
        return [made for call in given for made in _one(call, held)]
    except _Cannot:
        return given


def _values(call: Call) -> list[ir.Value]:
    keys = [i.key for i in call.inputs if isinstance(i, Ref)] + list(call.outputs)
    return [k for k in keys if isinstance(k, ir.Value)]


def _high(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) > MOST


def _sizes(value: ir.Value) -> Sizes:
    if value.shape is None or sum(not isinstance(d, int) for d in value.shape) > 1:
        raise _Cannot
    sizes = [d if isinstance(d, int) else UNKNOWN for d in value.shape]
    if 0 in sizes:
        raise _Cannot
    return sizes


def _one(call: Call, held: dict[ir.Value, ir.Value]) -> list[Call]:
    values = _values(call)
    if not any(map(_high, values)):
        if any(isinstance(a, Body) for a in call.attrs.values()) and held:
            raise _Cannot  # its graphs may read what is nowhere as it is on paper
        return [call]
    rule = RULES.get(call.op)
    if rule is None or len(call.outputs) != 1 or not isinstance(call.outputs[0], ir.Value):
        raise _Cannot
    result = call.outputs[0]
    if _high(result) and result.is_graph_output():
        raise _Cannot
    op = Builder()
    operands: list[Operand | None] = []
    placed: dict[ir.Value, ir.Value] = {}
    for item in call.inputs:
        key = item.key if isinstance(item, Ref) else None
        if not isinstance(key, ir.Value):
            operands.append(None)
            continue
        if key.dtype is None:
            raise _Cannot
        there = held.get(key, key)
        if key.const_value is not None:
            inner = op.constant(key.const_value.numpy())
        elif there in placed:
            inner = placed[there]
        else:
            dims = [d if isinstance(d, int) else None for d in there.shape or ()]
            inner = placed[there] = op.input(f"in{len(placed)}", key.dtype, dims)
        operands.append(Operand(inner, _sizes(key)))
    made = rule(op, call, operands, _sizes(result))
    if not _high(result):
        made = _shaped(op, made, _sizes(result))
    elif made in placed.values():  # the same elements in the same order: nothing is computed
        held[result] = next(there for there, inner in placed.items() if inner is made)
        return []
    else:
        held[result] = ir.Value(name=result.name, type=result.type, shape=made.shape)
    if made in placed.values():
        made = op.Identity(made)
    body = Body(tuple(placed.values()), list(graph_reader.of(op.graph(list(placed.values()), [made], call.op))), (Ref(made),))
    name = f"{call.op} of {max(len(v.shape or ()) for v in values)} axes"
    written = Rewritten(name, tuple(map(Ref, placed)), {}, (held.get(result, result),), call.where, None, body)
    return [written]


@dataclass(frozen=True)
class Operand:
    """An input: its elements in some shape, and the sizes that it has on paper."""

    value: ir.Value
    sizes: Sizes


def _shaped(op: Builder, x: ir.Value, sizes: Sizes) -> ir.Value:
    now = [d if isinstance(d, int) else UNKNOWN for d in x.shape or ()]
    if now == sizes:
        return x
    if x.const_value is not None:  # whose own axes may be too many
        return op.constant(x.const_value.numpy().reshape(sizes))
    return op.Reshape(x, np.array(sizes, np.int64))  # type: ignore[no-any-return]


def _product(sizes: Sequence[int]) -> int:
    return UNKNOWN if UNKNOWN in sizes else math.prod(sizes)


def _groups(marks: Sequence[Any], free: Sequence[bool]) -> list[list[int]]:
    """Neighbouring axes of one mark; those that are `free` (of size 1, and nothing is done to them) go with any."""
    found: list[list[int]] = []
    last: Any = ANY
    for axis, mark in enumerate(marks):
        if found and (free[axis] or last is ANY or mark == last):
            found[-1].append(axis)
        else:
            found.append([axis])
        if not free[axis]:
            last = mark
    if len(found) > MOST:
        raise _Cannot
    return found


def _taken(sizes: Sizes, groups: list[list[int]]) -> Sizes:
    return [_product([sizes[a] for a in group]) for group in groups]


RULES: dict[str, Callable[[Builder, Call, list[Any], Sizes], ir.Value]] = {}


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@_rule("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
def _same(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    return operands[0].value  # type: ignore[no-any-return]


@_rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
def _unary(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    return op.call(call.op, *(o and o.value for o in operands), **call.attrs)  # type: ignore[no-any-return]


@_rule(
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
def _broadcast(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Axes along which the same operands are stretched are one."""
    wide = [[1] * (len(result) - len(o.sizes)) + o.sizes for o in operands]
    if any(n not in (1, r) for sizes in wide for n, r in zip(sizes, result, strict=True)):
        raise _Cannot
    marks = list(zip(*([n == 1 for n in sizes] for sizes in wide), strict=True))
    groups = _groups(marks, [r == 1 for r in result])
    parts = [_shaped(op, o.value, _taken(sizes, groups)) for o, sizes in zip(operands, wide, strict=True)]
    return op.call(call.op, *parts, **call.attrs)  # type: ignore[no-any-return]


@_rule(*(f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")))
def _reduction(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    x, axes = operands[0], _constant(call, 1)
    if axes is None or not len(axes):
        raise _Cannot
    gone = {int(a) % len(x.sizes) for a in axes}
    groups = _groups([a in gone for a in range(len(x.sizes))], [n == 1 and a not in gone for a, n in enumerate(x.sizes)])
    data = _shaped(op, x.value, _taken(x.sizes, groups))
    inner = np.array([i for i, group in enumerate(groups) if gone & set(group)], np.int64)
    return op.call(call.op, data, inner, keepdims=1)  # type: ignore[no-any-return]


def _constant(call: Call, position: int) -> Any:
    item = call.inputs[position] if position < len(call.inputs) else None
    value = item.key.const_value if isinstance(item, Ref) and isinstance(item.key, ir.Value) else None
    return None if value is None else value.numpy().reshape(-1)


@_rule("Expand")
def _expand(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """A size that the result keeps is 1 in the wanted shape: that stretches nothing."""
    x = operands[0]
    sizes = [1] * (len(result) - len(x.sizes)) + x.sizes
    grown = [n == 1 != r for n, r in zip(sizes, result, strict=True)]
    if any(r == UNKNOWN and g for r, g in zip(result, grown, strict=True)):
        raise _Cannot
    groups = _groups(grown, [r == 1 for r in result])
    data = _shaped(op, x.value, _taken(sizes, groups))
    wanted = [_product([result[a] for a in group]) if any(grown[a] for a in group) else 1 for group in groups]
    return op.Expand(data, np.array(wanted, np.int64))  # type: ignore[no-any-return]


@_rule("Transpose")
def _transpose(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Axes that stay beside each other move together; where there are still too many, one block after the other."""
    x = operands[0]
    rank = len(x.sizes)
    perm = [p for p in call.attrs.get("perm") or range(rank - 1, -1, -1) if x.sizes[p] != 1]
    order = sorted(perm)
    runs: list[list[int]] = []
    for p in perm:
        if runs and order.index(p) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(p)
        else:
            runs.append([p])
    there = sorted(range(len(runs)), key=lambda i: runs[i][0])  # the runs as they lie in the input
    sizes = [_product([x.sizes[a] for a in run]) for run in runs]
    if len(runs) <= MOST:
        data = _shaped(op, x.value, [sizes[i] for i in there] or [1])
        return op.Transpose(data, perm=[there.index(i) for i in range(len(runs))])  # type: ignore[no-any-return]
    data = x.value
    for place in range(len(runs)):
        at = there.index(place)
        if at == place:
            continue
        blocks = (there[:place], there[place:at], [place], there[at + 1 :])
        data = op.Transpose(_shaped(op, data, [_product([sizes[i] for i in b]) for b in blocks]), perm=[0, 2, 1, 3])
        there.insert(place, there.pop(at))
    return data  # type: ignore[no-any-return]


@_rule("Softmax", "LogSoftmax", "Gather", "Concat")
def _along(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """What is before the axis is one, and what is behind it."""
    x = operands[0]
    axis = call.attrs.get("axis", 0 if call.op == "Gather" else -1) % len(x.sizes)
    if call.op == "Gather" and len(operands[1].sizes) > MOST - 2:
        raise _Cannot

    def three(operand: Any) -> ir.Value:
        before, size, behind = operand.sizes[:axis], operand.sizes[axis], operand.sizes[axis + 1 :]
        return _shaped(op, operand.value, [_product(before), size, _product(behind)])

    if call.op == "Gather":
        return op.Gather(three(x), operands[1].value, axis=1)  # type: ignore[no-any-return]
    return op.call(call.op, *map(three, operands), axis=1)  # type: ignore[no-any-return]


@_rule("GatherND", "ScatterND")
def _at_places(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """The axes that places are counted along are one, and those of what lies at a place."""
    data, places = operands[:2]
    depth = places.sizes[-1]
    if call.attrs.get("batch_dims", 0) or not 0 < depth < MOST:
        raise _Cannot
    count, there = _product(places.sizes[:-1]), _product(data.sizes[depth:])
    flat = [_shaped(op, data.value, [*data.sizes[:depth], there]), _shaped(op, places.value, [count, depth])]
    if call.op == "ScatterND":
        flat.append(_shaped(op, operands[2].value, [count, there]))
    return op.call(call.op, *flat, **call.attrs)  # type: ignore[no-any-return]


@_rule("Slice")
def _slice(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Each axis that is cut stays one."""
    x, starts, ends = operands[0], _constant(call, 1), _constant(call, 2)
    axes, steps = _constant(call, 3), _constant(call, 4)
    if starts is None or ends is None or (axes is None and len(call.inputs) > 3) or (steps is None and len(call.inputs) > 4):
        raise _Cannot
    places = [int(a) % len(x.sizes) for a in (range(len(starts)) if axes is None else axes)]
    groups = _groups([a if a in places else None for a in range(len(x.sizes))], [False] * len(x.sizes))
    inner = np.array([groups.index([a]) if [a] in groups else len(groups) for a in places], np.int64)
    if (inner == len(groups)).any():
        raise _Cannot
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    return op.Slice(_shaped(op, x.value, _taken(x.sizes, groups)), starts, ends, inner, steps)  # type: ignore[no-any-return]


@_rule("MatMul")
def _product_of_matrices(op: Builder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Of equal stacks of matrices, or a stack by one matrix."""
    a, b = operands
    if len(b.sizes) == 2:
        flat = _shaped(op, a.value, [_product(a.sizes[:-1]), a.sizes[-1]])
        return op.MatMul(flat, b.value)  # type: ignore[no-any-return]
    if a.sizes[:-2] != b.sizes[:-2]:
        raise _Cannot
    return op.MatMul(*(_shaped(op, o.value, [_product(o.sizes[:-2]), *o.sizes[-2:]]) for o in operands))  # type: ignore[no-any-return]
