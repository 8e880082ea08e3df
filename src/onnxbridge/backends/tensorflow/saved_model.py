"""A built module run on arrays, and written as a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.build import keywords
from onnxbridge.errors import ConversionError, Problem, Source
from onnxbridge.hub.ir import strings


def run(artifact: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The module on the given inputs, by the hub's names."""
    given = [_in(feeds.get(n), s) for n, s in zip(artifact.input_names, artifact.signature, strict=True)]
    results = artifact(*given)
    results = results if isinstance(results, tuple) else (results,)
    return {name: _out(r) for name, r in zip(artifact.output_names, results, strict=True)}


def _in(value: Any, spec: Any) -> Any:
    if value is None or isinstance(value, list):
        return value if value is None else [_in(v, None) for v in value]
    return tf.constant(value, None if spec is None else spec.dtype)


def _out(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_out(v) for v in value]
    if not isinstance(value, tf.Tensor):
        return value
    if value.dtype != tf.string:
        return np.asarray(value.numpy())
    return strings.decoded(value.numpy())


def save(artifact: Any, path: Path) -> None:
    """Write the SavedModel: its signature `serving_default` takes and gives tensors by the hub's names."""
    if any(s is None for s in artifact.signature):
        reason = "an input is a sequence or an optional value, which no signature can have"
        raise ConversionError("TensorFlow module to SavedModel", [Problem("SavedModel", reason, places=(Source(),))])
    outputs = keywords(artifact.output_names)

    @tf.function(input_signature=artifact.signature, autograph=False)  # type: ignore[untyped-decorator]
    def serve(*inputs: Any) -> dict[str, Any]:
        results = artifact(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        return dict(zip(outputs, results, strict=True))

    with frameworks.quiet():
        tf.saved_model.save(artifact, str(path), signatures={"serving_default": serve})
