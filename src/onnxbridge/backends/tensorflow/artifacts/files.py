"""Writes a built model as the kind of file that its name's suffix says, and opens such files to run them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.artifacts import frozen, keras_file, lite, saved_model
from onnxbridge.backends.tensorflow.codegen import source_file
from onnxbridge.hub.ir import strings
from onnxbridge.hub.passes.transposes.propagate_transposes import inverse
from onnxbridge.plugin_protocols import Run

Opened = Callable[[Sequence[Any]], Sequence[Any]]
"""An opened file: takes the inputs and gives the outputs, both in the hub's order."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: `save` writes a model at a path with its suffix, `opened` reads that for a model of the same interface."""

    save: Callable[[Any, Path], Any]
    opened: Callable[[Any, Path], Opened]


KINDS: Mapping[str, Kind] = {
    "": Kind(saved_model.save, saved_model.opened),
    ".keras": Kind(keras_file.save, keras_file.opened),
    ".h5": Kind(keras_file.save, keras_file.opened),
    ".tflite": Kind(lite.save, lite.opened),
    ".pb": Kind(frozen.save, frozen.opened),
    ".py": Kind(source_file.save, source_file.opened),
}


def save(artifact: Any, path: Path) -> None:
    """Write the model as its options say, else as the suffix of `path` says."""
    suffix = artifact.written_as.suffix or (path.suffix if path.suffix in KINDS else "")
    if path.suffix == suffix or not suffix:
        KINDS[suffix].save(artifact, path)
        return
    named = path.with_name(path.name + suffix)  # Keras requires its own suffix
    KINDS[suffix].save(artifact, named)
    shutil.move(named, path)


def runner(artifact: Any, verified_as: bool) -> Run:
    """Runs the model on inputs by the hub's names; `verified_as`: as the file that it is written as, opened again."""
    call = _written_and_opened(artifact) if verified_as else artifact
    perms = artifact.written_as.permutations

    def run(feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        inputs = []
        for name, spec in zip(artifact.hub_inputs, artifact.signature, strict=True):
            value = feeds.get(name)
            value = value if name not in perms else np.transpose(np.asarray(value), perms[name])
            carried = artifact.carried.get(name)
            inputs.append(_to_tensorflow(value, spec) if carried is None else dtypes.carried(value, carried))
        results = call(inputs) if verified_as else call(*inputs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        found = {name: _to_numpy(r, artifact.carried.get(name)) for name, r in zip(artifact.hub_outputs, results, strict=True)}
        return {n: v if n not in perms else np.transpose(v, inverse(perms[n])) for n, v in found.items()}

    return run


def _written_and_opened(artifact: Any) -> Opened:
    suffix = artifact.written_as.suffix
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{suffix}"
        KINDS[suffix].save(artifact, path)
        return KINDS[suffix].opened(artifact, path)


def _to_tensorflow(value: Any, spec: Any) -> Any:
    if value is None or isinstance(value, list):
        return value if value is None else [_to_tensorflow(v, None) for v in value]
    return tf.constant(value, None if spec is None else spec.dtype)


def _to_numpy(value: Any, carried: ir.DataType | None = None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_numpy(v, carried) for v in value]
    if not isinstance(value, tf.Tensor):
        return value
    if value.dtype != tf.string:
        return np.asarray(value.numpy() if carried is None else value.numpy().astype(carried.numpy()))
    return strings.decoded(value.numpy())
