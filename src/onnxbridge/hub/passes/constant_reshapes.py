"""Writes computed shapes of Reshape as constants, where only the count of elements or a size that stays is left to the run."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import fold


class SettleReshapes(ir.passes.InPlacePass):
    """Settles every Reshape that can be. Targets that take constant shapes only take many more models so."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        given = {word for v in model.graph.inputs for d in v.shape or () for word in _words(d)}
        settled = [settle(node, given) for node in list(model.graph.all_nodes())]
        return ir.passes.PassResult(model, modified=any(settled))


def _words(dim: int | ir.SymbolicDim) -> list[str]:
    """The names in a size that is a formula of them."""
    return [] if isinstance(dim, int) else re.findall(r"[^\W\d]\w*", str(dim.value or ""))


def settle(node: ir.Node, given: Collection[str] | None = None) -> bool:
    """Make a Reshape's computed shape a constant: 0 for a size that stays where it is, -1 for the one that is left.

    Not both where the first is no size of the model's inputs, if their names are `given`: it may be 0, and then nothing tells.
    """
    if node.op_type != "Reshape" or node.domain or node.graph is None or node.inputs[1] is None or node.inputs[0] is None:
        return False
    if node.inputs[1].const_value is not None or ("allowzero" in node.attributes and node.attributes["allowzero"].as_int()):
        return False
    found = fold.elements(node.inputs[1])
    if found is None or 0 in found:
        return False
    have = node.inputs[0].shape or ()
    after = node.outputs[0].shape
    if after is not None and len(after) == len(found):
        found = [size if e == -1 and isinstance(size, int) and size else e for e, size in zip(found, after, strict=True)]
    names = [d.value if isinstance(d, ir.SymbolicDim) else d for d in have]
    left = [i for i, e in enumerate(found) if not isinstance(e, int) or e == -1]
    kept = {i for i in left if isinstance(found[i], str) and i < len(names) and names[i] == found[i]}
    open_ = [i for i in left if i not in kept] if len(left) > 1 else left
    if len(open_) > 1:
        return False
    if given is not None and open_ and any(set(_words(have[i])) - set(given) for i in kept if i not in open_):
        return False
    shape = [-1 if i in open_ else 0 if i in left else e for i, e in enumerate(found)]
    array = np.array(shape, np.int64)
    name = f"{node.outputs[0].name}/settled"
    kind = ir.TensorType(ir.DataType.INT64)
    made = ir.Value(name=name, type=kind, shape=ir.Shape([len(shape)]), const_value=ir.tensor(array, name=name))
    node.graph.register_initializer(made)
    node.replace_input_with(1, made)
    return True
