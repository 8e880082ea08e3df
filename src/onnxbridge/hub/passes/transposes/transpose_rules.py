"""How operators carry a permutation: a carrier changes a node so that it works before the transposes of its inputs.

It returns for each output the permutation that turns what the node now computes into what it computed (None for none), or None,
having changed nothing, where the node must stay behind its transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.passes.transposes.propagate_transposes import Layout, Perm, inverse, keeps_order, restricted

Carried = list[Perm | None] | None
Carrier = Callable[[Layout, ir.Node], Carried]
CARRIERS: dict[str, Carrier] = {}

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


def _carrier(*ops: str) -> Callable[[Carrier], Carrier]:
    def register(function: Carrier) -> Carrier:
        CARRIERS.update(dict.fromkeys(ops, function))
        return function

    return register


def shrinks(node: ir.Node) -> bool:
    """Whether the node's result is so much smaller that a transpose behind it is the better one."""
    return node.op_type in (*_REDUCE, "ArgMax", "ArgMin", "Reshape", "Flatten", "Shape")


def _ints(value: ir.Value | None) -> list[int] | None:
    """A constant's integers."""
    if value is None or value.const_value is None:
        return None
    return [int(i) for i in value.const_value.numpy().reshape(-1)]


def _int(node: ir.Node, name: str, default: int) -> int:
    attr = node.attributes.get(name)
    return attr.as_int() if attr is not None else default


def _mapped(perm: Perm, axes: Sequence[int]) -> list[int]:
    return [perm[a % len(perm)] for a in axes]


def _set_axes(layout: Layout, node: ir.Node, index: int, axes: Sequence[int]) -> None:
    made = layout.constant(np.array(axes, np.int64), f"{node.name}.axes")
    while len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    node.replace_input_with(index, made)


@_carrier(*UNARY)
def _unary(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None:
        return None
    node.replace_input_with(0, t.source)
    return [t.perm]


@_carrier(*_BROADCAST)
def _broadcast(layout: Layout, node: ir.Node) -> Carried:
    y = node.outputs[0]
    if y.shape is None:
        return None
    rank = len(y.shape)
    best: tuple[int, int, Perm] | None = None
    for v in node.inputs:
        if v is None or v.shape is None:
            return None
        t = layout.turned(v)
        missing = rank - len(v.shape)
        size = int(np.prod([s if isinstance(s, int) else 1 for s in v.shape]))
        perm = None if t is None else (*range(missing), *(p + missing for p in t.perm))
        weight = (size if v.const_value is None else 0, int(t is not None))
        if best is None or weight > best[:2]:
            best = (*weight, perm or ())
    if best is None or not best[2]:
        return None  # the largest operand is not turned: what is turned is the smaller one
    return None if not _place_all(layout, node, best[2]) else [best[2]]


def _place_all(layout: Layout, node: ir.Node, perm: Perm) -> bool:
    placed = [layout.placed(v, perm) if v is not None else None for v in node.inputs]
    if any(p is None and v is not None for p, v in zip(placed, node.inputs, strict=True)):
        return False
    for i, p in enumerate(placed):
        node.replace_input_with(i, p)
    return True


@_carrier("Concat")
def _concat(layout: Layout, node: ir.Node) -> Carried:
    perms = [t.perm for v in node.inputs if (t := layout.turned(v)) is not None]
    perm = max(perms, key=perms.count)
    if 2 * len(perms) < len(node.inputs) or any(v is None or v.shape is None for v in node.inputs):
        return None
    placed = []
    for v in node.inputs:
        assert v is not None
        t = layout.turned(v)
        placed.append(t.source if t is not None and t.perm == perm else layout.transposed(layout.plain(v), inverse(perm)))
    for i, p in enumerate(placed):
        node.replace_input_with(i, p)
    node.attributes["axis"] = ir.AttrInt64("axis", _mapped(perm, [_int(node, "axis", 0)])[0])
    return [perm]


@_carrier("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "TopK", "Split")
def _along(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None:
        return None
    default = 0 if node.op_type == "Split" else -1
    node.attributes["axis"] = ir.AttrInt64("axis", _mapped(t.perm, [_int(node, "axis", default)])[0])
    node.replace_input_with(0, t.source)
    return [t.perm] * len(node.outputs)


@_carrier("CumSum", "CumProd")
def _running(layout: Layout, node: ir.Node) -> Carried:
    t, axis = layout.turned(node.inputs[0]), _ints(node.inputs[1])
    if t is None or axis is None:
        return None
    node.replace_input_with(0, t.source)
    node.replace_input_with(1, layout.constant(np.array(_mapped(t.perm, axis)[0], np.int64), f"{node.name}.axis"))
    return [t.perm]


@_carrier(*_REDUCE)
def _reduce(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = _ints(given)
    if t is None or (given is not None and axes is None):
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
    _set_axes(layout, node, 1, sorted(_mapped(t.perm, axes)))
    return [t.perm if keepdims else restricted(t.perm, [a for a in range(rank) if a not in reduced])]


@_carrier("ArgMax", "ArgMin")
def _arg(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None:
        return None
    rank, axis = len(t.perm), _int(node, "axis", 0) % len(t.perm)
    node.attributes["axis"] = ir.AttrInt64("axis", t.perm[axis])
    node.replace_input_with(0, t.source)
    return [t.perm if _int(node, "keepdims", 1) else restricted(t.perm, [a for a in range(rank) if a != axis])]


@_carrier("Slice")
def _slice(layout: Layout, node: ir.Node) -> Carried:
    t, starts = layout.turned(node.inputs[0]), node.inputs[1]
    given = node.inputs[3] if len(node.inputs) > 3 else None
    axes = _ints(given)
    if given is None and starts is not None and starts.shape is not None and isinstance(starts.shape[0], int):
        axes = list(range(starts.shape[0]))
    if t is None or axes is None:
        return None
    node.replace_input_with(0, t.source)
    _set_axes(layout, node, 3, _mapped(t.perm, axes))
    return [t.perm]


@_carrier("Pad")
def _pad(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None:
        return None
    rank = len(t.perm)
    given = node.inputs[3] if len(node.inputs) > 3 else None
    if given is not None:
        axes = _ints(given)
        if axes is None:
            return None
        _set_axes(layout, node, 3, _mapped(t.perm, axes))
    else:
        pads = _ints(node.inputs[1])
        if pads is None:
            return None
        moved = np.array(pads, np.int64).reshape(2, rank)[:, list(inverse(t.perm))].reshape(-1)
        node.replace_input_with(1, layout.constant(moved, f"{node.name}.pads"))
    node.replace_input_with(0, t.source)
    return [t.perm]


@_carrier("Tile")
def _tile(layout: Layout, node: ir.Node) -> Carried:
    t, repeats = layout.turned(node.inputs[0]), _ints(node.inputs[1])
    if t is None or repeats is None:
        return None
    moved = np.array(repeats, np.int64)[list(inverse(t.perm))]
    node.replace_input_with(0, t.source)
    node.replace_input_with(1, layout.constant(moved, f"{node.name}.repeats"))
    return [t.perm]


@_carrier("Squeeze")
def _squeeze(layout: Layout, node: ir.Node) -> Carried:
    t, axes = layout.turned(node.inputs[0]), _ints(node.inputs[1]) if len(node.inputs) > 1 else None
    if t is None or axes is None:
        return None
    gone = {a % len(t.perm) for a in axes}
    node.replace_input_with(0, t.source)
    _set_axes(layout, node, 1, sorted(_mapped(t.perm, axes)))
    return [restricted(t.perm, [a for a in range(len(t.perm)) if a not in gone])]


@_carrier("Unsqueeze")
def _unsqueeze(layout: Layout, node: ir.Node) -> Carried:
    """The new axes are put where they were asked for, and stay there."""
    t, axes = layout.turned(node.inputs[0]), _ints(node.inputs[1])
    if t is None or axes is None:
        return None
    rank = len(t.perm) + len(axes)
    new = sorted(a % rank for a in axes)
    old = [i for i in range(rank) if i not in new]  # where the source's axes come to lie
    kept = iter(t.perm)
    perm = tuple(i if i in new else old[next(kept)] for i in range(rank))
    node.replace_input_with(0, t.source)
    return [perm]


@_carrier("Gather")
def _gather(layout: Layout, node: ir.Node) -> Carried:
    """The axis that is indexed gives way to the indices' axes."""
    t, indices = layout.turned(node.inputs[0]), node.inputs[1]
    if t is None or layout.turned(indices) is not None or indices is None or indices.shape is None:
        return None
    axis, count = _int(node, "axis", 0) % len(t.perm), len(indices.shape)
    at = t.perm[axis]

    def moved(source: int) -> int:
        return source if source < at else source + count - 1

    perm: list[int] = []
    for i, p in enumerate(t.perm):
        perm += range(at, at + count) if i == axis else [moved(p)]
    node.attributes["axis"] = ir.AttrInt64("axis", at)
    node.replace_input_with(0, t.source)
    return [tuple(perm)]


@_carrier("BatchNormalization", "InstanceNormalization", "GroupNormalization", "GlobalAveragePool", "GlobalMaxPool")
def _per_channel(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None or t.perm[:2] != (0, 1) or len(node.outputs) > 1:
        return None
    node.replace_input_with(0, t.source)
    return [t.perm]


@_carrier("QuantizeLinear", "DequantizeLinear")
def _quantized(layout: Layout, node: ir.Node) -> Carried:
    t, scale = layout.turned(node.inputs[0]), node.inputs[1]
    if t is None or scale is None or scale.shape is None or len(scale.shape) > 1 or layout.turned(scale) is not None:
        return None
    if len(scale.shape) == 1:
        node.attributes["axis"] = ir.AttrInt64("axis", _mapped(t.perm, [_int(node, "axis", 1)])[0])
    node.replace_input_with(0, t.source)
    return [t.perm]


@_carrier("Resize")
def _resize(layout: Layout, node: ir.Node) -> Carried:
    """Only to where the resized axes are the last ones, which is what runtimes have kernels for."""
    t, attr = layout.turned(node.inputs[0]), node.attributes.get("axes")
    given = list(attr.as_ints()) if attr is not None else None
    if t is None:
        return None
    rank = len(t.perm)
    index = 3 if len(node.inputs) > 3 and node.inputs[3] is not None else 2
    values = node.inputs[index].const_value if len(node.inputs) > index and node.inputs[index] is not None else None  # type: ignore[union-attr]
    if given is None:
        shape = node.outputs[0].shape
        x = node.inputs[0].shape if node.inputs[0] is not None else None
        if values is None or shape is None or x is None or (len(node.inputs) > 1 and node.inputs[1] is not None):
            return None
        changed = [i for i in range(rank) if shape[i] != x[i]]
        if index == 3 and "keep_aspect_ratio_policy" in node.attributes:
            return None
        kept = values.numpy()[changed]
        mapped = _mapped(t.perm, changed)
        if sorted(mapped) != list(range(rank - len(changed), rank)):
            return None
        node.replace_input_with(index, layout.constant(np.asarray(kept), f"{node.name}.sizes"))
    else:
        mapped = _mapped(t.perm, given)
        if sorted(mapped) != list(range(rank - len(given), rank)):
            return None
    node.attributes["axes"] = ir.AttrInt64s("axes", mapped)
    node.replace_input_with(0, t.source)
    return [t.perm]


@_carrier("Reshape", "Flatten")
def _reshape(layout: Layout, node: ir.Node) -> Carried:
    """A transpose that moves axes of size 1 only is nothing to a reshape."""
    t = layout.turned(node.inputs[0])
    if t is None or t.source.shape is None or not keeps_order(t.source.shape, t.perm):
        return None
    if node.op_type == "Flatten":
        shape = node.outputs[0].shape
        sizes = [s if isinstance(s, int) else -1 for s in shape] if shape is not None else []
        if len(sizes) != 2 or sizes.count(-1) > 1 or 0 in sizes:
            return None
        target = layout.constant(np.array(sizes, np.int64), f"{node.name}.shape")
        made = layout.write("Reshape", [t.source, target], node.outputs[0], shape, "reshape")
        node.outputs[0].replace_all_uses_with(made)
        return [None]
    sizes = _ints(node.inputs[1]) or [0]
    if 0 in sizes:
        return None
    node.replace_input_with(0, t.source)
    return [None]


@_carrier("Shape")
def _shape(layout: Layout, node: ir.Node) -> Carried:
    t = layout.turned(node.inputs[0])
    if t is None or node.outputs[0].is_graph_output():
        return None
    start, end = _int(node, "start", 0), node.attributes.get("end")
    wanted = t.perm[slice(start, end.as_int() if end is not None else None)]
    whole = layout.write("Shape", [t.source], node.outputs[0], ir.Shape([len(t.perm)]), "source")
    picked = layout.constant(np.array(wanted, np.int64), f"{node.name}.axes")
    made = layout.write("Gather", [whole, picked], node.outputs[0], node.outputs[0].shape, "sizes")
    node.outputs[0].replace_all_uses_with(made)
    return [None]
