"""Reads a classical machine learning model of a specification as a function of MIL operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import ConversionError, Problem, SourceLocation, UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.mil_program import Feature, Function, Slot, Type
from onnxbridge.formats.coreml.neural_network.attributes import attributes
from onnxbridge.formats.coreml.neural_network.writer import Target, Writer
from onnxbridge.lowering import Call, Ref, lower, resolve

UNSUPPORTED = {
    "bayesianProbitRegressor": "its formula is not documented",
    "itemSimilarityRecommender": "it returns lists of items, which are not tensors",
    "customModel": "its code is in the app, not in the file",
    "linkedModel": "it is in another file, which the app locates",
    "classConfidenceThresholding": "it contains curves for choosing thresholds, and computes nothing",
    "textClassifier": "its network is in an undocumented format",
    "wordTagger": "its network is in an undocumented format",
    "visionFeaturePrint": "its network is in the operating system, not in the file",
    "soundAnalysisPreprocessing": "its filters are in the operating system, not in the file",
    "gazetteer": "its table is in an undocumented format",
    "wordEmbedding": "its table is in an undocumented format",
    "audioFeaturePrint": "its network is in the operating system, not in the file",
    "serializedModel": "its content is in the format of another library",
}
"""Unsupported model types, and why."""
STRING_INPUTS = ("categoricalMapping", "oneHotEncoder")
"""The model types with string inputs."""


def function(spec: Any, inputs: list[Feature], outputs: list[Feature]) -> Function:
    """Convert the model of a specification.

    Raises:
        ConversionError: for an unsupported model type or parameter.
        UnsafeFileError: for inconsistent data.
    """
    kind = spec.WhichOneof("Type")
    if kind in UNSUPPORTED:
        raise ConversionError(Target.direction, [Problem(kind, UNSUPPORTED[kind])])
    writer, model = Writer(exact=True), getattr(spec, kind)
    slots = tuple(writer.new(f.name, _type(kind, f)) for f in inputs)
    values: dict[Any, Any] = {f.name: slot for f, slot in zip(inputs, slots, strict=True)}
    attrs = attributes(model) | _feature_names(kind, inputs, outputs)
    classes = _classes(model)
    if classes is not None:
        attrs = {k: v for k, v in attrs.items() if not k.endswith("ClassLabels")} | {"classes": classes}
    results = [f.name for f in outputs] if classes is None else ["probabilities"]
    call = Call(kind, tuple(Ref(f.name) for f in inputs), attrs, tuple(("result", r) for r in results), SourceLocation(node=kind))
    lower([call], rule, values, Target(writer))
    results_of = resolve([Ref(("result", r)) for r in results], values)
    with writer.named(kind):
        if classes is not None:
            outputs_written = _write_classifier(writer, results_of[0], list(dict.fromkeys(classes)), spec.description)
        else:
            outputs_written = [_write_output(writer, value, f) for value, f in zip(results_of, outputs, strict=True)]
    writer.block.inputs, writer.block.outputs = slots, tuple(outputs_written)
    return Function("main", writer.block, {}, writer.constants, writer.count)


def _type(kind: str, feature: Feature) -> Type:
    """The type of an input. A dictionary between the models of a pipeline is a vector of its values, in the order of its keys."""
    if feature.kind == "dictionaryType" and kind == "featureVectorizer":
        return Type(np.dtype(np.float64), (None,))
    if feature.keys:
        return Type(np.dtype(np.float64), (len(feature.keys),))
    if feature.kind == "stringType" and kind in STRING_INPUTS:
        return Type(np.dtype(object), ())
    if feature.dtype is None:
        problem = Problem(kind, f"the input {feature.name} is a {feature.kind}, which is not a tensor of numbers")
        raise ConversionError(Target.direction, [problem])
    return Type(feature.dtype, tuple(n or None for n in feature.shape))


def keys(spec: Any) -> tuple[Any, ...]:
    """The keys of a model's dictionary input, in the order of the vector that represents it."""
    stored = spec.dictVectorizer
    kind = stored.WhichOneof("Map") if spec.WhichOneof("Type") == "dictVectorizer" else None
    return tuple(getattr(stored, kind).vector) if kind else ()


def _feature_names(kind: str, inputs: list[Feature], outputs: list[Feature]) -> dict[str, Any]:
    """The names of inputs and outputs, for models that refer to them by name."""
    if kind != "nonMaximumSuppression":
        return {}
    return {"names": (tuple(f.name for f in inputs), tuple(f.name for f in outputs))}


def _classes(model: Any) -> list[Any] | None:
    """The classes of a classifier; for nearest neighbors, the class of each sample."""
    if "ClassLabels" not in model.DESCRIPTOR.oneofs_by_name or model.DESCRIPTOR.name == "NonMaximumSuppression":
        return None
    kind = model.WhichOneof("ClassLabels")
    if kind is None:
        raise UnsafeFileError("the classifier does not name its classes")
    return list(getattr(model, kind).vector)


def _write_classifier(writer: Writer, probabilities: Any, names: list[Any], description: Any) -> list[Slot]:
    """Write the label and the probabilities with the names of the description, which may have only the label."""
    classes = writer.new("classes")
    writer.constants[classes.index] = names
    label, table = writer.classify(probabilities=probabilities, classes=classes, outputs=2)
    results_of = Slot(label.index, description.predictedFeatureName), Slot(table.index, description.predictedProbabilitiesName)
    writer.block.operations[-1].outputs = results_of
    return [slot for slot in results_of if slot.name]


def _write_output(writer: Writer, value: Any, feature: Feature) -> Slot:
    """Write an output in the dtype and shape of the description; flexible sizes are those of the value."""
    if feature.kind in ("doubleType", "int64Type"):
        value = writer.reshape(x=value, shape=np.zeros(0, np.int32))
        value = writer.cast(x=value, dtype="int64") if feature.kind == "int64Type" else value
    elif feature.shape and all(feature.shape):
        value = writer.reshape(x=value, shape=np.array(feature.shape, np.int32))
    slot: Slot = writer.identity(x=value)
    output = Slot(slot.index, feature.name, None if feature.dtype != np.float64 else Type(feature.dtype, None))
    writer.block.operations[-1].outputs = (output,)
    return output
