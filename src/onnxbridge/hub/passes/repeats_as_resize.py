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
    """Replace, in place, a Reshape that adds an axis of size 1 after two axes or more, a Tile along the added axes, and a Reshape
    that merges them, by a Resize. Core ML has five axes at most, and images have six in between.

    Types and shapes must have been inferred.
    """
    names: set[str] | None = None
    for node in list(model.graph.all_nodes()):
        found = None if node.op_type != "Tile" or node.domain else _match(node)
        if found is not None:
            names = names_in(model) if names is None else names
            _replace(model, node, *found, names)


def _match(tile: ir.Node) -> tuple[ir.Value, ir.Node, dict[int, int]] | None:
    """What is upsampled, the last Reshape, and the scale of each axis that has one."""
    repeated, repeats = tile.inputs[0], constant_array(tile.inputs[1])
    before = None if repeated is None else repeated.producer()
    uses = tuple(tile.outputs[0].uses())
    after = uses[0].node if len(uses) == 1 and not tile.outputs[0].is_graph_output() else None
    if before is None or before.op_type not in ("Reshape", "Unsqueeze") or before.domain or repeats is None:
        return None
    if after is None or after.op_type != "Reshape" or after.domain or after.graph is not tile.graph:
        return None
    x, result = before.inputs[0], after.outputs[0]
    if x is None or x.dtype not in _DTYPES or repeated is None:
        return None
    if x.shape is None or repeated.shape is None or result.shape is None or _unknown(x.shape) > 1 or _unknown(repeated.shape) > 1:
        return None
    scales = _scales(list(x.shape), list(repeated.shape), [int(r) for r in repeats])
    if scales is None or sum(s > 1 for s in scales.values()) < 2 or not _is_scaled(list(x.shape), scales, list(result.shape)):
        return None
    return x, after, {axis: s for axis, s in scales.items() if s > 1}


def _scales(sizes: list[int | ir.SymbolicDim], extended: list[int | ir.SymbolicDim], repeats: list[int]) -> dict[int, int] | None:
    """The scale of each axis whose repeats are those of an added axis of size 1 after it; None if anything else is repeated."""
    found, axis = {}, -1
    for size, count in zip(extended, repeats, strict=True):
        if axis + 1 < len(sizes) and size == sizes[axis + 1] and count == 1:
            axis += 1
        elif size == 1 and count and axis >= 0 and axis not in found:
            found[axis] = count
        else:
            return None
    return found if axis == len(sizes) - 1 else None


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


def _replace(model: ir.Model, tile: ir.Node, x: ir.Value, after: ir.Node, scales: dict[int, int], names: set[str]) -> None:
    result, graph = after.outputs[0], after.graph
    assert x.shape is not None and graph is not None and model.graph is not None
    label = unique_name(f"{tile.outputs[0].name}.scales", names)
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
    resize.metadata_props.update(tile.metadata_props)
    graph.insert_before(after, [resize])
    resize.name, made.name, result.name = after.name, result.name, None
    result.replace_all_uses_with(made, replace_graph_outputs=True)
    graph.remove(after, safe=True)
