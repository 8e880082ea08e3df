"""The backend's artifact: a Core ML model and the mapping of its inputs, outputs and states to those of the hub model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.compression.check_compression import (
    WeightKey,
    compression_errors,
    covers_compressed_weights,
    raise_compression_errors,
    restore_weights,
)
from onnxbridge.backends.coreml.interface.feature_values import (
    Feature,
    GrowingState,
    state_positions,
    state_value,
    to_core_ml_input,
    to_hub_output,
)
from onnxbridge.backends.coreml.model_options import CoreMLOptions, Image
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.formats.coreml.float32_program import ConstantKey as ConstantKey
from onnxbridge.plugin_protocols import Run
from onnxbridge.runtime.mil import Interpreter

if TYPE_CHECKING:
    from onnxbridge.backends.coreml.interface.features import Interface

Array = np.ndarray[Any, Any]

Predict = Callable[[dict[str, Array], dict[str, Array]], tuple[Mapping[str, Any], dict[str, Array]]]

INTERFACE, NOTES = "onnxbridge.interface", "onnxbridge.notes"
FP16_ROUNDOFF, FP32_ROUNDOFF = 2.0**-11, 2.0**-24
# The error of a compressed weight relative to the largest of its block: half a quantization step. Pruning has no bound.
COMPRESSION_ROUNDOFF = {
    "linear8": 2**-8,
    "palettize8": 2**-8,
    "palettize6": 2**-6,
    "linear4": 2**-4,
    "palettize4": 2**-4,
    "palettize2": 2**-2,
}
MIXED_ADVICE = "compute_precision=mixed keeps values that are too large or too small for float16 in float32"
CONVERSION_DATE = "com.github.apple.coremltools.conversion_date"
# Hub metadata keys and the fields of Core ML's model description that they set.
FIELDS = {
    "author": "author",
    "license": "license",
    "licence": "license",
    "version": "version",
    "model_version": "version",
    "description": "short_description",
    "short_description": "short_description",
}


@dataclass
class CoreMLModel:
    """A Core ML model with the names of the hub model.

    Attributes:
        model: coremltools' MLModel, as returned by `ct.convert`.
        inputs, outputs: the hub's names, dtypes and shapes, and Core ML's names, in order.
        states: each state's input feature, and the name of the output that is its updated value.
        growths: how states grow, by the hub's name.
        positions: the Core ML input that says how many elements are filled, by the name of the growing dimension.
        images: the image inputs with their preprocessing, by the hub's name.
        labels: the labels of a classifier, whose scores are the last output.
        sizes: bounds of the dynamic sizes for each enumerated shape, the default first.
        extremes: bounds of the smallest and the largest sizes that the user requested.
        notes: the differences to the hub model: dtypes that Core ML does not have, default bounds, renamed values.
        own_roundoff: the unit roundoff of the arithmetic where it is coarser than the hub's.
        before: the weights of a compressed model before compression. Without Core ML the model is verified with them: the
            compressed weights are compared one by one when they are compressed, which outputs could not show.
        compress: the weight compression, "" for none.
        wide: the constants of an fp16 program before rounding.
    """

    model: Any
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    notes: tuple[str, ...] = ()
    arithmetic_roundoff: float | None = None
    states: tuple[tuple[Feature, str], ...] = ()
    growing_states: Mapping[str, GrowingState] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    labels: tuple[str | int, ...] = ()
    kind: str = "mlprogram"
    program: Any = field(default=None, repr=False, compare=False)
    """The MIL program of a neural network, for the interpreter."""
    sizes: Sequence[Mapping[str, tuple[int, int]]] = ()
    extremes: Sequence[Mapping[str, tuple[int, int]]] = ()
    original_weights: Mapping[WeightKey, Array] = field(default_factory=dict, repr=False, compare=False)
    compress: str = ""
    float32_constants: Mapping[ConstantKey, Array] = field(default_factory=dict, repr=False, compare=False)
    advice: str = field(default="", repr=False, compare=False)
    _source_unverified: bool = field(default=False, repr=False, compare=False)
    """Whether the source was named by the user who verifies a file, so that it may not be the one the file was made from."""
    _mlmodel: Any = field(default=None, repr=False, compare=False)
    _interpreters: dict[bool, Interpreter] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def make(
        cls, model: Any, interface: Interface, hub: ir.Model, program: Any = None,
        original_weights: Mapping[WeightKey, Array] | None = None,
        float32_constants: Mapping[ConstantKey, Array] | None = None,
    ) -> CoreMLModel:  # fmt: skip
        """Create the artifact, and write everything that `from_mlmodel` needs into the model's metadata."""
        options = interface.options
        states = tuple((p, options.states[p.hub]) for p in interface.states)
        roundoff = _arithmetic_roundoff(options, bool(states), hub)
        artifact = cls(
            model, tuple(interface.inputs), tuple(interface.outputs), tuple(interface.notes), roundoff, states,
            interface.growing_states, interface.positions, options.images, options.labels, options.kind, program,
            options.sizes(hub.graph), options.size_extremes(hub.graph, {g.label for g in interface.growing_states.values()}),
            original_weights or {}, options.compress, float32_constants or {},
            MIXED_ADVICE if options.precision == "fp16" else "",
        )  # fmt: skip
        described = {"short_description": hub.doc_string or hub.graph.doc_string or ""}
        for key, value in (hub.metadata_props | dict(options.metadata)).items():
            if key.lower() in FIELDS:
                described[FIELDS[key.lower()]] = value
            else:
                model.user_defined_metadata[key] = value
        for name, text in described.items():
            if text:
                setattr(model, name, text)
        _describe(model, hub, artifact)
        model.user_defined_metadata.pop(CONVERSION_DATE, None)  # keeps the output byte-identical from run to run
        model.user_defined_metadata[INTERFACE] = json.dumps({
            "inputs": [asdict(p) for p in artifact.inputs], "outputs": [asdict(p) for p in artifact.outputs], "unit": roundoff,
            "states": [[asdict(p), output] for p, output in states], "images": {k: asdict(v) for k, v in artifact.images.items()},
            "labels": list(artifact.labels),
            **({"compress": artifact.compress} if artifact.compress else {}),
            **({"float32_ops": list(options.float32_ops)} if options.float32_ops else {}),
            **({"growths": {k: asdict(v) for k, v in artifact.growing_states.items()}} if artifact.growing_states else {}),
            **({"positions": artifact.positions} if artifact.growing_states else {}),
        })  # fmt: skip
        if artifact.notes:
            model.user_defined_metadata[NOTES] = json.dumps(list(artifact.notes))
        return artifact

    @classmethod
    def from_mlmodel(cls, model: Any) -> CoreMLModel:
        """The artifact of an MLModel that this backend wrote."""
        notes = model.user_defined_metadata.get(NOTES)
        if INTERFACE not in model.user_defined_metadata:
            raise UsageError("this Core ML model was not written by onnxbridge: its metadata lack the names of the source model")
        interface = json.loads(model.user_defined_metadata[INTERFACE])
        inputs, outputs = (tuple(map(_feature, interface[key])) for key in ("inputs", "outputs"))
        images = {
            k: Image(v["color"], tuple(v["scale"]), tuple(v["bias"]), v["layout"]) for k, v in interface["images"].items()
        }  # fmt: skip
        return cls(
            model, inputs, outputs, tuple(json.loads(notes)) if notes else (), interface["unit"],
            tuple((_feature(p), output) for p, output in interface["states"]),
            {k: GrowingState(**v) for k, v in interface.get("growths", {}).items()}, interface.get("positions", {}), images,
            tuple(interface["labels"]), compress=interface.get("compress", ""),
        )  # fmt: skip

    @property
    def unit_roundoff(self) -> float | None:
        """The unit roundoff of the arithmetic where it is coarser than the hub's, or of the compression if the model runs with
        compressed weights."""
        uncompressed = self.original_weights and sys.platform != "darwin"
        return max(self.arithmetic_roundoff or 0.0, 0.0 if uncompressed else COMPRESSION_ROUNDOFF.get(self.compress, 0.0)) or None

    @cached_property
    def names(self) -> dict[str, str]:
        """Core ML's names of the inputs, outputs and states by the hub's names."""
        return {p.hub: p.coreml for p in (*self.inputs, *self.outputs, *(p for p, _ in self.states))}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model: with Core ML on a Mac, with our interpreter elsewhere.

        Each state is set to its input in `feeds`, and its updated value is returned, so that runs are independent.
        """
        return self._run(feeds, lambda inputs, states: self._predict(inputs, states, {}))

    def run_uncompressed(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Run the model with the uncompressed weights where they are known, except on a Mac."""
        original_weights = {} if sys.platform == "darwin" else self.original_weights
        return self._run(feeds, lambda inputs, states: self._predict(inputs, states, original_weights))

    @property
    def is_fp16(self) -> bool:
        """Whether the program computes in float16."""
        return self.arithmetic_roundoff == FP16_ROUNDOFF and self.kind == "mlprogram"

    def with_float32_constants(self, singles: Mapping[ConstantKey, Array]) -> CoreMLModel:
        """The artifact with the float32 constants of its source, for a model read from a file."""
        return replace(self, float32_constants=singles, _interpreters={}, _source_unverified=True)

    def in_float32(self) -> Run | None:
        """A runner of an fp16 program in float32, None if the program is not fp16 or not all float32 constants are known.

        Raises:
            VerificationError: if constants are not the rounded originals.
        """
        if not self.float32_constants and not self.states:
            return None
        interpreter = Interpreter(self.model)
        widening = interpreter.widen(self.float32_constants)
        if self._source_unverified and 2 * len(widening.wrong) >= widening.known:  # converted from another model
            return None
        if widening.wrong:
            more = f", and {len(widening.wrong) - 3} more" if len(widening.wrong) > 3 else ""
            raise VerificationError(f"float16: {'; '.join(widening.wrong[:3])}{more}")
        if widening.unknown:
            reason = f"the float32 value of {widening.unknown[0]} is not known"
            self.notes = (*self.notes, f"not compared with a float32 run of the same program: {reason}")
            return None
        return lambda feeds: self._run(feeds, lambda inputs, states: _run_interpreter(interpreter, inputs, states), np.float32)

    def _run(self, feeds: Mapping[str, Any], predict: Predict, state_dtype: Any = np.float16) -> dict[str, Array]:
        """Convert `feeds`, call `predict(inputs, states)`, which returns outputs and updated states, and convert these back."""
        missing = [p.hub for p in (*self.inputs, *(p for p, _ in self.states)) if p.hub not in feeds]
        if missing:
            raise UsageError(f"the input {', '.join(missing)} is missing")
        inputs = {p.coreml: to_core_ml_input(np.asarray(feeds[p.hub]), p, self.images.get(p.hub)) for p in self.inputs}
        state_inputs = [p for p, _ in self.states]
        inputs |= state_positions(state_inputs, feeds, self.growing_states, self.positions)
        states = {
            p.coreml: state_value(np.asarray(feeds[p.hub]), self.growing_states.get(p.hub), state_dtype) for p in state_inputs
        }
        results, states = predict(inputs, states)
        found = {p.hub: to_hub_output(self._scores(results, p), p) for p in self.outputs}
        return found | {output: to_hub_output(self._next_state(states[p.coreml], p, feeds), p) for p, output in self.states}

    def _next_state(self, state: Array, feature: Feature, feeds: Mapping[str, Any]) -> Array:
        """A state's updated value: the whole state, or the filled part of a growing one."""
        growth = self.growing_states.get(feature.hub)
        if growth is None:
            return state
        steps = growth.steps
        if isinstance(steps, str):
            steps = next(np.shape(feeds[p.hub])[p.shape.index(steps)] for p in self.inputs if steps in p.shape)
        end = np.shape(feeds[feature.hub])[growth.axis] + steps
        return state[tuple(slice(end) if a == growth.axis else slice(None) for a in range(state.ndim))]

    def _scores(self, results: Mapping[str, Any], feature: Feature) -> Array:
        """An output as an array; a classifier returns its scores as a dictionary by label."""
        if feature.coreml in results:
            return np.asarray(results[feature.coreml])
        by_label = next(v for v in results.values() if isinstance(v, Mapping))
        sizes = [n if isinstance(n, int) else 1 for n in feature.shape]
        return np.array([by_label[label] for label in self.labels], np.float32).reshape(sizes)

    def _predict(
        self, inputs: dict[str, Array], states: dict[str, Array], original_weights: Mapping[WeightKey, Array]
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        if sys.platform == "darwin":
            return self._predict_with_core_ml(inputs, states)
        return _run_interpreter(self._interpreter(original_weights), inputs, states)

    def _interpreter(self, original_weights: Mapping[WeightKey, Array]) -> Interpreter:
        if bool(original_weights) not in self._interpreters:
            interpreter = Interpreter(self.model if self.program is None else self.program)
            self._interpreters[bool(original_weights)] = (
                restore_weights(interpreter, original_weights) if original_weights else interpreter
            )
        return self._interpreters[bool(original_weights)]

    def with_original_weights(self, original_weights: Mapping[WeightKey, Array]) -> CoreMLModel:
        """The compressed artifact with the original weights, which `run_uncompressed` uses.

        Raises:
            VerificationError: if the compressed weights do not match the original ones.
        """
        program = Interpreter(self.model)
        if not covers_compressed_weights(program, original_weights):
            return self
        raise_compression_errors(compression_errors(program, original_weights, self.compress))
        return replace(self, original_weights=original_weights, _interpreters={})

    def _predict_with_core_ml(
        self, feeds: dict[str, Any], states: dict[str, Array]
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        import coremltools as ct

        self._mlmodel = self._mlmodel or ct.models.MLModel(self.model.package_path)
        for feature in self.inputs:
            if feature.hub in self.images:
                feeds[feature.coreml] = _pil_image(feeds[feature.coreml], self.images[feature.hub])
        if not states:
            predicted: Mapping[str, Any] = self._mlmodel.predict(feeds)
            return predicted, {}
        state = self._mlmodel.make_state()
        for name, value in states.items():
            state.write_state(name, value)
        predicted = self._mlmodel.predict(feeds, state=state)
        return predicted, {name: np.asarray(state.read_state(name)) for name in states}


def _arithmetic_roundoff(options: CoreMLOptions, states: bool, hub: ir.Model) -> float | None:
    """The unit roundoff of the program's arithmetic, None if it is that of the hub model."""
    if options.precision != "fp32" or states:
        return FP16_ROUNDOFF
    results = (v for node in hub.graph.all_nodes() for v in node.outputs)
    return FP32_ROUNDOFF if any(v.dtype == ir.DataType.DOUBLE for v in (*hub.graph.inputs, *results)) else None


def _feature(stored_fields: Mapping[str, Any]) -> Feature:
    return Feature(**{**stored_fields, "shape": tuple(stored_fields["shape"])})


def _pil_image(pixels: Array, image: Image) -> Any:
    """The PIL image that Core ML takes, with pixels rounded to integers."""
    from PIL import Image as pil

    rounded = np.clip(np.rint(pixels[0]), 0, 255).astype(np.uint8)
    if image.color == "BGR":
        rounded = rounded[::-1]
    return pil.fromarray(rounded[0], "L") if image.channels == 1 else pil.fromarray(rounded.transpose(1, 2, 0), "RGB")


def _describe(model: Any, hub: ir.Model, artifact: CoreMLModel) -> None:
    """Copy the hub's documentation of inputs and outputs to the model."""
    docs = {v.name: v.doc_string for v in (*hub.graph.inputs, *hub.graph.outputs) if v.doc_string}
    spec = model.get_spec().description
    for features, descriptions, described in (
        (artifact.inputs, model.input_description, spec.input), (artifact.outputs, model.output_description, spec.output),
    ):  # fmt: skip
        names = {d.name for d in described}
        for feature in features:
            if feature.hub in docs and feature.coreml in names:
                descriptions[feature.coreml] = docs[feature.hub]


def _run_interpreter(
    interpreter: Interpreter, feeds: Mapping[str, Any], states: Mapping[str, Array]
) -> tuple[Mapping[str, Any], dict[str, Array]]:
    """The outputs of the interpreter, and the updated states."""
    for name, value in states.items():
        interpreter.states[name].value = value
    results = interpreter.run(feeds)
    return results, {name: interpreter.states[name].value for name in states}
