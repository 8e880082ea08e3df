"""Keras's own files: `.keras`, and `.h5` with configuration and weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.artifacts.reproducible import without_date
from onnxbridge.backends.tensorflow.functional.model import KerasModel
from onnxbridge.errors import ConversionError, Problem, SourceLocation


def save(artifact: Any, path: Path) -> None:
    """Write the Keras model.

    Raises:
        ConversionError: for a module that is no Keras model, and for an `.h5` file of calls that Keras does not read from it.
    """
    if not isinstance(artifact, KerasModel):
        raise _refused(f"the result is no functional Keras model: {artifact.reason}", "write a SavedModel, without a suffix")
    if path.suffix == ".h5" and not all(isinstance(o, keras.layers.Layer) for o in artifact.operations):
        raise _refused("Keras does not read calls of keras.ops from .h5 files", 'convert with output="NAME.h5"')
    with frameworks.quiet():
        artifact.save(str(path))
    if path.suffix == ".keras":
        without_date(path)


def _refused(reason: str, hint: str) -> ConversionError:
    return ConversionError("TensorFlow model to a Keras file", [Problem("Keras", reason, hint, (SourceLocation(),))])


def opened(artifact: Any, path: Path) -> Any:
    """The loaded model as a function of the inputs in order."""
    with frameworks.quiet():
        loaded = keras.models.load_model(str(path), compile=False)

    def call(inputs: Sequence[Any]) -> Any:
        return loaded(inputs[0] if len(inputs) == 1 else list(inputs))

    return call
