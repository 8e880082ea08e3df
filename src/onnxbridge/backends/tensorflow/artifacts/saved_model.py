"""SavedModels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.artifacts.reproducible import with_derived_fingerprint
from onnxbridge.backends.tensorflow.hub_module import keywords
from onnxbridge.errors import ConversionError, Problem, SourceLocation


def serving(artifact: Any) -> Any:
    """The model as a function of its inputs by position or name, which returns its outputs by name.

    Raises:
        ConversionError: for a model with sequences or optional values as inputs, or with sequences as outputs.
    """
    if any(s is None for s in artifact.signature) or artifact.sequences:
        reason = "signatures support sequences and optional values neither as inputs nor as outputs"
        raise ConversionError("TensorFlow module to a file", [Problem("SavedModel", reason, locations=(SourceLocation(),))])
    outputs = keywords(artifact.hub_outputs)

    @tf.function(input_signature=artifact.signature, autograph=False)  # type: ignore[untyped-decorator]
    def serve(*inputs: Any) -> dict[str, Any]:
        results = artifact(*inputs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        return {name: tf.identity(r, name=name) for name, r in zip(outputs, results, strict=True)}

    return serve


def save(artifact: Any, path: Path) -> None:
    """Write the SavedModel. It is loaded as an object that is called with the inputs, has the variables of the model, and the
    signature `serving_default` with the hub's input and output names."""
    serve = serving(artifact)

    @tf.function(input_signature=artifact.signature, autograph=False)  # type: ignore[untyped-decorator]
    def call(*inputs: Any) -> Any:
        return artifact(*inputs)

    root = tf.__internal__.tracking.AutoTrackable()
    root.__call__ = call
    root.model = artifact
    root.variables = _variables(artifact.variables)
    root.trainable_variables = _variables(artifact.trainable_variables)
    root.non_trainable_variables = _variables(artifact.non_trainable_variables)
    with frameworks.quiet():
        tf.saved_model.save(root, str(path), signatures={"serving_default": serve})
    with_derived_fingerprint(path)


def _variables(found: Sequence[Any]) -> list[Any]:
    """TensorFlow's variables, without Keras's wrappers."""
    return [getattr(v, "value", v) if not isinstance(v, tf.Variable) else v for v in found]


def opened(artifact: Any, path: Path) -> Any:
    """The loaded signature as a function of the inputs in order."""
    with frameworks.quiet():
        loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]

    def call(inputs: Sequence[Any]) -> list[Any]:
        found = signature(**dict(zip(artifact.keywords, inputs, strict=True)))
        return [found[name] for name in keywords(artifact.hub_outputs)]

    call.loaded = loaded  # type: ignore[attr-defined]  # the variables live as long as what they belong to
    return call
