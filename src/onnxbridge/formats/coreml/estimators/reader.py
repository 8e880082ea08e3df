"""A model of classical machine learning in a specification as a function of MIL operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import ConversionError, Problem, Source, UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.mil_program import Feature, Function, Slot, Type
from onnxbridge.formats.coreml.neural_network.attributes import attributes
from onnxbridge.formats.coreml.neural_network.writer import Target, Writer
from onnxbridge.lowering import Call, Ref, lower, resolve

REFUSED = {
    "bayesianProbitRegressor": "its formula is documented nowhere",
    "itemSimilarityRecommender": "it gives lists of items, which are not tensors",
    "customModel": "its code is in the app, not in the file",
    "linkedModel": "it is in another file, which the app finds",
    "classConfidenceThresholding": "it holds curves for people to choose thresholds by, and computes nothing",
    "textClassifier": "its network is Apple's own, in a format that is not documented",
    "wordTagger": "its network is Apple's own, in a format that is not documented",
    "visionFeaturePrint": "its network is in the operating system, not in the file",
    "soundAnalysisPreprocessing": "its filters are in the operating system, not in the file",
    "gazetteer": "its table is in a format that is not documented",
    "wordEmbedding": "its table is in a format that is not documented",
    "audioFeaturePrint": "its network is in the operating system, not in the file",
    "serializedModel": "what it holds is another library's",
}
"""The kinds of models that are not read, and why."""
TEXTS = ("categoricalMapping", "oneHotEncoder")
"""The kinds that take texts."""


def function(spec: Any, inputs: list[Feature], outputs: list[Feature]) -> Function:
    """The model of a specification.

    Raises:
        ConversionError: for a kind of model, or a way to use it, that cannot be said.
        UnsafeFileError: for one that contradicts itself.
    """
    kind = spec.WhichOneof("Type")
    if kind in REFUSED:
        raise ConversionError(Target.direction, [Problem(kind, REFUSED[kind])])
    writer, model = Writer(exact=True), getattr(spec, kind)
    slots = tuple(writer.new(f.name, _type(kind, f)) for f in inputs)
    values: dict[Any, Any] = {f.name: slot for f, slot in zip(inputs, slots, strict=True)}
    given = attributes(model) | _names(kind, inputs, outputs)
    classes = _classes(model)
    if classes is not None:
        given = {k: v for k, v in given.items() if not k.endswith("ClassLabels")} | {"classes": classes}
    results = [f.name for f in outputs] if classes is None else ["probabilities"]
    call = Call(kind, tuple(Ref(f.name) for f in inputs), given, tuple(("result", r) for r in results), Source(node=kind))
    lower([call], rule, values, Target(writer))
    found = resolve([Ref(("result", r)) for r in results], values)
    with writer.named(kind):
        if classes is not None:
            left = _classified(writer, found[0], list(dict.fromkeys(classes)), spec.description)
        else:
            left = [_left(writer, value, f) for value, f in zip(found, outputs, strict=True)]
    writer.block.inputs, writer.block.outputs = slots, tuple(left)
    return Function("main", writer.block, {}, writer.constants, writer.count)


def _type(kind: str, feature: Feature) -> Type:
    """The type of an input. What is a dictionary between the models of a pipeline is a vector here, of the values by place."""
    if feature.kind == "dictionaryType" and kind == "featureVectorizer":
        return Type(np.dtype(np.float64), (None,))
    if feature.keys:
        return Type(np.dtype(np.float64), (len(feature.keys),))
    if feature.kind == "stringType" and kind in TEXTS:
        return Type(np.dtype(object), ())
    if feature.dtype is None:
        problem = Problem(kind, f"the input {feature.name} is a {feature.kind}, which is not a tensor of numbers")
        raise ConversionError(Target.direction, [problem])
    return Type(feature.dtype, tuple(n or None for n in feature.shape))


def keys(spec: Any) -> tuple[Any, ...]:
    """The keys of the dictionary that a model takes, in the order of the vector that they become."""
    stored = spec.dictVectorizer
    kind = stored.WhichOneof("Map") if spec.WhichOneof("Type") == "dictVectorizer" else None
    return tuple(getattr(stored, kind).vector) if kind else ()


def _names(kind: str, inputs: list[Feature], outputs: list[Feature]) -> dict[str, Any]:
    """What a model says of its features by name, as the places of these."""
    if kind != "nonMaximumSuppression":
        return {}
    return {"names": (tuple(f.name for f in inputs), tuple(f.name for f in outputs))}


def _classes(model: Any) -> list[Any] | None:
    """The classes of a classifier; of nearest neighbours, the class of each."""
    if "ClassLabels" not in model.DESCRIPTOR.oneofs_by_name or model.DESCRIPTOR.name == "NonMaximumSuppression":
        return None
    kind = model.WhichOneof("ClassLabels")
    if kind is None:
        raise UnsafeFileError("the classifier does not name its classes")
    return list(getattr(model, kind).vector)


def _classified(writer: Writer, probabilities: Any, names: list[Any], description: Any) -> list[Slot]:
    """The label and the probabilities by the names of the description, which may have the label only."""
    classes = writer.new("classes")
    writer.constants[classes.index] = names
    label, table = writer.classify(probabilities=probabilities, classes=classes, outputs=2)
    found = Slot(label.index, description.predictedFeatureName), Slot(table.index, description.predictedProbabilitiesName)
    writer.block.operations[-1].outputs = found
    return [slot for slot in found if slot.name]


def _left(writer: Writer, value: Any, feature: Feature) -> Slot:
    """An output in the type and shape of the description; a size that it leaves open is the value's."""
    if feature.kind in ("doubleType", "int64Type"):
        value = writer.reshape(x=value, shape=np.zeros(0, np.int32))
        value = writer.cast(x=value, dtype="int64") if feature.kind == "int64Type" else value
    elif feature.shape and all(feature.shape):
        value = writer.reshape(x=value, shape=np.array(feature.shape, np.int32))
    slot: Slot = writer.identity(x=value)
    named = Slot(slot.index, feature.name, None if feature.dtype != np.float64 else Type(feature.dtype, None))
    writer.block.operations[-1].outputs = (named,)
    return named
