"""Replaces computed shapes of Reshape by constants, using 0 and -1 for dynamic sizes."""

from __future__ import annotations

import re
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import fold


class ConstantReshapes(ir.passes.InPlacePass):
    """Makes the shape of every Reshape constant where possible, for targets that require constant shapes."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        names = {word for v in model.graph.inputs for d in v.shape or () for word in _dimension_names(d)}
        changed = [make_constant(node, names) for node in list(model.graph.all_nodes())]
        return ir.passes.PassResult(model, modified=any(changed))


def _dimension_names(dim: int | ir.SymbolicDim) -> list[str]:
    """The dimension names in a symbolic expression."""
    return [] if isinstance(dim, int) else re.findall(r"[^\W\d]\w*", str(dim.value or ""))


def make_constant(node: ir.Node, input_names: Collection[str] | None = None) -> bool:
    """Make a Reshape's computed shape constant: 0 for a dynamic size that is unchanged, -1 for one other size.

    Not both if a size for 0 is not one of the model's inputs (`input_names`): it may be 0 at run time, and -1 is then ambiguous;
    nor with `allowzero`, which says that any may be.
    """
    if node.op_type != "Reshape" or node.domain or node.graph is None or node.inputs[1] is None or node.inputs[0] is None:
        return False
    if node.inputs[1].const_value is not None:
        return False
    found = fold.known_elements(node.inputs[1])
    if found is None or 0 in found:
        return False
    source = node.inputs[0].shape or ()
    after = node.outputs[0].shape
    if after is not None and len(after) == len(found):
        found = [size if e == -1 and isinstance(size, int) and size else e for e, size in zip(found, after, strict=True)]
    names = [d.value if isinstance(d, ir.SymbolicDim) else d for d in source]
    dynamic = [i for i, e in enumerate(found) if not isinstance(e, int) or e == -1]
    unchanged = {i for i in dynamic if isinstance(found[i], str) and i < len(names) and names[i] == found[i]}
    inferred = [i for i in dynamic if i not in unchanged] if len(dynamic) > 1 else dynamic
    if len(inferred) > 1:
        return False
    copied = [i for i in unchanged if i not in inferred]
    if inferred and copied and "allowzero" in node.attributes and node.attributes["allowzero"].as_int():
        return False
    if input_names is not None and inferred and any(set(_dimension_names(source[i])) - set(input_names) for i in copied):
        return False
    shape = [-1 if i in inferred else 0 if i in dynamic else e for i, e in enumerate(found)]
    array = np.array(shape, np.int64)
    name = f"{node.outputs[0].name}/constant_shape"
    kind = ir.TensorType(ir.DataType.INT64)
    constant = ir.Value(name=name, type=kind, shape=ir.Shape([len(shape)]), const_value=ir.tensor(array, name=name))
    node.graph.register_initializer(constant)
    node.replace_input_with(1, constant)
    node.attributes.pop("allowzero", None)
    return True
