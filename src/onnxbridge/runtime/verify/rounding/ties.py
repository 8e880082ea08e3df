"""The same model with other choices among equal numbers: TopK, ArgMax and ArgMin may take any of them, and frameworks differ."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import written_nodes
from onnxbridge.runtime.verify.rounding.rewritten_copy import rewritten_copy

_FIRST_OR_LAST = frozenset({"ArgMax", "ArgMin"})


def with_other_ties(model: ir.Model, seed: int) -> ir.Model | None:
    """A copy whose TopK take equal numbers in a random order, and whose ArgMax and ArgMin take the last; None if it has none."""
    rng = np.random.default_rng(seed)

    def rewrite(node: ir.Node, op: Builder, node_names: set[str]) -> None:
        if node.op_type in _FIRST_OR_LAST:
            last = node.attributes.get_int("select_last_index", 0)
            node.attributes["select_last_index"] = ir.AttrInt64("select_last_index", 1 - last)
        else:
            _shuffle(node, rng, op, node_names)

    return rewritten_copy(model, _chooses, rewrite)


def _chooses(node: ir.Node) -> bool:
    if node.domain or node.op_type not in _FIRST_OR_LAST | {"TopK"}:
        return False
    return node.op_type != "TopK" or isinstance(_axis_and_size(node)[1], int)


def _axis_and_size(node: ir.Node) -> tuple[int, object]:
    axis = node.attributes.get_int("axis", -1)
    x = node.inputs[0]
    return (axis, x.shape[axis]) if x is not None and x.shape is not None and len(x.shape) else (axis, None)


def _shuffle(node: ir.Node, rng: np.random.Generator, op: Builder, node_names: set[str]) -> None:
    """TopK of the numbers in a random order, whose indices are those of the given order."""
    axis, size = _axis_and_size(node)
    assert isinstance(size, int)
    order = rng.permutation(size)
    attrs = {a.name: plain(a) for a in node.attributes.values()}
    values, indices = op.TopK(op.Gather(node.inputs[0], order, axis=axis), node.inputs[1], **attrs, outputs=2)
    results = [values, op.Gather(order, indices, axis=0)]
    replace(node, op.take(), results[: len(node.outputs)], op, name=written_nodes.namer(node, op, node_names))
