"""The TensorFlow backend: a hub model as a Keras model, and as the files that TensorFlow's users have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.plugin_options import EMIT, Setting
from onnxbridge.plugin_protocols import ArtifactInfo, Backend, Run
from onnxbridge.rules import Rules


class TensorflowBackend(Backend):
    """Builds a functional Keras model, or a `tf.Module` where Keras cannot express it, and saves it in TensorFlow's formats."""

    name = "tensorflow"
    title = "TensorFlow"
    package = "tensorflow"
    aliases = ("keras", "tf", "savedmodel")
    suffixes = (".keras", ".h5", ".tflite", ".pb", ".py")
    by_suffix = {**{suffix: {"suffix": suffix} for suffix in suffixes[:-1]}, ".py": {"emit": "source"}}
    hints = {
        "tflite": "convert to tensorflow, and name the output *.tflite",
        ".hdf5": "Keras models are written as .keras or .h5",
        ".ckpt": "TensorFlow models are written as a SavedModel, a folder; name one without a suffix",
    }

    @property
    def rules(self) -> Rules:
        frameworks.tensorflow()
        from onnxbridge.backends.tensorflow.ops import rule

        return rule

    def from_hub(
        self,
        model: ir.Model,
        *,
        layout: Annotated[
            Sequence[str],
            Setting("put the channels of inputs and outputs last (nhwc) or second (nchw), of all or of one.", "[NAME:]nhwc"),
        ] = (),
        quantize: Annotated[
            Literal["float16", "dynamic", "int8"] | None,
            Setting("the numbers of a .tflite file: weights in float16, weights in int8 (dynamic), or all in int8."),
        ] = None,
        calibration: Annotated[
            Path | Sequence[Mapping[str, Any]] | None, Setting("sample inputs to measure value ranges on.", "FILE.npz")
        ] = None,
        emit: Annotated[Literal["program", "source"], EMIT] = "program",
        suffix: str = "",
    ) -> Any:
        """Build the model.

        Args:
            layout: "nhwc" or "nchw" for every input and output that convolutions and the like read or write, "x:nhwc" for one.
                By default, all have the layout of the source.
            quantize: for `.tflite`: "float16" halves the size; "dynamic" stores weights in 8 bits and computes in float32; "int8"
                also computes in 8 bits, with ranges that are measured on `calibration`. Inputs and outputs keep their dtypes.
            calibration: samples with the names and the layout of the source.
            emit: "source" writes Python source of the model, a `.py` file, and its weights.
            suffix: of the kind of file that is verified and written; `output=` implies it.
        """
        self.check_options(layout=layout, quantize=quantize, calibration=calibration, emit=emit, suffix=suffix)
        frameworks.tensorflow()
        from onnxbridge.backends.tensorflow import build
        from onnxbridge.backends.tensorflow.artifacts.written_as import WrittenAs

        samples: Sequence[Mapping[str, Any]] = ()
        if calibration is not None:
            from onnxbridge.runtime.verify.samples.data import read_data

            samples = [sample.inputs for sample in read_data(calibration)]
        return build.build(model, WrittenAs(".py" if emit == "source" else suffix, quantize, samples), layout)

    def check_options(
        self, *, layout: Sequence[str] = (), quantize: str | None = None, calibration: Any = None,
        emit: str = "program", suffix: str = "",
    ) -> None:  # fmt: skip
        """Look at the options before a model is read.

        Raises:
            UsageError: for a layout that does not exist, for source under another name than `*.py`, and for quantization of
                another file than `.tflite`.
        """
        for text in [layout] if isinstance(layout, str) else layout:
            if text.rpartition(":")[2] not in ("nhwc", "nchw"):
                raise UsageError(f"layout: {text!r} is neither nhwc nor nchw, nor NAME:nhwc or NAME:nchw")
        if suffix and suffix not in self.suffixes:
            raise UsageError(f"suffix={suffix!r} is not one of {', '.join(self.suffixes)}")
        if emit == "source" and suffix:
            raise UsageError(f"emit='source' writes a .py file, not a {suffix} file")
        if quantize is not None and suffix != ".tflite":
            raise UsageError(f"quantize={quantize!r} is for TensorFlow Lite: name the output *.tflite")
        if quantize == "int8" and calibration is None:
            raise UsageError("quantize='int8' requires calibration: samples to measure the ranges of values on")
        if calibration is not None and quantize != "int8":
            raise UsageError("calibration requires quantize='int8'")

    def main_line(self, error: BaseException | str) -> str:
        return tensorflow_errors.main_line(error)

    def native(self, artifact: Any) -> Any:
        return artifact

    def written(self, path: Path, *, emit: str = "program", **options: Any) -> list[Path]:
        """The files that `save` writes: the model, or the source and its weights."""
        if emit == "source" or path.suffix == ".py":
            return [path.with_suffix(".py"), path.with_suffix(".weights.h5")]
        return [path]

    def save(self, artifact: Any, path: Path) -> list[Path]:
        from onnxbridge.backends.tensorflow.artifacts import files
        from onnxbridge.backends.tensorflow.codegen import source_file

        if artifact.written_as.suffix == ".py" or path.suffix == ".py":
            return source_file.save(artifact, path)
        files.save(artifact, path)
        return [path]

    def runner(self, artifact: Any, device: str = "auto") -> Run:
        """Runs the file that is written where the options name its kind, else the model."""
        from onnxbridge.backends.tensorflow.artifacts import files

        return files.runner(artifact, verified_as=bool(artifact.written_as.suffix))

    def in_float32(self, artifact: Any) -> Run | None:
        """Runs the model that a quantized TensorFlow Lite model was made of."""
        from onnxbridge.backends.tensorflow.artifacts import files

        return None if artifact.written_as.quantize is None else files.runner(artifact, verified_as=False)

    def info(self, artifact: Any) -> ArtifactInfo:
        from onnxbridge.backends.tensorflow.artifacts import lite

        written = artifact.written_as
        orders = (f"{name} is transposed by {perm}" for name, perm in written.permutations.items())
        advice = "" if written.quantize is None else (
            "verify with samples like those of the calibration (--data), or say how far an output may move (--max-drift)"
        )
        notes = (*orders, *written.notes)
        return ArtifactInfo(notes=notes, advice=advice, unit_roundoff=lite.UNIT_ROUNDOFF[written.quantize])

    def filename(self, stem: str) -> str:
        return stem


backend = TensorflowBackend()
