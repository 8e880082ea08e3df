"""The Core ML backend: the hub model as an ML program (.mlpackage), through coremltools' MIL builder. No Mac is needed."""

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
from onnxbridge.plugins import Run
from onnxbridge.rules import Rules

if TYPE_CHECKING:
    from onnxbridge.backends.coreml.artifact import CoreMLModel
    from onnxbridge.backends.coreml.explain import Line
    from onnxbridge.backends.coreml.model_options import Asked

Texts = Sequence[str]
TARGETS: Mapping[str, int] = {"iOS15": 6, "iOS16": 7, "iOS17": 8, "iOS18": 9}
"""The versions of the specification that came with them."""


class CoreMLBackend:
    """Writes Core ML."""

    name = "coreml"
    title = "Core ML"
    package = "coremltools"
    suffixes = (".mlpackage", ".mlmodel")

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
            Literal["iOS15", "iOS16", "iOS17", "iOS18"] | None, Setting("the oldest system to run on; iOS17 by default.")
        ] = None,
        compute_precision: Annotated[
            Literal["fp32", "fp16", "mixed"],
            Setting("the type to compute in, fp32 by default; mixed is fp16 where measured ranges allow it."),
        ] = "fp32",
        convert_to: Annotated[
            Literal["mlprogram", "neuralnetwork"], Setting("the kind of model; mlprogram by default.")
        ] = "mlprogram",
        image: Annotated[
            Texts, Setting("an input that takes pictures, whose pixels become pixel*scale+bias.", "x:RGB,scale=1/255,bias=0/0/0")
        ] = (),
        shapes: Annotated[Texts, Setting("the only shapes that an input has.", "x:1x3x224x224,1x3x256x256")] = (),
        labels: Annotated[
            Path | Sequence[str | int] | None, Setting("labels, one a line; makes a classifier.", "FILE.txt")
        ] = None,
        state: Annotated[Texts, Setting("an input kept between runs, and the output that comes next.", "past=present")] = (),
        compress: Annotated[
            Literal["linear8", "linear4", "palettize8", "palettize6", "palettize4", "palettize2", "sparse50", "sparse75"] | None,
            Setting("how weights are stored: as 8 or 4 bits, as places in a palette, or mostly zeros."),
        ] = None,
        calibration: Annotated[
            Path | Sequence[Mapping[str, Any]] | None, Setting("inputs to measure ranges on, for mixed.", "FILE.npz")
        ] = None,
        metadata: Annotated[Texts, Setting("author, license, version or description, or anything else.", "author=NAME")] = (),
        bounds: Mapping[str, tuple[int, int | None]] | None = None,
    ) -> CoreMLModel:
        """The model as an ML program.

        Args:
            minimum_deployment_target: the oldest system that has to run it, which stands for the macOS, watchOS and tvOS of its
                year too. Newer ones have more operators.
            compute_precision: "fp16" for half the size and the Neural Engine; then an operator whose constants float16 cannot
                hold stays in float32. "mixed" runs the model on `calibration` (or drawn samples) first, and keeps every operator
                in float32 whose numbers float16 cannot hold. The artifact's notes name what stays.
            image: "x:BGR,scale=1/255,bias=-0.48/-0.45/-0.4,layout=NHWC"; what is behind the name may be left out.
            shapes: the first one is the default.
            labels: a file with one label a line, or the labels themselves, for the model's last output.
            state: needs iOS18, float16 and a fixed shape; the input and output are no inputs and outputs any more.
            bounds: the least and the largest size of dynamic dimensions by name, {"N": (1, 64)}. Core ML needs a bound for each;
                where none is given, 2048 is taken and said.
        """
        asked = self.asked(
            minimum_deployment_target=minimum_deployment_target, compute_precision=compute_precision, convert_to=convert_to,
            image=image, shapes=shapes, labels=labels, state=state, compress=compress, calibration=calibration,
            metadata=metadata, bounds=bounds,
        )  # fmt: skip
        from onnxbridge.backends.coreml.program import convert

        return convert(model, asked)

    def asked(self, **given: Any) -> Asked:
        """The options of `from_hub`, parsed.

        Raises:
            UsageError: for one that it has not, or that is not of its form.
        """
        options = checked(self, given)
        coremltools()
        from onnxbridge.backends.coreml import model_options

        return model_options.parsed(options)

    def explain(self, model: ir.Model, **options: Any) -> list[Line]:
        """What becomes of each operator: native, composed or refused, in which type, and where Core ML is likely to run it."""
        coremltools()
        from onnxbridge.backends.coreml.explain import explain

        return explain(self, model, options)

    def table(self, lines: Sequence[Line]) -> str:
        """What `explain` told, as text."""
        from onnxbridge.backends.coreml.explain import table

        return table(list(lines))

    def native(self, artifact: CoreMLModel) -> Any:
        """coremltools' MLModel."""
        return artifact.model

    def save(self, artifact: CoreMLModel, path: Path) -> list[Path]:
        """Write an .mlpackage, which is a folder, or of a neural network the .mlmodel file that it must be."""
        suffix = ".mlmodel" if artifact.kind == "neuralnetwork" else ".mlpackage"
        if suffix == ".mlmodel" and path.suffix == ".mlpackage":
            path = path.with_suffix(suffix)
        if path.suffix == suffix:
            artifact.model.save(str(path))
        else:  # coremltools writes under a name of its own suffix only
            named = path.with_name(path.name + suffix)
            artifact.model.save(str(named))
            shutil.move(named, path)
        return [path]

    def runner(self, artifact: CoreMLModel, device: str = "auto") -> Run:
        """By Core ML itself on a Mac, by our interpreter of ML programs elsewhere, with the weights that were compressed."""
        return artifact.before_compression

    def in_float32(self, artifact: CoreMLModel) -> Run | None:
        """What runs a program of half precision without its rounding, where its constants before are known.

        Raises:
            VerificationError: if constants are not those that they were, rounded.
        """
        return artifact.in_float32()

    def as_stored(self, artifact: CoreMLModel) -> Run | None:
        """What runs a model with its weights as they are compressed, None where they are not."""
        return artifact.run if artifact.compress else None

    def made(self, path: Path) -> bool:
        """Whether the model's metadata have what this backend writes into them."""
        coremltools()  # without its remarks, before the modules below import it
        from onnxbridge.backends.coreml.artifact import INTERFACE
        from onnxbridge.formats.coreml import package_files

        return INTERFACE in package_files.load(path)[0].description.metadata.userDefined

    def open(self, path: Path) -> CoreMLModel:
        """A package that this backend once wrote."""
        ct = coremltools()
        from onnxbridge.backends.coreml.artifact import CoreMLModel
        from onnxbridge.formats.coreml import package_files

        spec, weights = package_files.load(path)
        with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:  # coremltools copies whole folders, links and all
            package_files.copy_weights(weights, Path(folder))
            model = ct.models.MLModel(spec, weights_dir=folder if weights.folder else None, skip_model_load=True)
        return CoreMLModel.of(model)

    def against(self, artifact: CoreMLModel, hub: ir.Model) -> CoreMLModel:
        """The artifact of a file with the weights of the source, converted again: those that it has compressed or rounded to
        float16 are compared with them.

        Raises:
            VerificationError: if they are not what their compression makes of those.
        """
        if not artifact.compress and not artifact.rounds:
            return artifact
        from onnxbridge.backends.coreml.compression.check_compression import originals
        from onnxbridge.runtime.mil import Interpreter

        version = artifact.model.get_spec().specificationVersion
        target: Any = next((name for name, number in TARGETS.items() if number >= version), None)
        try:
            plain = self.from_hub(hub, minimum_deployment_target=target)
        except (ConversionError, UsageError):  # what it was made from, or with, was another
            return artifact
        if artifact.rounds:
            artifact = artifact.rounded_from(Interpreter(plain.model).singles())
        return artifact.against(originals(plain.model)) if artifact.compress else artifact

    def filename(self, stem: str) -> str:
        return f"{stem}.mlpackage"


backend = CoreMLBackend()
