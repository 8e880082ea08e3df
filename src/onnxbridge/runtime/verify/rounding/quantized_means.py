"""The same model with the means that integer kernels compute."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import written_nodes
from onnxbridge.runtime.verify.rounding.rewritten_copy import rewritten_copy

_MEANS = frozenset({"ReduceMean", "GlobalAveragePool"})
_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity"})


def with_inexact_means(model: ir.Model) -> ir.Model:
    """A copy whose quantized means are off by up to half a step, at random; the model itself if it has none.

    TensorFlow Lite's kernels round the zero point of the input, in steps of the output, before they round the sum, or cut off the
    fraction of the mean.
    """
    return rewritten_copy(model, _quantizes_mean, _add_noise) or model


def _add_noise(node: ir.Node, op: Builder, node_names: set[str]) -> None:
    x, scale, *rest = node.inputs
    off = op.Mul(op.RandomUniformLike(x, low=-0.5, high=0.5), scale)
    attrs = {a.name: plain(a) for a in node.attributes.values()}
    quantized = op.QuantizeLinear(op.Add(x, off), scale, *rest, **attrs)
    replace(node, op.take(), [quantized], op, name=written_nodes.namer(node, op, node_names))


def _quantizes_mean(node: ir.Node) -> bool:
    if node.domain or node.op_type != "QuantizeLinear":
        return False
    scale, x = node.inputs[1], node.inputs[0]
    if scale is None or scale.shape is None or len(scale.shape):
        return False
    while x is not None and (producer := x.producer()) is not None and producer.op_type in _MOVES:
        x = producer.inputs[0]
    producer = None if x is None else x.producer()
    return producer is not None and producer.op_type in _MEANS
