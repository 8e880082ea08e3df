"""Rules of `reduce_rank`: operators on merged axes, so that no tensor exceeds Core ML's rank.

Adjacent axes that an operator treats in the same way are one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.legalize.runtime_sizes import MAX_RANK, BodyBuilder, NotReducible, Size, Sizes, size_of
from onnxbridge.lowering import Call, Ref

NO_MARK = object()
"""The mark of a group of free axes."""


@dataclass(frozen=True)
class Operand:
    """An input: its elements in a supported shape, and its declared sizes."""

    value: ir.Value
    declared_sizes: Sizes


def reshape(op: BodyBuilder, x: ir.Value, declared_sizes: Sizes) -> ir.Value:
    if x.const_value is not None:  # its own rank may be too high
        return op.constant(x.const_value.numpy().reshape(declared_sizes))
    actual = [size_of(x, axis) for axis in range(len(x.shape or ()))]
    dynamic = sum(isinstance(size, tuple) for size in declared_sizes)
    same = _may_be_equal if dynamic == 1 else operator.eq
    if len(actual) == len(declared_sizes) and all(map(same, actual, declared_sizes)):
        return x
    return op.Reshape(x, op.runtime_shape(declared_sizes))  # type: ignore[no-any-return]


def _may_be_equal(a: Size, b: Size) -> bool:
    """Whether two sizes are equal, or both dynamic."""
    return a == b or (isinstance(a, tuple) and isinstance(b, tuple))


def _product(declared_sizes: Sequence[Size]) -> Size:
    numbers = [size if isinstance(size, int) else size[0] for size in declared_sizes]
    names = sorted(name for size in declared_sizes if isinstance(size, tuple) for name in size[1])
    return (math.prod(numbers), tuple(names)) if names else math.prod(numbers)


def _groups(marks: Sequence[Any], free: Sequence[bool]) -> list[list[int]]:
    """Group adjacent axes with equal marks; `free` axes (of size 1, and unaffected by the operator) join any group."""
    found: list[list[int]] = []
    last: Any = NO_MARK
    for axis, mark in enumerate(marks):
        if found and (free[axis] or last is NO_MARK or mark == last):
            found[-1].append(axis)
        else:
            found.append([axis])
        if not free[axis]:
            last = mark
    if len(found) > MAX_RANK:
        raise NotReducible
    return found


def _group_sizes(declared_sizes: Sizes, groups: list[list[int]]) -> Sizes:
    return [_product([declared_sizes[a] for a in group]) for group in groups]


RULES: dict[str, Callable[[BodyBuilder, Call, list[Any], Sizes], Any]] = {}
"""The result of each operator at a lower rank, or a tuple of its results, from its operands and the sizes of the first result."""


def _rule(*names: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@_rule("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity")
def _same(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    return operands[0].value  # type: ignore[no-any-return]


@_rule(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
def _unary(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    return op.call(call.op, *(o and o.value for o in operands), **call.attrs)  # type: ignore[no-any-return]


@_rule(
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
def _broadcast(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges adjacent axes along which the same operands are broadcast."""
    aligned = [[1] * (len(result) - len(o.declared_sizes)) + o.declared_sizes for o in operands]
    aligned = [[1 if r == 1 else n for n, r in zip(own, result, strict=True)] for own in aligned]  # a dynamic size may be 1
    if any(n != 1 and not _may_be_equal(n, r) for declared_sizes in aligned for n, r in zip(declared_sizes, result, strict=True)):
        raise NotReducible
    marks = list(zip(*([n == 1 for n in declared_sizes] for declared_sizes in aligned), strict=True))
    groups = _groups(marks, [r == 1 for r in result])
    parts = [
        reshape(op, o.value, _group_sizes(declared_sizes, groups)) for o, declared_sizes in zip(operands, aligned, strict=True)
    ]
    return op.call(call.op, *parts, **call.attrs)  # type: ignore[no-any-return]


@_rule(*(f"Reduce{kind}" for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")))
def _reduction(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    x, axes = operands[0], _constant_input(call, 1)
    if axes is None or not len(axes):
        raise NotReducible
    reduced = {int(a) % len(x.declared_sizes) for a in axes}
    groups = _groups(
        [a in reduced for a in range(len(x.declared_sizes))],
        [n == 1 and a not in reduced for a, n in enumerate(x.declared_sizes)],
    )
    data = reshape(op, x.value, _group_sizes(x.declared_sizes, groups))
    inner = np.array([i for i, group in enumerate(groups) if reduced & set(group)], np.int64)
    return op.call(call.op, data, inner, keepdims=1)  # type: ignore[no-any-return]


def _constant_input(call: Call, position: int) -> Any:
    item = call.inputs[position] if position < len(call.inputs) else None
    value = item.key.const_value if isinstance(item, Ref) and isinstance(item.key, ir.Value) else None
    return None if value is None else value.numpy().reshape(-1)


@_rule("Expand")
def _expand(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Axes that are not expanded get size 1 in the shape, which leaves them unchanged."""
    x = operands[0]
    declared_sizes = [1] * (len(result) - len(x.declared_sizes)) + x.declared_sizes
    expanded = [n == 1 != r for n, r in zip(declared_sizes, result, strict=True)]
    if any(isinstance(r, tuple) and e for r, e in zip(result, expanded, strict=True)):
        raise NotReducible
    groups = _groups(expanded, [r == 1 for r in result])
    data = reshape(op, x.value, _group_sizes(declared_sizes, groups))
    shape = [_product([result[a] for a in group]) if any(expanded[a] for a in group) else 1 for group in groups]
    return op.Expand(data, np.array(shape, np.int64))  # type: ignore[no-any-return]


@_rule("Transpose")
def _transpose(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Axes that stay adjacent are merged; if too many remain, they are moved one after the other."""
    x = operands[0]
    rank = len(x.declared_sizes)
    perm = [p for p in call.attrs.get("perm") or range(rank - 1, -1, -1) if x.declared_sizes[p] != 1]
    order = sorted(perm)
    runs: list[list[int]] = []
    for p in perm:
        if runs and order.index(p) == order.index(runs[-1][-1]) + 1:
            runs[-1].append(p)
        else:
            runs.append([p])
    current = sorted(range(len(runs)), key=lambda i: runs[i][0])  # the runs in the order of the input
    declared_sizes = [_product([x.declared_sizes[a] for a in run]) for run in runs]
    if len(runs) <= MAX_RANK:
        data = reshape(op, x.value, [declared_sizes[i] for i in current] or [1])
        return op.Transpose(data, perm=[current.index(i) for i in range(len(runs))])  # type: ignore[no-any-return]
    data = x.value
    for target in range(len(runs)):
        position = current.index(target)
        if position == target:
            continue
        blocks = (current[:target], current[target:position], [target], current[position + 1 :])
        data = op.Transpose(reshape(op, data, [_product([declared_sizes[i] for i in b]) for b in blocks]), perm=[0, 2, 1, 3])
        current.insert(target, current.pop(position))
    return data  # type: ignore[no-any-return]


@_rule(
    "ArgMax", "ArgMin", "Concat", "CumSum", "Gather", "GatherElements", "Hardmax", "LogSoftmax", "ScatterElements", "Softmax",
    "TopK",
)  # fmt: skip
def _along_axis(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> Any:
    """Merges all axes before the operator's axis, and all axes after it."""
    x = operands[0]
    rank = len(x.declared_sizes)
    axis = _axis(call) % rank
    merged = operands
    if call.op == "Gather" and len(operands[1].declared_sizes) > MAX_RANK - 2:
        raise NotReducible
    if call.op in ("Gather", "CumSum", "TopK"):  # the second input has axes of its own
        merged = operands[:1]
    elif call.op in ("GatherElements", "ScatterElements"):
        others = [a for a in range(rank) if a != axis]
        if any(o.declared_sizes[a] != x.declared_sizes[a] for o in operands[1:] for a in others):
            raise NotReducible  # a part of the data

    inner = [reshape(op, o.value, _around(o.declared_sizes, axis)) for o in merged]
    attrs = {k: v for k, v in call.attrs.items() if k != "axis"}
    if call.op == "CumSum":
        return op.CumSum(*inner, np.int64(1), **attrs)
    if call.op in ("ArgMax", "ArgMin"):
        attrs["keepdims"] = 1
    return op.call(call.op, *inner, *(o.value for o in operands[len(merged) :]), axis=1, outputs=len(call.outputs), **attrs)


def _axis(call: Call) -> int:
    if call.op == "CumSum":
        axis = _constant_input(call, 1)
        if axis is None:
            raise NotReducible
        return int(axis[0])
    defaults = {"Gather": 0, "GatherElements": 0, "ScatterElements": 0, "ArgMax": 0, "ArgMin": 0}
    return int(call.attrs.get("axis", defaults.get(call.op, -1)))


def _around(declared_sizes: Sizes, axis: int) -> Sizes:
    """Three axes: all before the given one, itself, and all after it."""
    return [_product(part) for part in (declared_sizes[:axis], declared_sizes[axis : axis + 1], declared_sizes[axis + 1 :])]


@_rule("LayerNormalization", "RMSNormalization")
def _normalization(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> Any:
    """Merges all axes before the first that is normalized, and all from there on."""
    x = operands[0]
    axis = call.attrs.get("axis", -1) % len(x.declared_sizes)
    normalized = x.declared_sizes[axis:]
    count = _product(normalized)
    if any(o and _product(o.declared_sizes) != count for o in operands[1:]):
        raise NotReducible  # a scale that is broadcast
    weights = [o and reshape(op, o.value, [count]) for o in operands[1:]]
    data = reshape(op, x.value, [_product(x.declared_sizes[:axis]), count])
    return op.call(call.op, data, *weights, outputs=len(call.outputs), **{**call.attrs, "axis": -1})


@_rule("Pad")
def _pad(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges adjacent axes that are not padded."""
    x, pads, axes = operands[0], _constant_input(call, 1), _constant_input(call, 3)
    if pads is None or (axes is None and len(call.inputs) > 3 and call.inputs[3] is not None):
        raise NotReducible
    rank = len(x.declared_sizes)
    padded = [int(a) % rank for a in (range(rank) if axes is None else axes)]
    begins, ends = [0] * rank, [0] * rank
    for i, a in enumerate(padded):
        begins[a], ends[a] = int(pads[i]), int(pads[len(padded) + i])
    marks = [a if begins[a] or ends[a] else None for a in range(rank)]
    groups = _groups(marks, [False] * rank)
    inner = [sum(of[a] for a in group) for of in (begins, ends) for group in groups]
    value = operands[2].value if len(operands) > 2 and operands[2] else None
    return op.Pad(reshape(op, x.value, _group_sizes(x.declared_sizes, groups)), np.array(inner, np.int64), value, **call.attrs)  # type: ignore[no-any-return]


@_rule("Tile")
def _tile(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges adjacent axes that are not repeated."""
    x, repeats = operands[0], _constant_input(call, 1)
    if repeats is None:
        raise NotReducible
    rank = len(x.declared_sizes)
    groups = _groups([a if repeats[a] != 1 else None for a in range(rank)], [False] * rank)
    inner = [int(np.prod(repeats[group])) for group in groups]
    return op.Tile(reshape(op, x.value, _group_sizes(x.declared_sizes, groups)), np.array(inner, np.int64))  # type: ignore[no-any-return]


@_rule("Split")
def _split(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> tuple[ir.Value, ...]:
    """Merges all axes before the one that is split, and all axes after it."""
    x = operands[0]
    axis = call.attrs.get("axis", 0) % len(x.declared_sizes)
    parts = _constant_input(call, 1)
    if not isinstance(x.declared_sizes[axis], int) or (parts is None and len(call.inputs) > 1):
        raise NotReducible
    merged = reshape(op, x.value, _around(x.declared_sizes, axis))
    count = len(call.outputs)
    sizes = () if parts is None else (parts,)
    found = op.call("Split", merged, *sizes, axis=1, num_outputs=count if parts is None else None, outputs=count)
    return tuple(found) if count > 1 else (found,)


@_rule("GatherND", "ScatterND")
def _gather_scatter_nd(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges the axes of the indices but the last, and the data's axes that are not indexed."""
    data, indices = operands[:2]
    depth = indices.declared_sizes[-1]
    if call.attrs.get("batch_dims", 0) or not isinstance(depth, int) or not 0 < depth < MAX_RANK:
        raise NotReducible
    count, inner = _product(indices.declared_sizes[:-1]), _product(data.declared_sizes[depth:])
    flat = [reshape(op, data.value, [*data.declared_sizes[:depth], inner]), reshape(op, indices.value, [count, depth])]
    if call.op == "ScatterND":
        flat.append(reshape(op, operands[2].value, [count, inner]))
    return op.call(call.op, *flat, **call.attrs)  # type: ignore[no-any-return]


@_rule("Slice")
def _slice(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges the axes that are not sliced."""
    x, starts, ends = operands[0], _constant_input(call, 1), _constant_input(call, 2)
    axes, steps = _constant_input(call, 3), _constant_input(call, 4)
    if starts is None or ends is None or (axes is None and len(call.inputs) > 3) or (steps is None and len(call.inputs) > 4):
        raise NotReducible
    sliced = [int(a) % len(x.declared_sizes) for a in (range(len(starts)) if axes is None else axes)]
    groups = _groups([a if a in sliced else None for a in range(len(x.declared_sizes))], [False] * len(x.declared_sizes))
    inner = np.array([groups.index([a]) if [a] in groups else len(groups) for a in sliced], np.int64)
    if (inner == len(groups)).any():
        raise NotReducible
    steps = np.ones(len(starts), np.int64) if steps is None else steps
    return op.Slice(reshape(op, x.value, _group_sizes(x.declared_sizes, groups)), starts, ends, inner, steps)  # type: ignore[no-any-return]


@_rule("MatMul")
def _matmul(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges the batch axes, if both operands have the same or the second one has none."""
    a, b = operands
    if len(b.declared_sizes) == 2:
        flat = reshape(op, a.value, [_product(a.declared_sizes[:-1]), a.declared_sizes[-1]])
        return op.MatMul(flat, b.value)  # type: ignore[no-any-return]
    batch = [o.declared_sizes[:-2] for o in operands]
    if len(batch[0]) != len(batch[1]) or not all(map(_may_be_equal, *batch)):
        raise NotReducible
    return op.MatMul(*(reshape(op, o.value, [_product(o.declared_sizes[:-2]), *o.declared_sizes[-2:]]) for o in operands))  # type: ignore[no-any-return]
