"""Running a built module on arrays, and saving it as a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.hub_module import keywords
from onnxbridge.errors import ConversionError, Problem, SourceLocation
from onnxbridge.hub.ir import strings


def run(artifact: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Run the module on inputs by hub name."""
    inputs = [_to_tensorflow(feeds.get(n), s) for n, s in zip(artifact.hub_inputs, artifact.signature, strict=True)]
    results = artifact(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return {name: _to_numpy(r) for name, r in zip(artifact.hub_outputs, results, strict=True)}


def _to_tensorflow(value: Any, spec: Any) -> Any:
    if value is None or isinstance(value, list):
        return value if value is None else [_to_tensorflow(v, None) for v in value]
    return tf.constant(value, None if spec is None else spec.dtype)


def _to_numpy(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_numpy(v) for v in value]
    if not isinstance(value, tf.Tensor):
        return value
    if value.dtype != tf.string:
        return np.asarray(value.numpy())
    return strings.decoded(value.numpy())


def save(artifact: Any, path: Path) -> None:
    """Write the SavedModel; its signature `serving_default` has the hub's input and output names."""
    if any(s is None for s in artifact.signature):
        reason = "signatures do not support sequences or optional values as inputs"
        raise ConversionError("TensorFlow module to SavedModel", [Problem("SavedModel", reason, locations=(SourceLocation(),))])
    outputs = keywords(artifact.hub_outputs)

    @tf.function(input_signature=artifact.signature, autograph=False)  # type: ignore[untyped-decorator]
    def serve(*inputs: Any) -> dict[str, Any]:
        results = artifact(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        return dict(zip(outputs, results, strict=True))

    with frameworks.quiet():
        tf.saved_model.save(artifact, str(path), signatures={"serving_default": serve})
