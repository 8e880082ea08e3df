"""Rules for the custom layers of kraken, an OCR system for historical prints, whose models are Core ML files.

kraken stores its networks as Core ML files but runs them in PyTorch, and interprets some layers differently:

* `groupnorm` is a custom layer, for which a Core ML file contains no code. Its rule is here.
* An LSTM runs along every row of an image, or after a `permute` along every column, and keeps the axes of the image. Core ML's
  LSTM runs along a sequence. These layers are replaced by a custom layer `rows`, which has a rule.
* A convolution with "same" padding pads by half of the kernel on both sides; max pooling does not pad.
* The output is that of the last layer, whatever its name is.

Usage::

    import onnxbridge, kraken_layers
    onnxbridge.convert(kraken_layers.prepare("blla.mlmodel"), "onnx", output="blla.onnx")
"""

from __future__ import annotations

import os

import coremltools
import numpy as np

from onnxbridge.formats.coreml.neural_network.ops import rule


@rule("custom.groupnorm")
def groupnorm(mil, x, *, in_channels, num_groups, weights):
    """Group normalization with a scale and shift per channel; x is (1, C, H, W)."""
    shape, axes = mil.shape(x=x), np.array([2])
    groups = mil.reshape(x=x, shape=np.array([1, num_groups, -1], np.int32))
    centered = mil.sub(x=groups, y=mil.reduce_mean(x=groups, axes=axes, keep_dims=True))
    variance = mil.reduce_mean(x=mil.square(x=centered), axes=axes, keep_dims=True)
    scaled = mil.reshape(x=mil.mul(x=centered, y=mil.rsqrt(x=variance, epsilon=np.float32(1e-5))), shape=shape)
    gamma, beta = (mil.weight(w.reshape(1, in_channels, 1, 1), name) for w, name in zip(weights, ("gamma", "beta"), strict=True))
    return mil.add(x=mil.mul(x=scaled, y=gamma), y=beta)


@rule("custom.rows")
def rows(mil, x, *, size, columns, bidirectional, summarized, weights):
    """An LSTM along the rows or columns of (1, C, H, W).

    `weights` are the input weights, recurrence weights and bias of Core ML's layer for each direction. `summarized` returns only
    the last step.
    """
    order = [2, 0, 1] if columns else [2, 1, 0]  # (steps, sequences, channels) to (C, H, W)
    x = mil.transpose(x=mil.squeeze(x=x, axes=np.array([0])), perm=np.array([1, 2, 0] if columns else [2, 1, 0]))
    count = mil.slice_by_index(x=mil.shape(x=x), begin=np.array([1]), end=np.array([2]))
    directions = 2 if bidirectional else 1
    state = mil.fill(shape=mil.concat(values=[count, np.array([directions * size], np.int32)], axis=0), value=np.float32(0))
    lstm_weights = {}
    for suffix, direction_weights in zip(("", "_back"), np.split(np.arange(3 * directions), directions), strict=False):
        w, r, b = (weights[i] for i in direction_weights)
        lstm_weights[f"weight_ih{suffix}"] = mil.weight(w.reshape(4 * size, -1), f"weight_ih{suffix}")
        lstm_weights[f"weight_hh{suffix}"] = mil.weight(r.reshape(4 * size, size), f"weight_hh{suffix}")
        lstm_weights[f"bias{suffix}"] = mil.weight(b, f"bias{suffix}")
    y, _, _ = mil.lstm(
        x=x, initial_h=state, initial_c=state, direction="bidirectional" if bidirectional else "forward", output_sequence=True,
        outputs=3, **lstm_weights,
    )  # fmt: skip
    if summarized:
        y = mil.slice_by_index(x=y, begin=np.array([-1, 0, 0]), end=np.array([0, 0, 0]), end_mask=np.array([True] * 3))
    return mil.expand_dims(x=mil.transpose(x=y, perm=np.array(order)), axes=np.array([0]))


def prepare(source: str | os.PathLike[str] | coremltools.proto.Model_pb2.Model) -> coremltools.proto.Model_pb2.Model:
    """The specification of a kraken network, with layers replaced according to their meaning in kraken."""
    spec = coremltools.proto.Model_pb2.Model()
    spec.CopyFrom(coremltools.models.utils.load_spec(os.fspath(source)) if isinstance(source, str | os.PathLike) else source)
    network = spec.neuralNetwork
    permute_inputs: dict[str, str] = {}  # the input of each permute by its output
    layers = list(network.layers)
    del network.layers[:]
    for layer in layers:
        kind = layer.WhichOneof("layer")
        if kind == "permute":
            permute_inputs[layer.output[0]] = layer.input[0]
            continue
        new_layer = network.layers.add()
        new_layer.CopyFrom(layer)
        if kind in ("uniDirectionalLSTM", "biDirectionalLSTM"):
            _replace_lstm(new_layer, getattr(layer, kind), permute_inputs.pop(layer.input[0], None))
        elif kind == "convolution":
            _set_padding(new_layer.convolution)
        elif kind == "pooling":
            new_layer.pooling.valid.SetInParent()
    network.layers[-1].output[0] = spec.description.output[0].name
    return spec


def _replace_lstm(new_layer, layer, before):
    """Replace an LSTM by the custom layer `rows`; `before` is the input of a preceding permute, None without one."""
    if layer.params.hasPeepholeVectors or not layer.params.hasBiasVectors:
        raise ValueError(f"{new_layer.name} is an LSTM of clstm or ocropy, which this example does not support")
    directions = layer.weightParams if hasattr(layer, "activationsForwardLSTM") else [layer.weightParams]
    new_layer.custom.className = "rows"
    if before is not None:
        new_layer.input[0] = before
    parameters = new_layer.custom.parameters
    parameters["size"].intValue = int(layer.outputVectorSize)
    parameters["columns"].boolValue = before is not None
    parameters["bidirectional"].boolValue = len(directions) > 1
    parameters["summarized"].boolValue = not layer.params.sequenceOutput
    for direction_weights in directions:
        for kind in ("WeightMatrix", "RecursionMatrix", "BiasVector"):
            gates = (
                getattr(direction_weights, f"{gate}{kind}") for gate in ("inputGate", "forgetGate", "outputGate", "blockInput")
            )
            new_layer.custom.weights.add().floatValue.extend(np.concatenate([np.array(g.floatValue, np.float32) for g in gates]))


def _set_padding(convolution):
    amounts = convolution.valid.paddingAmounts
    for size, dilation in zip(convolution.kernelSize, convolution.dilationFactor or (1, 1), strict=True):
        half = int(dilation) * (int(size) - 1) // 2
        amounts.borderAmounts.add(startEdgeSize=half, endEdgeSize=half)
