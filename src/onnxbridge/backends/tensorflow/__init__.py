"""The TensorFlow backend: a hub model as a `tf.Module` with variables, and as a SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.plugin_protocols import Backend, Run
from onnxbridge.rules import Rules


class TensorflowBackend(Backend):
    """Builds a `tf.Module` with one traced function, and saves it as a SavedModel with the signature `serving_default`."""

    name = "tensorflow"
    title = "TensorFlow"
    package = "tensorflow"
    aliases = ("keras", "tf", "savedmodel")
    suffixes = ()
    hints = {
        **dict.fromkeys(("tflite", ".tflite"), "convert to tensorflow, and the SavedModel with tf.lite.TFLiteConverter"),
        **dict.fromkeys(
            (".keras", ".h5", ".pb"), "TensorFlow models are written as a SavedModel, a folder; name one without a suffix"
        ),
    }

    @property
    def rules(self) -> Rules:
        frameworks.tensorflow()
        from onnxbridge.backends.tensorflow.ops import rule

        return rule

    def from_hub(self, model: ir.Model) -> Any:
        frameworks.tensorflow()
        from onnxbridge.backends.tensorflow import build

        return build.build(model)

    def main_line(self, error: BaseException | str) -> str:
        return tensorflow_errors.main_line(error)

    def native(self, artifact: Any) -> Any:
        return artifact

    def save(self, artifact: Any, path: Path) -> list[Path]:
        from onnxbridge.backends.tensorflow import saved_model

        saved_model.save(artifact, path)
        return [path]

    def runner(self, artifact: Any, device: str = "auto") -> Run:
        from onnxbridge.backends.tensorflow import saved_model

        return lambda feeds: saved_model.run(artifact, feeds)

    def filename(self, stem: str) -> str:
        return stem


backend = TensorflowBackend()
