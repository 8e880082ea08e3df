"""TensorFlow Lite models, by TensorFlow's own converter."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.artifacts import saved_model
from onnxbridge.backends.tensorflow.hub_module import keywords
from onnxbridge.errors import ConversionError, Problem, SourceLocation, UsageError
from onnxbridge.frameworks import tensorflow_errors

UNIT_ROUNDOFF: Mapping[str | None, float | None] = {None: None, "float16": 2.0**-11, "dynamic": 2.0**-8, "int8": 2.0**-8}
"""Of the numbers that a quantized model computes with."""


def save(artifact: Any, path: Path) -> None:
    """Write the TensorFlow Lite model, converted once.

    Raises:
        ConversionError: with the converter's reason.
        UsageError: for calibration samples that lack an input.
    """
    written = artifact.written_as
    written.contents = written.contents or _converted(artifact)
    path.write_bytes(written.contents)


def _converted(artifact: Any) -> bytes:
    written = artifact.written_as
    samples = [_sample(artifact, s) for s in written.calibration]
    with tempfile.TemporaryDirectory() as folder, frameworks.quiet():
        saved_model.save(artifact, Path(folder) / "model")
        problem: Exception | None = None
        for more in ([], [tf.lite.OpsSet.SELECT_TF_OPS]):
            converter = tf.lite.TFLiteConverter.from_saved_model(str(Path(folder) / "model"), signature_keys=["serving_default"])
            _set_options(converter, written.quantize, samples, more)
            try:
                made: bytes = converter.convert()
            except Exception as e:
                problem = problem or e
                continue
            if more:
                written.notes.append("the model needs TensorFlow's Flex delegate for operators that TensorFlow Lite lacks")
            return made
    reason = tensorflow_errors.main_line(problem) if problem is not None else ""
    raise ConversionError("TensorFlow to TensorFlow Lite", [Problem("converter", reason, "", (SourceLocation(),))]) from problem


def _set_options(converter: Any, quantize: str | None, samples: Sequence[Mapping[str, Any]], more: Sequence[Any]) -> None:
    builtin = tf.lite.OpsSet.TFLITE_BUILTINS_INT8 if quantize == "int8" else tf.lite.OpsSet.TFLITE_BUILTINS
    converter.target_spec.supported_ops = [builtin, *more]
    if quantize is None:
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantize == "int8":

        def representative() -> Iterator[tuple[str, Mapping[str, Any]]]:
            for sample in samples:
                yield "serving_default", sample

        converter.representative_dataset = representative


def _sample(artifact: Any, sample: Mapping[str, Any]) -> dict[str, Any]:
    """A calibration sample by the names and in the layout of the model."""
    missing = [n for n in artifact.hub_inputs if n not in sample]
    if missing:
        raise UsageError(f"calibration: the input {', '.join(missing)} is missing")
    perms, found = artifact.written_as.permutations, {}
    for name, key, spec in zip(artifact.hub_inputs, artifact.keywords, artifact.signature, strict=True):
        array = np.asarray(sample[name], spec.dtype.as_numpy_dtype)
        found[key] = array if name not in perms else np.transpose(array, perms[name])
    return found


def opened(artifact: Any, path: Path) -> Any:
    """TensorFlow's interpreter of the model as a function of the inputs in order."""
    contents = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the interpreter moves to another package
        interpreter = tf.lite.Interpreter(model_content=contents, num_threads=1)
    signature = interpreter.get_signature_runner("serving_default")
    used = set(signature.get_input_details())

    def call(inputs: Sequence[Any]) -> list[Any]:
        given = {k: v.numpy() for k, v in zip(artifact.keywords, inputs, strict=True) if k in used}
        found = signature(**given)
        return [tf.constant(found[name]) for name in keywords(artifact.hub_outputs)]

    call.of = interpreter, contents  # type: ignore[attr-defined]  # the interpreter reads the bytes while it runs
    return call
