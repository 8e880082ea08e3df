"""Takes batch normalisations with fixed statistics into the weights of what stands before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.replacement import take_over
from onnxbridge.hub.ir.schemas import array_of

Array = np.ndarray[Any, Any]


class FoldBatchNorm(ir.passes.InPlacePass):
    """Folds every BatchNormalization into the Conv, ConvTranspose or Gemm whose result nobody else reads, in subgraphs too.

    Such a layer computes the same but for rounding: weights are multiplied before the sum instead of after. The products are
    computed in float64 and rounded once, each time that somebody asks for them: until then there is nothing but the parameters.
    Weights keep their names; a layer without a bias gets one beside its weight. What would not be finite stays as it is, and so
    do weights that something else reads, since they would have to be written twice.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        norms = [node for node in model.graph.all_nodes() if node.op_type == "BatchNormalization" and not node.domain]
        taken = set(_names(model)) if norms else set()
        folded = [_folded(node, taken) for node in norms]
        return ir.passes.PassResult(model, modified=any(folded))


def _names(model: ir.Model) -> Iterator[str]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.initializers
        yield from (str(v.name) for v in graph.inputs)
        yield from (str(o.name) for node in graph for o in node.outputs)


def _folded(norm: ir.Node, taken: set[str]) -> bool:
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
    statistics, b = [static(v) for v in norm.inputs[1:5]], static(bias)
    if (bias is not None and b is None) or any(s is None for s in statistics):
        return False
    eps = norm.attributes.get("epsilon")
    with np.errstate(all="ignore"):
        gain, shift, mean, variance = (np.asarray(s, np.float64) for s in statistics)
        factor = gain / np.sqrt(variance + (eps.as_float() if eps is not None else 1e-5))
        before = _bias(layer, b, len(factor))
        places = _AXES[layer.op_type](layer, list(weight.const_value.shape.numpy()), factor)
        if before is None or places is None:
            return False
        moved = ((before - mean) * factor + shift).astype(weight.const_value.dtype.numpy())
    if not np.isfinite(moved.astype(np.float64)).all() or not _stays_finite(weight.const_value, *places):
        return False
    weight.const_value = _product(weight.const_value, *places)
    layer.resize_inputs(3)
    layer.replace_input_with(2, _put(layer, bias, moved, weight, taken))
    if "beta" in layer.attributes:
        del layer.attributes["beta"]
    take_over(norm.outputs[0], value)
    norm.graph.remove(norm, safe=True)  # type: ignore[union-attr]  # it is in the layer's graph
    return True


def _bias(layer: ir.Node, bias: Array | None, channels: int) -> Array | None:
    """What a layer adds to each channel; None where it adds more than one number to one."""
    if bias is None:
        return np.zeros(channels)
    if bias.size not in (1, channels) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return None
    beta = layer.attributes.get("beta")
    return np.broadcast_to(bias.astype(np.float64).reshape(-1) * (beta.as_float() if beta is not None else 1.0), channels)


def _conv(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    return (shape, factor.reshape(-1, *[1] * (len(shape) - 1))) if shape[0] == len(factor) else None


def _conv_transpose(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    """The channels that come out are the second axis, once for each group of those that go in."""
    group = layer.attributes.get("group")
    groups = group.as_int() if group is not None else 1
    if shape[1] * groups != len(factor) or shape[0] % groups:
        return None
    return [groups, shape[0] // groups, *shape[1:]], factor.reshape(groups, 1, -1, *[1] * (len(shape) - 2))


def _gemm(layer: ir.Node, shape: list[int], factor: Array) -> tuple[list[int], Array] | None:
    turned = layer.attributes.get("transB")
    rows = turned is not None and bool(turned.as_int())
    return (shape, factor[:, None] if rows else factor) if shape[0 if rows else 1] == len(factor) else None


_AXES: dict[str, Callable[[ir.Node, list[int], Array], tuple[list[int], Array] | None]] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm,
}  # fmt: skip
"""The shape in which a layer's weight is seen, and the factors of its channels as they broadcast to that."""


def _scaled(weight: ir.TensorProtocol, view: list[int], factor: Array) -> Array:
    """The products in the weight's type, rounded once from float64, without a copy of the whole in it."""
    array = array_of(weight).reshape(view)
    made = np.empty(view, array.dtype)
    with np.errstate(all="ignore"):
        np.multiply(array, factor, out=made, casting="unsafe", dtype=np.float64)
    return made.reshape(weight.shape.numpy())


def _stays_finite(weight: ir.TensorProtocol, view: list[int], factor: Array) -> bool:
    """Whether all products are finite; the largest weight mostly tells."""
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


def _put(layer: ir.Node, bias: ir.Value | None, moved: Array, weight: ir.Value, taken: set[str]) -> ir.Value:
    """The layer's bias with new numbers: its own where nobody else reads it, otherwise one that is called after the weight."""
    kind = weight.const_value.dtype  # type: ignore[union-attr]  # it has numbers
    own = bias is not None and len(bias.uses()) == 1 and not bias.is_graph_output() and bias.shape == moved.shape
    if bias is not None and own:
        bias.const_value = ir.Tensor(moved, kind, name=bias.name)
        return bias
    graph, name = layer.graph, str(weight.name)
    assert isinstance(graph, ir.Graph)
    wanted = f"{name.removesuffix('weight')}bias" if name.endswith("weight") else f"{name}_bias"
    label, n = wanted, 0
    while label in taken:
        n += 1
        label = f"{wanted}_{n}"
    taken.add(label)
    tensor = ir.Tensor(moved, kind, name=label)
    made = ir.Value(name=label, type=ir.TensorType(kind), shape=ir.Shape(moved.shape), const_value=tensor)
    graph.register_initializer(made)
    return made
