"""Reduces the rank of tensors with more axes than Core ML supports, by merging axes that an operator treats in the same way.

`x.view(1, 3, 4, 2, 4, 2).mean((3, 5))` has six axes. The mean only distinguishes four groups: the first three axes, the fourth,
the fifth and the sixth. The tensor of six axes is never written: its elements are stored in their order, in the shape that the
last operator produced, and reshaped to the axes that each operator distinguishes. Where more than one of these has a dynamic
size, the sizes are computed when the model runs: from another tensor with that size, or from the shape operand of a Reshape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.legalize.runtime_sizes import (
    MAX_RANK,
    BodyBuilder,
    NotReducible,
    RuntimeSizes,
    Size,
    Sizes,
    exceeds_rank,
    size_of,
)
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call, Ref

NO_MARK = object()
"""The mark of a group of free axes."""


@dataclass(frozen=True)
class RankReducedCall(Call):
    """A call on tensors of too high a rank, and the body that computes it at a lower rank."""

    body: Body | None = None


def rewrite(calls: Iterable[Call]) -> list[Call]:
    """Rewrite the calls without tensors of too high a rank; returns them unchanged if that is not possible."""
    calls = list(calls)
    if not any(exceeds_rank(v) for call in calls for v in _values(call)):
        return calls
    flattened: dict[ir.Value, ir.Value] = {}
    sizes = RuntimeSizes()
    rewritten: list[Call] = []
    try:
        for call in calls:
            sizes.add_shape_operand(call)
            rewritten += _rewrite_call(call, flattened, sizes)
            sizes.add_tensors(_values(call))
    except NotReducible:
        return calls
    return rewritten


def _values(call: Call) -> list[ir.Value]:
    keys = [i.key for i in call.inputs if isinstance(i, Ref)] + list(call.outputs)
    return [k for k in keys if isinstance(k, ir.Value)]


def _declared_sizes(value: ir.Value) -> Sizes:
    if value.shape is None:
        raise NotReducible
    declared_sizes = [size_of(value, axis) for axis in range(len(value.shape))]
    if 0 in declared_sizes:
        raise NotReducible
    return declared_sizes


def _rewrite_call(call: Call, flattened: dict[ir.Value, ir.Value], sizes: RuntimeSizes) -> list[Call]:
    values = _values(call)
    if not any(map(exceeds_rank, values)):
        if any(isinstance(a, Body) for a in call.attrs.values()) and flattened:
            raise NotReducible  # its subgraphs may read a value that is no longer written in its declared shape
        return [call]
    rule = RULES.get(call.op)
    used = [i for i, o in enumerate(call.outputs) if isinstance(o, ir.Value)]
    results = [o for o in call.outputs if isinstance(o, ir.Value)]
    if rule is None or not results:
        raise NotReducible
    if any(exceeds_rank(result) and result.is_graph_output() for result in results):
        raise NotReducible
    op = BodyBuilder(sizes)
    operands: list[Operand | None] = []
    for item in call.inputs:
        key = item.key if isinstance(item, Ref) else None
        if not isinstance(key, ir.Value):
            operands.append(None)
            continue
        known = key.const_value
        inner = op.input_for(flattened.get(key, key)) if known is None else op.constant(known.numpy())
        operands.append(Operand(inner, _declared_sizes(key)))
    made = rule(op, call, operands, _declared_sizes(results[0]))
    inner_results = [made[i] for i in used] if isinstance(made, tuple) else [made]
    for i, (result, inner) in enumerate(zip(results, inner_results, strict=True)):
        if not exceeds_rank(result):
            inner_results[i] = _reshape(op, inner, _declared_sizes(result))
        elif inner in op.inputs.values():  # the same elements in the same order: nothing to compute
            flattened[result] = next(actual for actual, given in op.inputs.items() if given is inner)
            return []
        else:
            flattened[result] = ir.Value(name=result.name, type=result.type, shape=inner.shape)
    inner_results = [op.Identity(inner) if inner in op.inputs.values() else inner for inner in inner_results]
    body = Body(
        tuple(op.inputs.values()),
        list(graph_reader.calls_of(op.graph(list(op.inputs.values()), inner_results, call.op))),
        tuple(map(Ref, inner_results)),
    )
    name = f"{call.op} of {max(len(v.shape or ()) for v in values)} axes"
    outputs = tuple(flattened.get(result, result) for result in results)
    return [RankReducedCall(name, tuple(map(Ref, op.inputs)), {}, outputs, call.location, None, body)]


@dataclass(frozen=True)
class Operand:
    """An input: its elements in a supported shape, and its declared sizes."""

    value: ir.Value
    declared_sizes: Sizes


def _reshape(op: BodyBuilder, x: ir.Value, declared_sizes: Sizes) -> ir.Value:
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
        _reshape(op, o.value, _group_sizes(declared_sizes, groups)) for o, declared_sizes in zip(operands, aligned, strict=True)
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
    data = _reshape(op, x.value, _group_sizes(x.declared_sizes, groups))
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
    data = _reshape(op, x.value, _group_sizes(declared_sizes, groups))
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
        data = _reshape(op, x.value, [declared_sizes[i] for i in current] or [1])
        return op.Transpose(data, perm=[current.index(i) for i in range(len(runs))])  # type: ignore[no-any-return]
    data = x.value
    for target in range(len(runs)):
        position = current.index(target)
        if position == target:
            continue
        blocks = (current[:target], current[target:position], [target], current[position + 1 :])
        data = op.Transpose(_reshape(op, data, [_product([declared_sizes[i] for i in b]) for b in blocks]), perm=[0, 2, 1, 3])
        current.insert(target, current.pop(position))
    return data  # type: ignore[no-any-return]


@_rule("Softmax", "LogSoftmax", "Gather", "Concat")
def _along_axis(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges all axes before the operator's axis, and all axes after it."""
    x = operands[0]
    axis = call.attrs.get("axis", 0 if call.op == "Gather" else -1) % len(x.declared_sizes)
    if call.op == "Gather" and len(operands[1].declared_sizes) > MAX_RANK - 2:
        raise NotReducible

    def three(operand: Any) -> ir.Value:
        before, size, after = operand.declared_sizes[:axis], operand.declared_sizes[axis], operand.declared_sizes[axis + 1 :]
        return _reshape(op, operand.value, [_product(before), size, _product(after)])

    if call.op == "Gather":
        return op.Gather(three(x), operands[1].value, axis=1)  # type: ignore[no-any-return]
    return op.call(call.op, *map(three, operands), axis=1)  # type: ignore[no-any-return]


@_rule("Split")
def _split(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> tuple[ir.Value, ...]:
    """Merges all axes before the one that is split, and all axes after it."""
    x = operands[0]
    axis = call.attrs.get("axis", 0) % len(x.declared_sizes)
    before, size, after = x.declared_sizes[:axis], x.declared_sizes[axis], x.declared_sizes[axis + 1 :]
    parts = _constant_input(call, 1)
    if not isinstance(size, int) or (parts is None and len(call.inputs) > 1):
        raise NotReducible
    merged = _reshape(op, x.value, [_product(before), size, _product(after)])
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
    flat = [_reshape(op, data.value, [*data.declared_sizes[:depth], inner]), _reshape(op, indices.value, [count, depth])]
    if call.op == "ScatterND":
        flat.append(_reshape(op, operands[2].value, [count, inner]))
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
    return op.Slice(_reshape(op, x.value, _group_sizes(x.declared_sizes, groups)), starts, ends, inner, steps)  # type: ignore[no-any-return]


@_rule("MatMul")
def _matmul(op: BodyBuilder, call: Call, operands: list[Any], result: Sizes) -> ir.Value:
    """Merges the batch axes, if both operands have the same or the second one has none."""
    a, b = operands
    if len(b.declared_sizes) == 2:
        flat = _reshape(op, a.value, [_product(a.declared_sizes[:-1]), a.declared_sizes[-1]])
        return op.MatMul(flat, b.value)  # type: ignore[no-any-return]
    batch = [o.declared_sizes[:-2] for o in operands]
    if len(batch[0]) != len(batch[1]) or not all(map(_may_be_equal, *batch)):
        raise NotReducible
    return op.MatMul(*(_reshape(op, o.value, [_product(o.declared_sizes[:-2]), *o.declared_sizes[-2:]]) for o in operands))  # type: ignore[no-any-return]
