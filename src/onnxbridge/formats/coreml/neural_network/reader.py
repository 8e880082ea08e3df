"""Reads a neuralNetwork of a specification as a function of MIL operators."""

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
    """Convert the network of a specification; its blobs are float32, as Core ML computes them on a CPU.

    Raises:
        ConversionError: with every unsupported layer.
    """
    kind = spec.WhichOneof("Type")
    network = getattr(spec, kind)
    writer = Writer(exact=bool(network.arrayInputShapeMapping))
    blobs: dict[Hashable, Any] = {}
    preprocessing = {p.featureName or inputs[0].name: p for p in network.preprocessing}
    taken = []
    for feature in inputs:
        shape = _shape(feature)
        slot = writer.new(feature.name, Type(FLOAT, shape))
        taken.append(slot)
        blobs[feature.name] = _read_input(writer, slot, feature, preprocessing.get(feature.name))
    lower(calls(network.layers, set(blobs)), rule, blobs, Target(writer))
    described = spec.description
    missing = {f.name for f in outputs} - set(blobs) - {described.predictedFeatureName, described.predictedProbabilitiesName}
    if missing:
        last = network.layers[-1].output[0] if network.layers and network.layers[-1].output else ""
        raise UnsafeFileError(
            f"no layer writes the output {', '.join(sorted(missing))}" + (f"; the last one writes {last}" if last else "")
        )
    static = all(0 not in f.shape and not f.allowed for f in inputs)
    results = [_write_output(writer, blobs, f, static) for f in outputs if f.name in blobs]
    if kind == "neuralNetworkClassifier":
        results += _write_classifier(writer, network, blobs, described)
    writer.block.inputs, writer.block.outputs = tuple(taken), tuple(results)
    return Function("main", writer.block, {}, writer.constants, writer.count)


def _shape(feature: Feature) -> tuple[int | None, ...]:
    if feature.kind == "imageType":
        return (1, 1 if feature.color.startswith("GRAYSCALE") else 3, *feature.shape)
    return tuple(n or None for n in feature.shape)


def _read_input(writer: Writer, slot: Slot, feature: Feature, preprocessing: Any) -> Slot:
    """An input as the layers read it: preprocessed if it is an image, and with four axes in older networks."""
    with writer.named(feature.name):
        if feature.kind == "imageType":
            return _preprocess(writer, slot, feature, preprocessing)
        rank = len(feature.shape)
        if writer.exact or rank == 4:
            return slot
        if rank not in (1, 3):
            raise UsageError(f"the input {feature.name} has rank {rank}; a network of this kind supports 1, 3 or 4")
        expanded: Slot = writer.expand_dims(x=slot, axes=np.array([0, 2, 3] if rank == 1 else [0]))
        return expanded


def _preprocess(writer: Writer, slot: Slot, feature: Feature, preprocessing: Any) -> Slot:
    if preprocessing is None:
        return slot
    if preprocessing.WhichOneof("preprocessor") == "meanImage":
        mean = np.array(preprocessing.meanImage.meanImage, np.float32).reshape(1, -1, *feature.shape)
        centered: Slot = writer.sub(x=slot, y=writer.weight(mean, "meanImage"))
        return centered
    scaler = preprocessing.scaler
    biases = {
        "RGB": (scaler.redBias, scaler.greenBias, scaler.blueBias), "BGR": (scaler.blueBias, scaler.greenBias, scaler.redBias),
    }.get(feature.color, (scaler.grayBias,))  # fmt: skip
    scaled = writer.mul(x=slot, y=np.float32(scaler.channelScale))
    biased: Slot = writer.add(x=scaled, y=np.array(biases, np.float32).reshape(1, -1, 1, 1))
    return biased


def _write_output(writer: Writer, blobs: dict[Hashable, Any], feature: Feature, static: bool) -> Slot:
    """An output in the rank of its description. `static`: all input shapes are static, so that the described shape applies."""
    result = blobs[feature.name]
    with writer.named(feature.name):
        rank = len(feature.shape)
        if writer.exact and static and feature.kind == "multiArrayType" and feature.shape and min(feature.shape) > 0:
            result = writer.as_described(x=result, shape=np.array(feature.shape))
        if not writer.exact and feature.kind == "multiArrayType" and rank in (1, 3):
            result = writer.reshape(x=result, shape=np.array([-1])) if rank == 1 else writer.squeeze(x=result, axes=np.array([0]))
        return _rename(writer, result, feature.name)


def _rename(writer: Writer, value: Any, name: str) -> Slot:
    """Copy the value to a slot with the output's name."""
    slot: Slot = writer.identity(x=value)
    operation = writer.block.operations[-1]
    operation.outputs = (Slot(slot.index, name),)
    return operation.outputs[0]


def _write_classifier(writer: Writer, network: Any, blobs: dict[Hashable, Any], description: Any) -> list[Slot]:
    """Write the label and the probabilities of a classifier, with the names of its description."""
    names = network.stringClassLabels.vector or network.int64ClassLabels.vector
    layer = network.labelProbabilityLayerName
    source = layer if layer in blobs else next((x.output[0] for x in network.layers if x.name == layer), None)
    probabilities = blobs[source or network.layers[-1].output[0]]
    classes = writer.new("classes")
    writer.constants[classes.index] = list(names)
    with writer.named("classify"):
        label, table = writer.classify(probabilities=probabilities, classes=classes, outputs=2)
    result = Slot(label.index, description.predictedFeatureName), Slot(table.index, description.predictedProbabilitiesName)
    writer.block.operations[-1].outputs = result
    return list(result)
