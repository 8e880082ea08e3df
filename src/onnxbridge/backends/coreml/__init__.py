"""The Core ML backend: converts the hub model to an ML program (.mlpackage) with coremltools' MIL builder. No Mac is needed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import onnx_ir as ir

from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.frameworks import coremltools
from onnxbridge.plugin_options import Setting, checked
from onnxbridge.plugin_protocols import ArtifactInfo, Backend, Reopened, Run
from onnxbridge.rules import Rules

if TYPE_CHECKING:
    from onnxbridge.backends.coreml.artifact import CoreMLModel
    from onnxbridge.backends.coreml.explain import Line
    from onnxbridge.backends.coreml.model_options import CoreMLOptions

Strings = Sequence[str]
TARGETS: Mapping[str, int] = {"iOS15": 6, "iOS16": 7, "iOS17": 8, "iOS18": 9}
"""Core ML specification version of each deployment target."""


class CoreMLBackend(Backend):
    """Converts hub models to Core ML."""

    name = "coreml"
    title = "Core ML"
    package = "coremltools"
    has_empty_arrays = False
    aliases = ("mlprogram", "mlpackage")
    suffixes = (".mlpackage", ".mlmodel")
    hints = {".mlmodelc": "Core ML models are written as .mlpackage, which Xcode compiles"}
    explains = True
    float32_option = "float32_ops"

    @property
    def rules(self) -> Rules:
        from onnxbridge.backends.coreml.ops import rule

        return rule

    def is_native(self, op_type: str, *, minimum_deployment_target: str | None = None, **options: Any) -> bool:
        """Whether Core ML has the operator, so that what is written out becomes it; attention is new in iOS18."""
        return op_type in self.rules and (op_type != "Attention" or minimum_deployment_target == "iOS18")

    def from_hub(
        self,
        model: ir.Model,
        *,
        minimum_deployment_target: Annotated[
            Literal["iOS15", "iOS16", "iOS17", "iOS18"] | None, Setting("the oldest OS version to support; iOS17 by default.")
        ] = None,
        compute_precision: Annotated[
            Literal["fp32", "fp16", "mixed"],
            Setting("the dtype to compute in, fp32 by default; mixed is fp16 where measured ranges allow it."),
        ] = "fp32",
        float32_ops: Annotated[
            Strings, Setting("an operator type or value that stays in float32 in fp16 and mixed; * is any characters.", "NAME")
        ] = (),
        convert_to: Annotated[
            Literal["mlprogram", "neuralnetwork"], Setting("the kind of model; mlprogram by default.")
        ] = "mlprogram",
        image: Annotated[
            Strings, Setting("an image input; the network gets pixel*scale+bias.", "x:RGB,scale=1/255,bias=0/0/0")
        ] = (),
        shapes: Annotated[Strings, Setting("the enumerated shapes that an input accepts.", "x:1x3x224x224,1x3x256x256")] = (),
        labels: Annotated[
            Path | Sequence[str | int] | None, Setting("class labels, one per line; makes a classifier.", "FILE.txt")
        ] = None,
        state: Annotated[Strings, Setting("declare a state: an input and its updated output.", "past=present")] = (),
        compress: Annotated[
            Literal["linear8", "linear4", "palettize8", "palettize6", "palettize4", "palettize2", "sparse50", "sparse75"] | None,
            Setting("weight compression: linear, palettized or pruned (sparse)."),
        ] = None,
        calibration: Annotated[
            Path | Sequence[Mapping[str, Any]] | None, Setting("sample inputs to measure value ranges on, for mixed.", "FILE.npz")
        ] = None,
        metadata: Annotated[Strings, Setting("author, license, version, description or any custom key.", "author=NAME")] = (),
        bounds: Mapping[str, tuple[int, int | None]] | None = None,
    ) -> CoreMLModel:
        """Convert a hub model to an ML program.

        Args:
            minimum_deployment_target: the oldest OS version that must run the model; it also stands for the macOS, watchOS and
                tvOS of the same year. Newer targets have more operators.
            compute_precision: "fp16" for half the size and the Neural Engine; operators whose constants are outside of the
                float16 range stay in float32. "mixed" first runs the model on `calibration` (or on random samples), and also
                keeps in float32 every operator whose values are outside of that range. The artifact's notes list them.
            float32_ops: operators that stay in float32 under "fp16" and "mixed": operator types of the hub model ("Softmax"),
                or names of values that an operator computes, as reports print them; "encoder/*" stands for several.
                `onnxbridge bisect --suggest` finds them.
            image: as are `shapes`, `state` and `metadata`, a text, several, or a dictionary by name;
                "x:BGR,scale=1/255,bias=-0.48/-0.45/-0.4,layout=NHWC"; everything after the name is optional.
            shapes: the first one is the default.
            labels: a file with one label per line, or the labels themselves, for the model's last output.
            state: requires iOS18, float16 and a fixed shape; the input and the output are removed from the model's interface.
            bounds: the smallest and the largest size of dynamic dimensions by name, {"N": (1, 64)}. Core ML needs an upper bound
                for each; the default is 2048, which the notes report.
        """
        options = self.parse_options(
            minimum_deployment_target=minimum_deployment_target, compute_precision=compute_precision,
            float32_ops=float32_ops, convert_to=convert_to, image=image, shapes=shapes, labels=labels, state=state,
            compress=compress, calibration=calibration, metadata=metadata, bounds=bounds,
        )  # fmt: skip
        from onnxbridge.backends.coreml.program import convert

        return convert(model, options)

    def parse_options(self, **values: Any) -> CoreMLOptions:
        """Parse the options of `from_hub`.

        Raises:
            UsageError: for an unknown option or an invalid value.
        """
        given = checked(self, values)
        coremltools()
        from onnxbridge.backends.coreml import model_options

        return model_options.parse(given)

    def explain(self, model: ir.Model, **options: Any) -> list[Line]:
        """How each operator is converted (native, composed, unsupported, ...), in which dtype, and its likely compute units."""
        coremltools()
        from onnxbridge.backends.coreml.explain import explain

        return explain(self, model, options)

    def table(self, lines: Sequence[Line]) -> str:
        """The result of `explain` as a text table."""
        from onnxbridge.backends.coreml.explain import table

        return table(list(lines))

    def native(self, artifact: CoreMLModel) -> Any:
        """coremltools' MLModel."""
        return artifact.model

    def save(self, artifact: CoreMLModel, path: Path) -> list[Path]:
        """Write an .mlpackage folder or, for a neural network, an .mlmodel file."""
        from onnxbridge.backends.coreml.reproducible import make_reproducible

        suffix = ".mlmodel" if artifact.kind == "neuralnetwork" else ".mlpackage"
        if suffix == ".mlmodel" and path.suffix == ".mlpackage":
            path = path.with_suffix(suffix)
        if path.suffix == suffix:
            artifact.model.save(str(path))
            make_reproducible(path)
        else:  # coremltools requires its own suffix
            named = path.with_name(path.name + suffix)
            artifact.model.save(str(named))
            make_reproducible(named)
            shutil.move(named, path)
        return [path]

    def runner(self, artifact: CoreMLModel, device: str = "auto") -> Run:
        """Run with Core ML on a Mac and with our MIL interpreter elsewhere, which uses the uncompressed weights where known."""
        return artifact.run_uncompressed

    def in_float32(self, artifact: CoreMLModel) -> Run | None:
        """A runner of an fp16 program in float32, None where its constants before rounding are not known.

        Raises:
            VerificationError: if constants are not the rounded originals.
        """
        return artifact.in_float32()

    def float32_values(self, artifact: CoreMLModel, model: ir.Model) -> frozenset[str]:
        """The values of the hub model that an fp16 program computes in float32."""
        from onnxbridge.backends.coreml.precision.reconversion import float32_values

        return float32_values(artifact, model)

    def options_of(self, artifact: CoreMLModel) -> Mapping[str, Any]:
        """The options that the program was written with, as far as it says them."""
        from onnxbridge.backends.coreml.precision.reconversion import options_of

        return options_of(artifact, TARGETS)

    def as_stored(self, artifact: CoreMLModel) -> Run | None:
        """A runner with the compressed weights, None for a model that is not compressed."""
        return artifact.run if artifact.compress else None

    def info(self, artifact: CoreMLModel) -> ArtifactInfo:
        features = (*artifact.inputs, *artifact.outputs, *(feature for feature, _ in artifact.states))
        names = {f.hub: f.coreml for f in features if f.hub != f.coreml}
        return ArtifactInfo(artifact.notes, artifact.advice, artifact.unit_roundoff, artifact.sizes, artifact.extremes, names)

    def reopen(self, path: Path) -> Reopened | None:
        """A model whose metadata say that this backend wrote it."""
        from onnxbridge.hub.io.detect_format import detect_format

        if detect_format(path) not in ("mlpackage", "mlmodel"):
            return None
        coremltools()  # without its remarks, before the modules below import it
        from onnxbridge.backends.coreml.artifact import INTERFACE
        from onnxbridge.formats.coreml import package_files

        if INTERFACE not in package_files.load(path)[0].description.metadata.userDefined:
            return None
        artifact = self.open(path)
        shapes = {p.hub: [d if isinstance(d, int) else None for d in p.shape] for p in artifact.inputs}
        return Reopened(artifact, shapes, [p.hub for p in artifact.outputs])

    def open(self, path: Path) -> CoreMLModel:
        """Open a package that this backend wrote."""
        ct = coremltools()
        from onnxbridge.backends.coreml.artifact import CoreMLModel
        from onnxbridge.formats.coreml import package_files

        spec, weights = package_files.load(path)
        with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:  # coremltools copies whole folders, with their links
            package_files.copy_weights(weights, Path(folder))
            model = ct.models.MLModel(spec, weights_dir=folder if weights.folder else None, skip_model_load=True)
        return CoreMLModel.from_mlmodel(model)

    def with_source(self, artifact: CoreMLModel, model: ir.Model) -> CoreMLModel:
        """Attach the source's weights to an artifact that was read from a file.

        The source is converted again without compression, and the compressed or float16 weights are compared with the result.

        Raises:
            VerificationError: if the weights are not the compressed or rounded ones of the source.
        """
        if not artifact.compress and not artifact.is_fp16:
            return artifact
        from onnxbridge.backends.coreml.compression.check_compression import original_weights
        from onnxbridge.runtime.mil import Interpreter

        version = artifact.model.get_spec().specificationVersion
        target: Any = next((name for name, number in TARGETS.items() if number >= version), None)
        try:
            plain = self.from_hub(model, minimum_deployment_target=target)
        except (ConversionError, UsageError):  # it was made from another source, or with other options
            return artifact
        if artifact.is_fp16:
            artifact = artifact.with_float32_constants(Interpreter(plain.model).singles())
        return artifact.with_original_weights(original_weights(plain.model)) if artifact.compress else artifact

    def filename(self, stem: str) -> str:
        return f"{stem}.mlpackage"


backend = CoreMLBackend()
