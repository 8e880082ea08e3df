"""TensorFlow and Keras to the hub: live models, functions and modules, `.keras` and `.h5` files, SavedModel folders."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.rules import Rules

KINDS = frozenset({"keras", "keras-h5", "savedmodel"})
_ROOTS = frozenset({"tensorflow", "keras", "tf_keras"})


class TensorFlow(Frontend):
    """The frontend. A source is a Keras model or layer, a tf.function, a ConcreteFunction, a tf.Module, a loaded SavedModel, or
    the path of a `.keras` or `.h5` file or a SavedModel folder.

    A pair (folder, signature) selects a signature.
    """

    name = "tensorflow"
    title = "TensorFlow"
    package = "tensorflow"
    aliases = ("keras", "tf", "savedmodel")

    @property
    def rules(self) -> Rules:
        return rule

    def accepts(self, source: Any) -> bool:
        source, _ = _split(source)
        if isinstance(source, (str, os.PathLike)):
            return os.path.exists(source) and detect_format(source) in KINDS
        return any(c.__module__.split(".")[0] in _ROOTS for c in type(source).__mro__)

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        """The source as a hub model.

        Raises:
            ConversionError: with every operator that cannot be converted.
            UsageError: if the shape of an input is unknown.
            UnsafeFileError: if a file must not be run.
        """
        from onnxbridge.frontends.tensorflow import convert, sources

        source, signature = _split(source)
        return convert.hub_model(sources.trace(source, inputs, dynamic, signature))

    def origin(self, source: Any) -> dict[str, str]:
        from onnxbridge.frontends.tensorflow.saved_model import versions

        source, _ = _split(source)
        return versions.versions(source) if isinstance(source, (str, os.PathLike)) else {}

    def main_line(self, error: BaseException | str) -> str:
        return tensorflow_errors.main_line(error)

    def runs_here(self) -> bool:
        return importlib.util.find_spec("tensorflow") is not None

    def runner(self, source: Any, device: str = "auto") -> Run:
        from onnxbridge.frontends.tensorflow import runner

        return runner.runner(*_split(source))

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        from onnxbridge.frontends.tensorflow.watch import watch

        return watch(*_split(source), feeds, see)


def _split(source: Any) -> tuple[Any, str | None]:
    """A source and the signature selected with it."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str):
        folder, signature = source
        if isinstance(folder, (str, os.PathLike)) and os.path.isdir(folder) and not os.path.exists(signature):
            return folder, signature
    return source, None


frontend = TensorFlow()
