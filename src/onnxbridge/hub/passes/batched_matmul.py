"""Removes the reshapes around a MatMul that flatten its batch dimensions."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import merge_declared


class RemoveBatchReshapes(ir.passes.InPlacePass):
    """Removes the Reshapes around a MatMul that only flatten the batch dimensions and restore them afterwards: three, or two
    around a product with a matrix of weights."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        nodes = [node for node in model.graph.all_nodes() if node.op_type == "MatMul" and not node.domain]
        changed = [_remove_reshapes(node) or _remove_reshapes_of_rows(node) for node in nodes]
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
    _make_identity(after)
    return True


def _remove_reshapes_of_rows(node: ir.Node) -> bool:
    """The same around a product of (rows, columns) with a matrix of weights."""
    rows, matrix = node.inputs
    before = None if rows is None else rows.producer()
    after = next((use.node for use in node.outputs[0].uses() if use.idx == 0), None)
    if rows is None or before is None or after is None or matrix is None:
        return False
    if matrix.const_value is None or len(matrix.const_value.shape) != 2:
        return False
    if not (_is_reshape(before) and _is_reshape(after) and after.graph is node.graph and _has_single_use(node.outputs[0])):
        return False
    source, restored, flat = (None if v is None else v.shape for v in (before.inputs[0], after.outputs[0], rows))
    if source is None or restored is None or flat is None or len(flat) != 2 or flat[1] != source[-1] or len(source) < 3:
        return False
    wanted = [*source[:-1], matrix.const_value.shape[1]]
    # one size that is not known is determined by the number of elements
    open_ = [i for i, d in enumerate(wanted) if not isinstance(d, int) and d.value is None]
    open_ = open_ or [i for i, d in enumerate(restored) if not isinstance(d, int) and d.value is None]
    if not isinstance(source[-1], int) or len(open_) > 1 or len(restored) != len(wanted):
        return False
    if any(i not in open_ and a != b for i, (a, b) in enumerate(zip(wanted, restored, strict=True))) or 0 in wanted:
        return False
    after.outputs[0].shape = merge_declared(ir.Shape(wanted), restored)  # type: ignore[arg-type]
    node.replace_input_with(0, before.inputs[0])
    _make_identity(after)
    return True


def _make_identity(reshape: ir.Node) -> None:
    """Turn the Reshape of a product into an Identity of it."""
    product = reshape.inputs[0]
    assert product is not None
    product.shape = reshape.outputs[0].shape
    reshape.op_type = "Identity"
    reshape.resize_inputs(1)
    reshape.attributes.clear()


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
