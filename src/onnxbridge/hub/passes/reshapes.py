"""Writes computed shapes of Reshape as constants, where only the count of elements or a size that stays is left to the run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub import fold


class SettleReshapes(ir.passes.InPlacePass):
    """Settles every Reshape that can be. Targets that take constant shapes only take many more models so."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        settled = [settle(node) for node in list(model.graph.all_nodes())]
        return ir.passes.PassResult(model, modified=any(settled))


def settle(node: ir.Node) -> bool:
    """Make a Reshape's computed shape a constant: 0 for a size that stays where it is, -1 for the one that is left."""
    if node.op_type != "Reshape" or node.domain or node.graph is None or node.inputs[1] is None or node.inputs[0] is None:
        return False
    if node.inputs[1].const_value is not None or ("allowzero" in node.attributes and node.attributes["allowzero"].as_int()):
        return False
    found = fold.elements(node.inputs[1])
    if found is None or 0 in found:
        return False
    have = node.inputs[0].shape or ()
    names = [d.value if isinstance(d, ir.SymbolicDim) else d for d in have]
    left = [i for i, e in enumerate(found) if not isinstance(e, int) or e == -1]
    kept = {i for i in left if isinstance(found[i], str) and i < len(names) and names[i] == found[i]}
    open_ = [i for i in left if i not in kept] if len(left) > 1 else left
    if len(open_) > 1:
        return False
    shape = [-1 if i in open_ else 0 if i in left else e for i, e in enumerate(found)]
    array = np.array(shape, np.int64)
    name = f"{node.outputs[0].name}/settled"
    kind = ir.TensorType(ir.DataType.INT64)
    made = ir.Value(name=name, type=kind, shape=ir.Shape([len(shape)]), const_value=ir.tensor(array, name=name))
    node.graph.register_initializer(made)
    node.replace_input_with(1, made)
    return True
