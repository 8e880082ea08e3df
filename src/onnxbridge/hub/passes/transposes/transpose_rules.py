"""Rules that move operators before the transposes of their inputs.

A rule changes a node to use the untransposed inputs. It returns for each output the permutation that converts the new result to
the old one (None if they are equal), or None without changing anything if the node must stay after the transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.passes.transposes.propagate_transposes import Perm, TransposePropagation, inverse, keeps_order, restricted

RulePerms = list[Perm | None] | None
TransposeRule = Callable[[TransposePropagation, ir.Node], RulePerms]
TRANSPOSE_RULES: dict[str, TransposeRule] = {}

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg",
    "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_BROADCAST = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
_REDUCE = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip


def _rule(*ops: str) -> Callable[[TransposeRule], TransposeRule]:
    def register(function: TransposeRule) -> TransposeRule:
        TRANSPOSE_RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def reduces(node: ir.Node) -> bool:
    """Whether the node's result is usually much smaller, so that a transpose after it is cheaper."""
    return node.op_type in (*_REDUCE, "ArgMax", "ArgMin", "Reshape", "Flatten", "Shape")


def _ints(value: ir.Value | None) -> list[int] | None:
    """A constant's integers."""
    if value is None or value.const_value is None:
        return None
    return [int(i) for i in value.const_value.numpy().reshape(-1)]


def _int(node: ir.Node, name: str, default: int) -> int:
    attr = node.attributes.get(name)
    return attr.as_int() if attr is not None else default


def _permuted_axes(perm: Perm, axes: Sequence[int]) -> list[int]:
    return [perm[a % len(perm)] for a in axes]


def _set_axes(propagation: TransposePropagation, node: ir.Node, index: int, axes: Sequence[int]) -> None:
    created = propagation.constant(np.array(axes, np.int64), f"{node.name}.axes")
    while len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    node.replace_input_with(index, created)


@_rule(*UNARY)
def _unary(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None:
        return None
    node.replace_input_with(0, t.source)
    return [t.perm]


@_rule(*_BROADCAST)
def _broadcast(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    y = node.outputs[0]
    if y.shape is None:
        return None
    rank = len(y.shape)
    best: tuple[int, int, Perm] | None = None
    for v in node.inputs:
        if v is None or v.shape is None:
            return None
        t = propagation.transposed_value(v)
        missing = rank - len(v.shape)
        size = int(np.prod([s if isinstance(s, int) else 1 for s in v.shape]))
        perm = None if t is None else (*range(missing), *(p + missing for p in t.perm))
        weight = (size if v.const_value is None else 0, int(t is not None))
        if best is None or weight > best[:2]:
            best = (*weight, perm or ())
    if best is None or not best[2]:
        return None  # the largest operand is not transposed, only smaller ones are
    return None if not _broadcast_all(propagation, node, best[2]) else [best[2]]


def _broadcast_all(propagation: TransposePropagation, node: ir.Node, perm: Perm) -> bool:
    operands = [propagation.broadcast_operand(v, perm) if v is not None else None for v in node.inputs]
    if any(p is None and v is not None for p, v in zip(operands, node.inputs, strict=True)):
        return False
    for i, p in enumerate(operands):
        node.replace_input_with(i, p)
    return True


@_rule("Concat")
def _concat(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    perms = [t.perm for v in node.inputs if (t := propagation.transposed_value(v)) is not None]
    perm = max(perms, key=perms.count)
    if 2 * len(perms) < len(node.inputs) or any(v is None or v.shape is None for v in node.inputs):
        return None
    operands = []
    for v in node.inputs:
        assert v is not None
        t = propagation.transposed_value(v)
        operands.append(
            t.source if t is not None and t.perm == perm else propagation.transposed(propagation.materialize(v), inverse(perm))
        )
    for i, p in enumerate(operands):
        node.replace_input_with(i, p)
    node.attributes["axis"] = ir.AttrInt64("axis", _permuted_axes(perm, [_int(node, "axis", 0)])[0])
    return [perm]


@_rule("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK", "Split")
def _along(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None:
        return None
    default = 0 if node.op_type == "Split" else -1
    node.attributes["axis"] = ir.AttrInt64("axis", _permuted_axes(t.perm, [_int(node, "axis", default)])[0])
    node.replace_input_with(0, t.source)
    return [t.perm] * len(node.outputs)


@_rule("CumSum", "CumProd")
def _running(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t, axis = propagation.transposed_value(node.inputs[0]), _ints(node.inputs[1])
    if t is None or axis is None:
        return None
    node.replace_input_with(0, t.source)
    node.replace_input_with(1, propagation.constant(np.array(_permuted_axes(t.perm, axis)[0], np.int64), f"{node.name}.axis"))
    return [t.perm]


@_rule(*_REDUCE)
def _reduce(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    axes_input = node.inputs[1] if len(node.inputs) > 1 else None
    axes = _ints(axes_input)
    if t is None or (axes_input is not None and axes is None):
        return None
    keepdims = _int(node, "keepdims", 1)
    if not axes:
        if _int(node, "noop_with_empty_axes", 0):
            return None
        node.replace_input_with(0, t.source)
        return [t.perm if keepdims else None]
    rank = len(t.perm)
    reduced = {a % rank for a in axes}
    node.replace_input_with(0, t.source)
    _set_axes(propagation, node, 1, sorted(_permuted_axes(t.perm, axes)))
    return [t.perm if keepdims else restricted(t.perm, [a for a in range(rank) if a not in reduced])]


@_rule("ArgMax", "ArgMin")
def _arg(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None:
        return None
    rank, axis = len(t.perm), _int(node, "axis", 0) % len(t.perm)
    node.attributes["axis"] = ir.AttrInt64("axis", t.perm[axis])
    node.replace_input_with(0, t.source)
    return [t.perm if _int(node, "keepdims", 1) else restricted(t.perm, [a for a in range(rank) if a != axis])]


@_rule("Slice")
def _slice(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t, starts = propagation.transposed_value(node.inputs[0]), node.inputs[1]
    axes_input = node.inputs[3] if len(node.inputs) > 3 else None
    axes = _ints(axes_input)
    if axes_input is None and starts is not None and starts.shape is not None and isinstance(starts.shape[0], int):
        axes = list(range(starts.shape[0]))
    if t is None or axes is None:
        return None
    node.replace_input_with(0, t.source)
    _set_axes(propagation, node, 3, _permuted_axes(t.perm, axes))
    return [t.perm]


@_rule("Pad")
def _pad(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None:
        return None
    rank = len(t.perm)
    axes_input = node.inputs[3] if len(node.inputs) > 3 else None
    if axes_input is not None:
        axes = _ints(axes_input)
        if axes is None:
            return None
        _set_axes(propagation, node, 3, _permuted_axes(t.perm, axes))
    else:
        pads = _ints(node.inputs[1])
        if pads is None:
            return None
        permuted = np.array(pads, np.int64).reshape(2, rank)[:, list(inverse(t.perm))].reshape(-1)
        node.replace_input_with(1, propagation.constant(permuted, f"{node.name}.pads"))
    node.replace_input_with(0, t.source)
    return [t.perm]


@_rule("Tile")
def _tile(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t, repeats = propagation.transposed_value(node.inputs[0]), _ints(node.inputs[1])
    if t is None or repeats is None:
        return None
    permuted = np.array(repeats, np.int64)[list(inverse(t.perm))]
    node.replace_input_with(0, t.source)
    node.replace_input_with(1, propagation.constant(permuted, f"{node.name}.repeats"))
    return [t.perm]


@_rule("Squeeze")
def _squeeze(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t, axes = propagation.transposed_value(node.inputs[0]), _ints(node.inputs[1]) if len(node.inputs) > 1 else None
    if t is None or axes is None:
        return None
    removed = {a % len(t.perm) for a in axes}
    node.replace_input_with(0, t.source)
    _set_axes(propagation, node, 1, sorted(_permuted_axes(t.perm, axes)))
    return [restricted(t.perm, [a for a in range(len(t.perm)) if a not in removed])]


@_rule("Unsqueeze")
def _unsqueeze(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    """The new axes stay at their positions."""
    t, axes = propagation.transposed_value(node.inputs[0]), _ints(node.inputs[1])
    if t is None or axes is None:
        return None
    rank = len(t.perm) + len(axes)
    new = sorted(a % rank for a in axes)
    old = [i for i in range(rank) if i not in new]  # positions of the source's axes
    remaining = iter(t.perm)
    perm = tuple(i if i in new else old[next(remaining)] for i in range(rank))
    node.replace_input_with(0, t.source)
    return [perm]


@_rule("Gather")
def _gather(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    """The indexed axis is replaced by the axes of the indices."""
    t, indices = propagation.transposed_value(node.inputs[0]), node.inputs[1]
    if t is None or propagation.transposed_value(indices) is not None or indices is None or indices.shape is None:
        return None
    axis, count = _int(node, "axis", 0) % len(t.perm), len(indices.shape)
    at = t.perm[axis]

    def new_axis(source: int) -> int:
        return source if source < at else source + count - 1

    perm: list[int] = []
    for i, p in enumerate(t.perm):
        perm += range(at, at + count) if i == axis else [new_axis(p)]
    node.attributes["axis"] = ir.AttrInt64("axis", at)
    node.replace_input_with(0, t.source)
    return [tuple(perm)]


@_rule("BatchNormalization", "InstanceNormalization", "GroupNormalization", "GlobalAveragePool", "GlobalMaxPool")
def _per_channel(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None or t.perm[:2] != (0, 1) or len(node.outputs) > 1:
        return None
    node.replace_input_with(0, t.source)
    return [t.perm]


@_rule("QuantizeLinear", "DequantizeLinear")
def _quantized(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t, scale = propagation.transposed_value(node.inputs[0]), node.inputs[1]
    if (
        t is None
        or scale is None
        or scale.shape is None
        or len(scale.shape) > 1
        or propagation.transposed_value(scale) is not None
    ):
        return None
    if len(scale.shape) == 1:
        node.attributes["axis"] = ir.AttrInt64("axis", _permuted_axes(t.perm, [_int(node, "axis", 1)])[0])
    node.replace_input_with(0, t.source)
    return [t.perm]


@_rule("Resize")
def _resize(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    """Only if the resized axes become the last ones, since runtimes have kernels for these."""
    t, attr = propagation.transposed_value(node.inputs[0]), node.attributes.get("axes")
    declared = list(attr.as_ints()) if attr is not None else None
    if t is None:
        return None
    rank = len(t.perm)
    index = 3 if len(node.inputs) > 3 and node.inputs[3] is not None else 2
    values = node.inputs[index].const_value if len(node.inputs) > index and node.inputs[index] is not None else None  # type: ignore[union-attr]
    if declared is None:
        shape = node.outputs[0].shape
        x = node.inputs[0].shape if node.inputs[0] is not None else None
        if values is None or shape is None or x is None or (len(node.inputs) > 1 and node.inputs[1] is not None):
            return None
        changed = [i for i in range(rank) if shape[i] != x[i]]
        if index == 3 and "keep_aspect_ratio_policy" in node.attributes:
            return None
        resized = values.numpy()[changed]
        permuted_axes = _permuted_axes(t.perm, changed)
        if sorted(permuted_axes) != list(range(rank - len(changed), rank)):
            return None
        node.replace_input_with(index, propagation.constant(np.asarray(resized), f"{node.name}.sizes"))
    else:
        permuted_axes = _permuted_axes(t.perm, declared)
        if sorted(permuted_axes) != list(range(rank - len(declared), rank)):
            return None
    node.attributes["axes"] = ir.AttrInt64s("axes", permuted_axes)
    node.replace_input_with(0, t.source)
    return [t.perm]


@_rule("Reshape", "Flatten")
def _reshape(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    """A transpose that only moves axes of size 1 has no effect on a reshape."""
    t = propagation.transposed_value(node.inputs[0])
    if t is None or t.source.shape is None or not keeps_order(t.source.shape, t.perm):
        return None
    if node.op_type == "Flatten":
        shape = node.outputs[0].shape
        sizes = [s if isinstance(s, int) else -1 for s in shape] if shape is not None else []
        if len(sizes) != 2 or sizes.count(-1) > 1 or 0 in sizes:
            return None
        target = propagation.constant(np.array(sizes, np.int64), f"{node.name}.shape")
        node.op_type = "Reshape"
        node.attributes.pop("axis", None)
        node.resize_inputs(2)
        node.replace_input_with(0, t.source)
        node.replace_input_with(1, target)
        return [None]
    sizes = _ints(node.inputs[1]) or [0]
    if 0 in sizes:
        return None
    node.replace_input_with(0, t.source)
    return [None]


@_rule("Shape")
def _shape(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None or node.outputs[0].is_graph_output():
        return None
    start, end = _int(node, "start", 0), node.attributes.get("end")
    selected_axes = t.perm[slice(start, end.as_int() if end is not None else None)]
    whole = propagation.write("Shape", [t.source], node.outputs[0], ir.Shape([len(t.perm)]), "source")
    picked = propagation.constant(np.array(selected_axes, np.int64), f"{node.name}.axes")
    created = propagation.write("Gather", [whole, picked], node.outputs[0], node.outputs[0].shape, "sizes")
    node.outputs[0].replace_all_uses_with(created)
    return [None]
