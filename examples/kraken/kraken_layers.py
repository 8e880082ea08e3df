"""Core ML files of kraken, the reader of old prints, and what is different in them: a set of rules for custom layers.

kraken keeps its networks in Core ML's format, but runs them in PyTorch, and reads some layers in its own way:

* `groupnorm` is a custom layer, whose code a Core ML file never has. Here is its rule.
* An LSTM runs along every row of an image or, after a `permute`, along every column, and the image keeps its axes. Core ML's
  runs along a sequence only. So these layers become a custom layer of our own, `rows`, with a rule.
* A convolution pads by half of its kernel on both sides, wherever it is said to be "same"; maximum pooling does not pad.
* The output is what the last layer writes, whatever it is called.

    import onnxbridge, kraken_layers
    onnxbridge.convert(kraken_layers.prepared("blla.mlmodel"), "onnx", output="blla.onnx")
"""

from __future__ import annotations

import os

import coremltools
import numpy as np

from onnxbridge.formats.coreml.neural_network.ops import rule


@rule("custom.groupnorm")
def groupnorm(mil, x, *, in_channels, num_groups, weights):
    """Each group of channels gets a mean of 0 and a variance of 1, then each channel its scale and shift; x is (1, C, H, W)."""
    shape, axes = mil.shape(x=x), np.array([2])
    groups = mil.reshape(x=x, shape=np.array([1, num_groups, -1], np.int32))
    centred = mil.sub(x=groups, y=mil.reduce_mean(x=groups, axes=axes, keep_dims=True))
    spread = mil.reduce_mean(x=mil.square(x=centred), axes=axes, keep_dims=True)
    scaled = mil.reshape(x=mil.mul(x=centred, y=mil.rsqrt(x=spread, epsilon=np.float32(1e-5))), shape=shape)
    gamma, beta = (mil.weight(w.reshape(1, in_channels, 1, 1), name) for w, name in zip(weights, ("gamma", "beta"), strict=True))
    return mil.add(x=mil.mul(x=scaled, y=gamma), y=beta)


@rule("custom.rows")
def rows(mil, x, *, size, columns, bidirectional, summarized, weights):
    """An LSTM along the rows of (1, C, H, W), or along its columns. `weights` are those of Core ML's layer, one direction after
    the other: what meets the input, the state, and the bias. `summarized` keeps the last step."""
    order = [2, 0, 1] if columns else [2, 1, 0]  # of (C, H, W): steps, as many sequences side by side, channels
    x = mil.transpose(x=mil.squeeze(x=x, axes=np.array([0])), perm=np.array([1, 2, 0] if columns else [2, 1, 0]))
    count = mil.slice_by_index(x=mil.shape(x=x), begin=np.array([1]), end=np.array([2]))
    ways = 2 if bidirectional else 1
    state = mil.fill(shape=mil.concat(values=[count, np.array([ways * size], np.int32)], axis=0), value=np.float32(0))
    given = {}
    for suffix, way in zip(("", "_back"), np.split(np.arange(3 * ways), ways), strict=False):
        w, r, b = (weights[i] for i in way)
        given[f"weight_ih{suffix}"] = mil.weight(w.reshape(4 * size, -1), f"weight_ih{suffix}")
        given[f"weight_hh{suffix}"] = mil.weight(r.reshape(4 * size, size), f"weight_hh{suffix}")
        given[f"bias{suffix}"] = mil.weight(b, f"bias{suffix}")
    y, _, _ = mil.lstm(
        x=x, initial_h=state, initial_c=state, direction="bidirectional" if bidirectional else "forward", output_sequence=True,
        outputs=3, **given,
    )  # fmt: skip
    if summarized:
        y = mil.slice_by_index(x=y, begin=np.array([-1, 0, 0]), end=np.array([0, 0, 0]), end_mask=np.array([True] * 3))
    return mil.expand_dims(x=mil.transpose(x=y, perm=np.array(order)), axes=np.array([0]))


def prepared(source: str | os.PathLike[str] | coremltools.proto.Model_pb2.Model) -> coremltools.proto.Model_pb2.Model:
    """The specification of a network of kraken, with its layers called what kraken takes them for."""
    spec = coremltools.proto.Model_pb2.Model()
    spec.CopyFrom(coremltools.models.utils.load_spec(os.fspath(source)) if isinstance(source, str | os.PathLike) else source)
    network = spec.neuralNetwork
    turned: dict[str, str] = {}  # what a permute writes, by what it reads
    layers = list(network.layers)
    del network.layers[:]
    for layer in layers:
        kind = layer.WhichOneof("layer")
        if kind == "permute":
            turned[layer.output[0]] = layer.input[0]
            continue
        made = network.layers.add()
        made.CopyFrom(layer)
        if kind in ("uniDirectionalLSTM", "biDirectionalLSTM"):
            _rows(made, getattr(layer, kind), turned.pop(layer.input[0], None))
        elif kind == "convolution":
            _padded(made.convolution)
        elif kind == "pooling":
            made.pooling.valid.SetInParent()
    network.layers[-1].output[0] = spec.description.output[0].name
    return spec


def _rows(made, layer, before):
    """Turn an LSTM into our custom layer; `before` is what the permute in front of it reads, None without one."""
    if layer.params.hasPeepholeVectors or not layer.params.hasBiasVectors:
        raise ValueError(f"{made.name} is of the older kinds of LSTM, of clstm or ocropy, for which this example has no rule")
    ways = layer.weightParams if hasattr(layer, "activationsForwardLSTM") else [layer.weightParams]
    made.custom.className = "rows"
    if before is not None:
        made.input[0] = before
    parameters = made.custom.parameters
    parameters["size"].intValue = int(layer.outputVectorSize)
    parameters["columns"].boolValue = before is not None
    parameters["bidirectional"].boolValue = len(ways) > 1
    parameters["summarized"].boolValue = not layer.params.sequenceOutput
    for way in ways:
        for kind in ("WeightMatrix", "RecursionMatrix", "BiasVector"):
            gates = (getattr(way, f"{gate}{kind}") for gate in ("inputGate", "forgetGate", "outputGate", "blockInput"))
            made.custom.weights.add().floatValue.extend(np.concatenate([np.array(g.floatValue, np.float32) for g in gates]))


def _padded(convolution):
    amounts = convolution.valid.paddingAmounts
    for size, dilation in zip(convolution.kernelSize, convolution.dilationFactor or (1, 1), strict=True):
        half = int(dilation) * (int(size) - 1) // 2
        amounts.borderAmounts.add(startEdgeSize=half, endEdgeSize=half)
