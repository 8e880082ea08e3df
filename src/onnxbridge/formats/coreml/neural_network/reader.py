"""A neuralNetwork of a specification as a function of MIL operators."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.formats.coreml.mil_program import Feature, Function, Slot, Type
from onnxbridge.formats.coreml.neural_network.control_flow import calls
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.writer import Target, Writer
from onnxbridge.lowering import lower

FLOAT = np.dtype(np.float32)


def function(spec: Any, inputs: list[Feature], outputs: list[Feature]) -> Function:
    """The network of a specification; its blobs are float32, as Core ML computes them on a CPU.

    Raises:
        ConversionError: with every layer that is in the way.
    """
    kind = spec.WhichOneof("Type")
    network = getattr(spec, kind)
    writer = Writer(exact=bool(network.arrayInputShapeMapping))
    blobs: dict[Hashable, Any] = {}
    prepared = {p.featureName or inputs[0].name: p for p in network.preprocessing}
    taken = []
    for feature in inputs:
        shape = _shape(feature)
        slot = writer.new(feature.name, Type(FLOAT, shape))
        taken.append(slot)
        blobs[feature.name] = _entered(writer, slot, feature, prepared.get(feature.name))
    lower(calls(network.layers, set(blobs)), rule, blobs, Target(writer))
    described = spec.description
    missing = {f.name for f in outputs} - set(blobs) - {described.predictedFeatureName, described.predictedProbabilitiesName}
    if missing:
        last = network.layers[-1].output[0] if network.layers and network.layers[-1].output else ""
        raise UnsafeFileError(
            f"no layer writes the output {', '.join(sorted(missing))}" + (f"; the last one writes {last}" if last else "")
        )
    fixed = all(0 not in f.shape and not f.allowed for f in inputs)
    results = [_left(writer, blobs, f, fixed) for f in outputs if f.name in blobs]
    if kind == "neuralNetworkClassifier":
        results += _classified(writer, network, blobs, described)
    writer.block.inputs, writer.block.outputs = tuple(taken), tuple(results)
    return Function("main", writer.block, {}, writer.constants, writer.count)


def _shape(feature: Feature) -> tuple[int | None, ...]:
    if feature.kind == "imageType":
        return (1, 1 if feature.color.startswith("GRAYSCALE") else 3, *feature.shape)
    return tuple(n or None for n in feature.shape)


def _entered(writer: Writer, slot: Slot, feature: Feature, prepared: Any) -> Slot:
    """An input as the layers see it: with the preprocessing of an image, and with four axes in older networks."""
    with writer.named(feature.name):
        if feature.kind == "imageType":
            return _normalised(writer, slot, feature, prepared)
        rank = len(feature.shape)
        if writer.exact or rank == 4:
            return slot
        if rank not in (1, 3):
            raise UsageError(f"the input {feature.name} has {rank} axes; a network of this kind takes 1, 3 or 4")
        entered: Slot = writer.expand_dims(x=slot, axes=np.array([0, 2, 3] if rank == 1 else [0]))
        return entered


def _normalised(writer: Writer, slot: Slot, feature: Feature, prepared: Any) -> Slot:
    if prepared is None:
        return slot
    if prepared.WhichOneof("preprocessor") == "meanImage":
        mean = np.array(prepared.meanImage.meanImage, np.float32).reshape(1, -1, *feature.shape)
        centred: Slot = writer.sub(x=slot, y=writer.weight(mean, "meanImage"))
        return centred
    scaler = prepared.scaler
    biases = {
        "RGB": (scaler.redBias, scaler.greenBias, scaler.blueBias), "BGR": (scaler.blueBias, scaler.greenBias, scaler.redBias),
    }.get(feature.color, (scaler.grayBias,))  # fmt: skip
    scaled = writer.mul(x=slot, y=np.float32(scaler.channelScale))
    moved: Slot = writer.add(x=scaled, y=np.array(biases, np.float32).reshape(1, -1, 1, 1))
    return moved


def _left(writer: Writer, blobs: dict[Hashable, Any], feature: Feature, fixed: bool) -> Slot:
    """An output with the axes that the description gives it. `fixed`: no input leaves a size open, so that one holds always."""
    found = blobs[feature.name]
    with writer.named(feature.name):
        rank = len(feature.shape)
        if writer.exact and fixed and feature.kind == "multiArrayType" and feature.shape and min(feature.shape) > 0:
            found = writer.as_described(x=found, shape=np.array(feature.shape))
        if not writer.exact and feature.kind == "multiArrayType" and rank in (1, 3):
            found = writer.reshape(x=found, shape=np.array([-1])) if rank == 1 else writer.squeeze(x=found, axes=np.array([0]))
        return _named(writer, found, feature.name)


def _named(writer: Writer, value: Any, name: str) -> Slot:
    """The value in a slot of the output's name."""
    slot: Slot = writer.identity(x=value)
    operation = writer.block.operations[-1]
    operation.outputs = (Slot(slot.index, name),)
    return operation.outputs[0]


def _classified(writer: Writer, network: Any, blobs: dict[Hashable, Any], description: Any) -> list[Slot]:
    """The label and the probabilities of a classifier, by the names of its description."""
    names = network.stringClassLabels.vector or network.int64ClassLabels.vector
    layer = network.labelProbabilityLayerName
    source = layer if layer in blobs else next((x.output[0] for x in network.layers if x.name == layer), None)
    probabilities = blobs[source or network.layers[-1].output[0]]
    classes = writer.new("classes")
    writer.constants[classes.index] = list(names)
    with writer.named("classify"):
        label, table = writer.classify(probabilities=probabilities, classes=classes, outputs=2)
    found = Slot(label.index, description.predictedFeatureName), Slot(table.index, description.predictedProbabilitiesName)
    writer.block.operations[-1].outputs = found
    return list(found)
