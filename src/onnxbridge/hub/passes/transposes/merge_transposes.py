"""Puts transpositions one behind the other together."""

from __future__ import annotations

import onnx_ir as ir


class JoinTransposes(ir.passes.InPlacePass):
    """Makes a Transpose of a Transpose one of what that takes, and an Identity where both together change nothing."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        joined = [_join(node) for node in model.graph.all_nodes() if _transposes(node)]
        return ir.passes.PassResult(model, modified=any(joined))


def _transposes(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "Transpose" and not node.domain and node.inputs[0] is not None


def _order(node: ir.Node, rank: int) -> list[int]:
    perm = node.attributes.get("perm")
    return list(perm.as_ints()) if perm is not None else list(range(rank))[::-1]


def _join(node: ir.Node) -> bool:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    if before is None or not _transposes(before) or before.graph is not node.graph or before.inputs[0] is None:
        return False
    orders = [n.attributes["perm"].as_ints() for n in (before, node) if "perm" in n.attributes]
    if orders:
        rank = len(orders[0])
    elif before.inputs[0].shape is not None:
        rank = len(before.inputs[0].shape)
    else:
        return False
    first, second = _order(before, rank), _order(node, rank)
    both = [first[i] for i in second]
    alone = len(before.outputs[0].uses()) == 1 and not before.outputs[0].is_graph_output()
    if both != list(range(rank)) and not alone:
        return False  # the first is there all the same: nothing is won
    node.replace_input_with(0, before.inputs[0])
    if both == list(range(rank)):
        node.op_type = "Identity"
        node.attributes.clear()
    else:
        node.attributes["perm"] = ir.AttrInt64s("perm", both)
    return True
