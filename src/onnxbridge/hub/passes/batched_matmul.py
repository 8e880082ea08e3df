"""Removes the reshapes around a batched MatMul that flatten its batch dimensions."""

from __future__ import annotations

import onnx_ir as ir


class RemoveBatchReshapes(ir.passes.InPlacePass):
    """Removes the three Reshapes around a MatMul that only flatten the batch dimensions and restore them afterwards."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        changed = [_remove_reshapes(node) for node in model.graph.all_nodes() if node.op_type == "MatMul" and not node.domain]
        return ir.passes.PassResult(model, modified=any(changed))


def _remove_reshapes(node: ir.Node) -> bool:
    result = node.outputs[0]
    after = next((use.node for use in result.uses() if use.idx == 0), None)
    before = [value.producer() if value is not None else None for value in node.inputs]
    reshapes = [n for n in (after, *before) if n is not None and _is_reshape(n) and n.graph is node.graph]
    if after is None or len(reshapes) < 3 or not all(map(_has_single_use, [result, *node.inputs])):
        return False
    sources = [n.inputs[0] for n in reshapes[1:]]
    found = [_sizes(v) for v in (*sources, *node.inputs, after.outputs[0])]
    a, b, x, y, restored = [() if sizes is None else sizes for sizes in found]
    if min(map(len, (a, b, x, y))) < 3 or x[:-2] != y[:-2] or a[:-2] != b[:-2] or restored != (*a[:-1], b[-1]):
        return False
    if a[-2:] != x[-2:] or b[-2:] != y[-2:]:
        return False
    for index, value in enumerate(sources):
        node.replace_input_with(index, value)
    result.shape = after.outputs[0].shape
    after.op_type = "Identity"
    after.resize_inputs(1)
    after.attributes.clear()
    return True


def _is_reshape(node: ir.Node) -> bool:
    return node.op_type == "Reshape" and not node.domain and node.inputs[0] is not None


def _has_single_use(value: ir.Value | None) -> bool:
    """Whether the value has a single use and is no graph output."""
    return value is not None and len(value.uses()) == 1 and not value.is_graph_output()


def _sizes(value: ir.Value | None) -> tuple[int | str, ...] | None:
    """The shape, None if a dimension has neither a value nor a name."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return None if None in sizes else tuple(s for s in sizes if s is not None)
