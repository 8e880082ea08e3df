"""Recognizes nearest-neighbor upsampling that is written as repeated rows and columns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.unique_name import unique_name

_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def repeats_as_resize(model: ir.Model) -> None:
    """Replace, in place, a Reshape that merges axes with repeats of them by a Resize, where two axes or more are repeated: images
    have six axes in between, and Core ML has five at most.

    Types and shapes must have been inferred.
    """
    names: set[str] | None = None
    for node in list(model.graph.all_nodes()):
        found = None if node.op_type != "Reshape" or node.domain else _match(node)
        if found is not None:
            names = names_in(model) if names is None else names
            _replace(model, node, *found, names)


def _match(merge: ir.Node) -> tuple[ir.Value, dict[int, int]] | None:
    """What is upsampled, and the scale of each axis that has one."""
    repeated, result = merge.inputs[0], merge.outputs[0]
    tile = None if repeated is None else repeated.producer()
    if repeated is None or tile is None or tile.op_type != "Tile" or tile.domain or result.shape is None:
        return None
    found = _axes(repeated)
    if found is None or found[0].dtype not in _DTYPES or found[0].shape is None:
        return None
    x, axes = found
    scales: dict[int, int] = {}
    for axis, count in axes:
        if axis is None and not scales:
            return None  # repeats before an axis repeat the whole image
        axis = len(scales) - 1 if axis is None else axis
        scales[axis] = scales.get(axis, 1) * count
    if sum(s > 1 for s in scales.values()) < 2 or not _is_scaled(list(found[0].shape), scales, list(result.shape)):
        return None
    return x, {axis: s for axis, s in scales.items() if s > 1}


Axes = list[tuple[int | None, int]]


def _axes(value: ir.Value, depth: int = 16) -> tuple[ir.Value, Axes] | None:
    """The value of which this one has repeats, at most `depth` operators before it, and each of its axes: that of the other
    value, or None for an added one with the number of repeats along it. None if it has repeats along other axes."""
    node = value.producer() if depth else None
    x = node.inputs[0] if node is not None and node.op_type in ("Tile", "Unsqueeze", "Reshape") and not node.domain else None
    if node is None or x is None or x.shape is None or value.shape is None or _unknown(x.shape) > 1 or _unknown(value.shape) > 1:
        return None if value.shape is None else (value, [(i, 1) for i in range(len(value.shape))])
    if node.op_type == "Reshape":
        added = _added_axes(list(x.shape), list(value.shape))
        return (x, added) if added is not None else (value, [(i, 1) for i in range(len(value.shape))])
    found, numbers = _axes(x, depth - 1), constant_array(node.inputs[1]) if len(node.inputs) > 1 else None
    if found is None or numbers is None:
        return None
    base, axes = found
    if node.op_type == "Unsqueeze":
        for at in sorted(int(a) % len(value.shape) for a in numbers.reshape(-1)):
            axes.insert(at, (None, 1))
        return base, axes
    for i, r in enumerate(numbers):
        axis = axes[i][0]
        if axis is not None and r != 1:  # of two axes of size 1, the one that is repeated may be the added one
            if base.shape is None or base.shape[axis] != 1 or axes[i + 1 : i + 2] != [(None, 1)] or numbers[i + 1] != 1:
                return None
            axes[i : i + 2] = axes[i + 1], axes[i]
    if min(numbers) < 1:
        return None
    return base, [(axis, count * int(r)) for (axis, count), r in zip(axes, numbers, strict=True)]


def _added_axes(sizes: list[int | ir.SymbolicDim], extended: list[int | ir.SymbolicDim]) -> Axes | None:
    """The axes of a reshaped value that has axes of size 1 beside those of the other value; None for other shapes."""
    found: Axes = []
    axis = 0
    for size in extended:
        if axis < len(sizes) and size == sizes[axis]:
            found.append((axis, 1))
            axis += 1
        elif size == 1:
            found.append((None, 1))
        else:
            return None
    return found if axis == len(sizes) else None


def _is_scaled(sizes: list[int | ir.SymbolicDim], scales: dict[int, int], result: list[int | ir.SymbolicDim]) -> bool:
    """Whether the result has the scaled sizes."""
    if len(sizes) != len(result):
        return False
    expected = [s if scales.get(i, 1) == 1 else s * scales[i] if isinstance(s, int) else None for i, s in enumerate(sizes)]
    if any(e is None for e in expected):  # a scaled size must be known
        return False
    return sum(e != r for e, r in zip(expected, result, strict=True)) <= min(1, _unknown(result))


def _unknown(shape: Iterable[int | ir.SymbolicDim]) -> int:
    """The number of sizes that are neither known nor named. A single one is determined by the number of elements."""
    return sum(not isinstance(s, int) and s.value is None for s in shape)


def _replace(model: ir.Model, merge: ir.Node, x: ir.Value, scales: dict[int, int], names: set[str]) -> None:
    result, graph = merge.outputs[0], merge.graph
    assert x.shape is not None and graph is not None and model.graph is not None
    label = unique_name(f"{merge.outputs[0].name}.scales", names)
    tensor = ir.tensor(np.array(list(scales.values()), np.float32), name=label)
    factors = ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape([len(scales)]), const_value=tensor)
    model.graph.register_initializer(factors)
    attributes = [
        ir.AttrInt64s("axes", list(scales)), ir.AttrString("mode", "nearest"), ir.AttrString("nearest_mode", "floor"),
        ir.AttrString("coordinate_transformation_mode", "asymmetric"),
    ]  # fmt: skip
    resize = ir.Node("", "Resize", [x, None, factors], attributes)
    made = resize.outputs[0]
    made.type = result.type
    made.shape = ir.Shape([s * scales[i] if i in scales and isinstance(s, int) else s for i, s in enumerate(x.shape)])
    resize.metadata_props.update(merge.metadata_props)
    graph.insert_before(merge, [resize])
    resize.name, made.name, result.name = merge.name, result.name, None
    result.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.remove(merge, safe=True)
