"""Folds batch normalization with constant statistics into the weights of the preceding layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.replacement import transfer
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.hub.ir.unique_name import unique_name

Array = np.ndarray[Any, Any]


class FoldBatchNorm(ir.passes.InPlacePass):
    """Folds every BatchNormalization into the preceding Conv, ConvTranspose or Gemm, also in subgraphs.

    The layer's result must have no other use. It is equal up to rounding. The products are computed in float64, rounded once,
    and evaluated lazily each time they are needed. Weights keep their names; a layer without a bias gets one named after its
    weight. Nothing is folded if a product would not be finite, or if the weight has other uses, since it would be duplicated.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        norms = [node for node in model.graph.all_nodes() if node.op_type == "BatchNormalization" and not node.domain]
        names = set(_names(model)) if norms else set()
        folded = [_fold(node, names) for node in norms]
        return ir.passes.PassResult(model, modified=any(folded))


def _names(model: ir.Model) -> Iterator[str]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.initializers
        yield from (str(v.name) for v in graph.inputs)
        yield from (str(o.name) for node in graph for o in node.outputs)


def _fold(norm: ir.Node, names: set[str]) -> bool:
    value = norm.inputs[0]
    layer = value.producer() if value is not None else None
    if layer is None or value is None or layer.domain or layer.op_type not in _AXES or layer.graph is not norm.graph:
        return False
    if len(value.uses()) != 1 or value.is_graph_output() or any(o.uses() for o in norm.outputs[1:]):
        return False
    if (mode := norm.attributes.get("training_mode")) is not None and mode.as_int():
        return False
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if weight is None or weight.const_value is None or len(weight.uses()) != 1 or weight.is_graph_output():
        return False
    statistics, b = [constant_array(v) for v in norm.inputs[1:5]], constant_array(bias)
    if (bias is not None and b is None) or any(s is None for s in statistics):
        return False
    eps = norm.attributes.get("epsilon")
    with np.errstate(all="ignore"):
        scale, shift, mean, variance = (np.asarray(s, np.float64) for s in statistics)
        factor = scale / np.sqrt(variance + (eps.as_float() if eps is not None else 1e-5))
        before = _bias(layer, b, len(factor))
        scaling = _AXES[layer.op_type](layer, list(weight.const_value.shape.numpy()), factor)
        if before is None or scaling is None:
            return False
        folded_bias = ((before - mean) * factor + shift).astype(weight.const_value.dtype.numpy())
    if not np.isfinite(folded_bias.astype(np.float64)).all() or not _stays_finite(weight.const_value, *scaling):
        return False
    weight.const_value = _product(weight.const_value, *scaling)
    layer.resize_inputs(3)
    layer.replace_input_with(2, _new_bias(layer, bias, folded_bias, weight, names))
    if "beta" in layer.attributes:
        del layer.attributes["beta"]
    transfer(norm.outputs[0], value)
    norm.graph.remove(norm, safe=True)  # type: ignore[union-attr]  # it is in the layer's graph
    return True


def _bias(layer: ir.Node, bias: Array | None, channels: int) -> Array | None:
    """The bias of each channel; None if it is not constant per channel."""
    if bias is None:
        return np.zeros(channels)
    if bias.size not in (1, channels) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return None
    beta = layer.attributes.get("beta")
    return np.broadcast_to(bias.astype(np.float64).reshape(-1) * (beta.as_float() if beta is not None else 1.0), channels)


def _conv(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    return (shape, factor.reshape(-1, *[1] * (len(shape) - 1))) if shape[0] == len(factor) else None


def _conv_transpose(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    """Output channels are the second axis, for each group of input channels."""
    group = layer.attributes.get("group")
    groups = group.as_int() if group is not None else 1
    if shape[1] * groups != len(factor) or shape[0] % groups:
        return None
    return [groups, shape[0] // groups, *shape[1:]], factor.reshape(groups, 1, -1, *[1] * (len(shape) - 2))


def _gemm(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    transposed = layer.attributes.get("transB")
    rows = transposed is not None and bool(transposed.as_int())
    return (shape, factor[:, None] if rows else factor) if shape[0 if rows else 1] == len(factor) else None


_AXES: dict[str, Callable[[ir.Node, list[int], Array], tuple[list[int], Array] | None]] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm,
}  # fmt: skip
"""The shape to which a layer's weight is reshaped, and the factors of its channels, broadcastable to that shape."""


def _scaled(weight: ir.TensorProtocol, view: list[int], factor: Array) -> Array:
    """The products in the weight's dtype, rounded once from float64, without a float64 copy of the weight."""
    array = array_of(weight).reshape(view)
    scaled = np.empty(view, array.dtype)
    with np.errstate(all="ignore"):
        np.multiply(array, factor, out=scaled, casting="unsafe", dtype=np.float64)
    return scaled.reshape(weight.shape.numpy())


def _stays_finite(weight: ir.TensorProtocol, view: list[int], factor: Array) -> bool:
    """Whether all products are finite; usually decided by the largest weight."""
    array = array_of(weight)
    if not array.size:
        return True
    reach = max(abs(float(array.max())), abs(float(array.min()))) * float(np.abs(factor).max())
    limit = float(ml_dtypes.finfo(array.dtype).max)  # type: ignore[no-untyped-call]
    return reach < limit or bool(np.isfinite(_scaled(weight, view, factor).astype(np.float64)).all())


def _product(weight: ir.TensorProtocol, view: list[int], factor: Array) -> ir.LazyTensor:
    def computed() -> ir.TensorProtocol:
        return ir.Tensor(_scaled(weight, view, factor), weight.dtype, name=weight.name)

    return ir.LazyTensor(computed, weight.dtype, ir.Shape(weight.shape.numpy()), name=weight.name)


def _new_bias(layer: ir.Node, bias: ir.Value | None, folded_bias: Array, weight: ir.Value, names: set[str]) -> ir.Value:
    """The layer's bias with new values: its own if it has no other use, otherwise a new one named after the weight."""
    kind = weight.const_value.dtype  # type: ignore[union-attr]  # it has numbers
    own = bias is not None and len(bias.uses()) == 1 and not bias.is_graph_output() and bias.shape == folded_bias.shape
    if bias is not None and own:
        bias.const_value = ir.Tensor(folded_bias, kind, name=bias.name)
        return bias
    graph, name = layer.graph, str(weight.name)
    assert isinstance(graph, ir.Graph)
    base = f"{name.removesuffix('weight')}bias" if name.endswith("weight") else f"{name}_bias"
    label = unique_name(base, names)
    tensor = ir.Tensor(folded_bias, kind, name=label)
    new = ir.Value(name=label, type=ir.TensorType(kind), shape=ir.Shape(folded_bias.shape), const_value=tensor)
    graph.register_initializer(new)
    return new
