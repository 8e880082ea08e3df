"""Stores weights in the precision that they are cast to."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.schemas import array_of


class FoldWeightCasts(ir.passes.InPlacePass):
    """Stores every weight that is only used cast to one smaller floating-point dtype, as under mixed precision, in that dtype.

    It keeps its name, and is rounded when it is read.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        changed = [_fold(value) for value in list(model.graph.initializers.values())]
        return ir.passes.PassResult(model, modified=any(changed))


def _fold(weight: ir.Value) -> bool:
    casts = [use.node for use in weight.uses()]
    stored = weight.const_value
    if stored is None or not casts or weight.is_graph_input() or weight.is_graph_output() or not weight.dtype:
        return False
    if any(c.op_type != "Cast" or c.domain or c.outputs[0].is_graph_output() for c in casts):
        return False
    dtypes = {c.attributes["to"].as_int() for c in casts}
    dtype = ir.DataType(dtypes.pop())
    if dtypes or not (dtype.is_floating_point() and weight.dtype.is_floating_point()) or dtype.itemsize >= weight.dtype.itemsize:
        return False

    def rounded() -> ir.TensorProtocol:
        with np.errstate(over="ignore"):
            return ir.Tensor(array_of(stored).astype(dtype.numpy()), dtype, name=weight.name)

    tensor = ir.LazyTensor(rounded, dtype, ir.Shape(stored.shape.numpy()), name=weight.name)
    provenance.inherit_state(tensor, [stored])
    weight.const_value, weight.dtype = tensor, dtype
    for cast in casts:
        cast.outputs[0].replace_all_uses_with(weight)
        cast.graph.remove(cast, safe=True)  # type: ignore[union-attr]  # it uses a weight of this graph
    return True
