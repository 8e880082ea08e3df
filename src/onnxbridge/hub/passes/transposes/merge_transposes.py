"""Merges consecutive transposes."""

from __future__ import annotations

import onnx_ir as ir


class MergeTransposes(ir.passes.InPlacePass):
    """Replaces a Transpose of a Transpose by a single one, or by an Identity if they cancel."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        joined = [_merge(node) for node in model.graph.all_nodes() if _is_transpose(node)]
        return ir.passes.PassResult(model, modified=any(joined))


def _is_transpose(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None


def _perm(node: ir.Node, rank: int) -> list[int]:
    perm = node.attributes.get("perm")
    return list(perm.as_ints()) if perm is not None else list(range(rank))[::-1]


def _merge(node: ir.Node) -> bool:
    first = node.inputs[0].producer() if node.inputs[0] is not None else None
    if first is None or not _is_transpose(first) or first.graph is not node.graph or first.inputs[0] is None:
        return False
    orders = [n.attributes["perm"].as_ints() for n in (first, node) if "perm" in n.attributes]
    if orders:
        rank = len(orders[0])
    elif first.inputs[0].shape is not None:
        rank = len(first.inputs[0].shape)
    else:
        return False
    first_perm, second_perm = _perm(first, rank), _perm(node, rank)
    both = [first_perm[i] for i in second_perm]
    single_use = len(first.outputs[0].uses()) == 1 and not first.outputs[0].is_graph_output()
    if both != list(range(rank)) and not single_use:
        return False  # the first has other uses and would stay
    node.replace_input_with(0, first.inputs[0])
    if both == list(range(rank)):
        node.op_type = "Identity"
        node.attributes.clear()
    else:
        node.attributes["perm"] = ir.AttrInt64s("perm", both)
    return True
