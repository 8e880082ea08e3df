"""Folds batch normalization with constant statistics, and constant factors, into the weights of the preceding layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.replacement import transfer
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.provenance import state_of
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.hub.ir.unique_name import unique_name

Array = np.ndarray[Any, Any]
_LAYERS = ("Conv", "ConvTranspose", "Gemm")


class FoldBatchNorm(ir.passes.InPlacePass):
    """Folds every BatchNormalization into the preceding Conv, ConvTranspose or Gemm, also in subgraphs; with `factors` also every
    product of such a layer with a number.

    The layer's result must have no other use. It is equal up to rounding. The products are computed in float64, rounded once,
    and evaluated lazily each time they are needed. Weights keep their names; a layer without a bias gets one named after its
    weight. Nothing is folded if a product would not be finite, or if the weight has other uses, since it would be duplicated.
    """

    def __init__(self, factors: bool = False) -> None:
        super().__init__()
        self._kinds = {"BatchNormalization": _normalization, **({"Mul": _product_with_number} if factors else {})}

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        found = [node for node in model.graph.all_nodes() if node.op_type in self._kinds and not node.domain]
        names = set(_names(model)) if found else set()
        modified = False
        for node in found:
            affine = self._kinds[node.op_type](node)
            modified |= affine is not None and _fold(node, affine, names)
        return ir.passes.PassResult(model, modified=modified)


@dataclass(frozen=True)
class _Affine:
    """(value - mean) * factor + shift, per channel; `shifts` if it is more than a product."""

    value: ir.Value
    factor: Array
    mean: Array | float = 0.0
    shift: Array | float = 0.0
    shifts: bool = False


def _normalization(norm: ir.Node) -> _Affine | None:
    statistics = [constant_array(v) for v in norm.inputs[1:5]]
    if norm.inputs[0] is None or any(s is None for s in statistics) or any(o.uses() for o in norm.outputs[1:]):
        return None
    if (mode := norm.attributes.get("training_mode")) is not None and mode.as_int():
        return None
    eps = norm.attributes.get("epsilon")
    scale, shift, mean, variance = (np.asarray(s, np.float64) for s in statistics)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + (eps.as_float() if eps is not None else 1e-5))
    return _Affine(norm.inputs[0], factor, mean, shift, True)


def _product_with_number(product: ir.Node) -> _Affine | None:
    for value, other in (tuple(product.inputs), tuple(product.inputs)[::-1]):
        number = constant_array(other)
        if value is None or other is None or number is None or number.size != 1 or state_of(other.const_value) == "parameter":
            continue
        if value.shape is not None and number.ndim <= len(value.shape):
            return _Affine(value, np.asarray(number, np.float64).reshape(1))
    return None


def _names(model: ir.Model) -> Iterator[str]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.initializers
        yield from (str(v.name) for v in graph.inputs)
        yield from (str(o.name) for node in graph for o in node.outputs)


def _fold(node: ir.Node, affine: _Affine, names: set[str]) -> bool:
    value = affine.value
    layer = value.producer()
    if layer is None or layer.domain or layer.op_type not in _LAYERS or layer.graph is not node.graph:
        return False
    if len(value.uses()) != 1 or value.is_graph_output():
        return False
    weight = layer.inputs[1]
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if weight is None or weight.const_value is None or len(weight.uses()) != 1 or weight.is_graph_output():
        return False
    b = constant_array(bias)
    if bias is not None and b is None:
        return False
    shape = list(weight.const_value.shape.numpy())
    channels = _channels(layer, shape)
    if affine.factor.size not in (1, channels) or not weight.const_value.dtype.is_floating_point():
        return False
    factor = np.broadcast_to(affine.factor, channels)
    scaling = _scaling(layer, shape, factor)
    if not _stays_finite(weight.const_value, *scaling):
        return False
    if bias is not None or affine.shifts:
        before = _bias(layer, b, channels)
        if before is None:
            return False
        with np.errstate(all="ignore"):
            folded_bias = ((before - affine.mean) * factor + affine.shift).astype(weight.const_value.dtype.numpy())
        if not np.isfinite(folded_bias.astype(np.float64)).all():
            return False
        layer.resize_inputs(3)
        layer.replace_input_with(2, _new_bias(layer, bias, folded_bias, weight, names))
        if "beta" in layer.attributes:
            del layer.attributes["beta"]
    weight.const_value = _product(weight.const_value, *scaling)
    transfer(node.outputs[0], value)
    node.graph.remove(node, safe=True)  # type: ignore[union-attr]  # it is in the layer's graph
    return True


def _bias(layer: ir.Node, bias: Array | None, channels: int) -> Array | None:
    """The bias of each channel; None if it is not constant per channel."""
    if bias is None:
        return np.zeros(channels)
    if bias.size not in (1, channels) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return None
    beta = layer.attributes.get("beta")
    return np.broadcast_to(bias.astype(np.float64).reshape(-1) * (beta.as_float() if beta is not None else 1.0), channels)


def _channels(layer: ir.Node, shape: list[int]) -> int:
    if layer.op_type == "ConvTranspose":
        return shape[1] * _groups(layer)
    return shape[0 if layer.op_type == "Conv" or _is_transposed(layer) else 1]


def _groups(layer: ir.Node) -> int:
    group = layer.attributes.get("group")
    return group.as_int() if group is not None else 1


def _is_transposed(gemm: ir.Node) -> bool:
    transposed = gemm.attributes.get("transB")
    return transposed is not None and bool(transposed.as_int())


def _scaling(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array]:
    """The shape to which a layer's weight is reshaped, and the factors of its channels, broadcastable to that shape."""
    if layer.op_type == "Conv":
        return shape, factor.reshape(-1, *[1] * (len(shape) - 1))
    if layer.op_type == "ConvTranspose":  # output channels are the second axis, for each group of input channels
        groups = _groups(layer)
        return [groups, shape[0] // groups, *shape[1:]], factor.reshape(groups, 1, -1, *[1] * (len(shape) - 2))
    return shape, factor[:, None] if _is_transposed(layer) else factor


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
