"""Takes batch normalisations with fixed statistics into the weights of what stands before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.fold import static

Array = np.ndarray[Any, Any]


class FoldBatchNorm(ir.passes.InPlacePass):
    """Folds every BatchNormalization into the Conv, ConvTranspose or Gemm whose result nobody else reads, in subgraphs too.

    Such a layer computes the same but for rounding: weights are multiplied before the sum instead of after. The new weights are
    computed in float64 and rounded once; what would not be finite stays as it is. They have names of their own, since they are no
    longer the parameters of the model.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        norms = [node for node in model.graph.all_nodes() if node.op_type == "BatchNormalization" and not node.domain]
        folded = [_folded(node) for node in norms]
        return ir.passes.PassResult(model, modified=any(folded))


def _folded(norm: ir.Node) -> bool:
    value = norm.inputs[0]
    layer = value.producer() if value is not None else None
    if layer is None or value is None or layer.domain or layer.op_type not in _SCALED or layer.graph is not norm.graph:
        return False
    if len(value.uses()) != 1 or value.is_graph_output() or any(o.uses() for o in norm.outputs[1:]):
        return False
    if (mode := norm.attributes.get("training_mode")) is not None and mode.as_int():
        return False
    statistics = [static(v) for v in norm.inputs[1:5]]
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    w, b = static(weight), static(bias)
    if weight is None or w is None or (bias is not None and b is None) or any(s is None for s in statistics):
        return False
    eps = norm.attributes.get("epsilon")
    with np.errstate(all="ignore"):
        gain, shift, mean, variance = (np.asarray(s, np.float64) for s in statistics)
        factor = gain / np.sqrt(variance + (eps.as_float() if eps is not None else 1e-5))
        before = _bias(layer, b, len(factor))
        scaled = _SCALED[layer.op_type](layer, w.astype(np.float64), factor)
        if before is None or scaled is None:
            return False
        arrays = [scaled.astype(w.dtype), ((before - mean) * factor + shift).astype(w.dtype)]
    if not all(np.isfinite(a.astype(np.float64)).all() for a in arrays):
        return False
    made = [_constant(norm, a, f"{weight.name}/folded{'' if i == 0 else '_bias'}", weight.dtype) for i, a in enumerate(arrays)]
    layer.resize_inputs(3)
    layer.replace_input_with(1, made[0])
    layer.replace_input_with(2, made[1])
    if "beta" in layer.attributes:
        del layer.attributes["beta"]
    name = norm.outputs[0].name
    ir.convenience.replace_all_uses_with(norm.outputs[0], value, replace_graph_outputs=True)
    norm.graph.remove(norm, safe=True)  # type: ignore[union-attr]  # it is in the layer's graph
    value.name = name
    return True


def _bias(layer: ir.Node, bias: Array | None, channels: int) -> Array | None:
    """What a layer adds to each channel; None where it adds more than one number to one."""
    if bias is None:
        return np.zeros(channels)
    if bias.size not in (1, channels) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return None
    beta = layer.attributes.get("beta")
    return np.broadcast_to(bias.astype(np.float64).reshape(-1) * (beta.as_float() if beta is not None else 1.0), channels)


def _conv(layer: ir.Node, weight: Array, factor: Array) -> Array | None:
    return weight * factor.reshape(-1, *[1] * (weight.ndim - 1)) if len(weight) == len(factor) else None


def _conv_transpose(layer: ir.Node, weight: Array, factor: Array) -> Array | None:
    """The channels that come out are the second axis, once for each group of those that go in."""
    group = layer.attributes.get("group")
    groups = group.as_int() if group is not None else 1
    if weight.shape[1] * groups != len(factor):
        return None
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    return (parts * factor.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)


def _gemm(layer: ir.Node, weight: Array, factor: Array) -> Array | None:
    turned = layer.attributes.get("transB")
    if weight.shape[0 if turned is not None and turned.as_int() else 1] != len(factor):
        return None
    return weight * (factor[:, None] if turned is not None and turned.as_int() else factor)


_SCALED: dict[str, Callable[[ir.Node, Array, Array], Array | None]] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm,
}  # fmt: skip


def _constant(norm: ir.Node, array: Array, name: str, dtype: ir.DataType | None) -> ir.Value:
    """A weight of the graph that the norm is in, under a name that is free there."""
    graph = norm.graph
    assert isinstance(graph, ir.Graph)
    label, n = name, 0
    while label in graph.initializers:
        n += 1
        label = f"{name}_{n}"
    tensor = ir.Tensor(array, dtype, name=label)
    made = ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(made)
    return made
