"""What the backend makes: Core ML's model, and what ties it to the hub model it was made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.compression.check_compression import Key, refuse, restored, strayed, told
from onnxbridge.backends.coreml.model_options import Asked, Image
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.formats.coreml.float32_program import Key as Place
from onnxbridge.plugins import Run
from onnxbridge.runtime.mil import Interpreter

if TYPE_CHECKING:
    from onnxbridge.backends.coreml.interface.features import Interface

Array = np.ndarray[Any, Any]

Predict = Callable[[dict[str, Array], dict[str, Array]], tuple[Mapping[str, Any], dict[str, Array]]]

INTERFACE, NOTES = "onnxbridge.interface", "onnxbridge.notes"
HALF, SINGLE = 2.0**-11, 2.0**-24
# How far a weight may move, of the largest beside it: half a step of as many as there are bits. Zeros for weights have no bound.
STEPS = {"linear8": 2**-8, "palettize8": 2**-8, "palettize6": 2**-6, "linear4": 2**-4, "palettize4": 2**-4, "palettize2": 2**-2}
_MIXED = "compute_precision=mixed keeps in float32 what is too large or too small for half precision"
DATE = "com.github.apple.coremltools.conversion_date"
# Core ML's own fields of a description, by the hub's metadata that fill them.
FIELDS = {
    "author": "author",
    "license": "license",
    "licence": "license",
    "version": "version",
    "model_version": "version",
    "description": "short_description",
    "short_description": "short_description",
}


@dataclass(frozen=True)
class Port:
    """An input or output: its name, type and shape in the hub, and its name in Core ML. A rank of 0 is (1,) in Core ML."""

    hub: str
    coreml: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class Growth:
    """How a state grows: along `axis`, whose size is called `label`, by `steps` elements (a number or a size's name) in each run,
    to `length` at most."""

    axis: int
    label: str
    steps: int | str
    length: int


@dataclass
class CoreMLModel:
    """A Core ML model with the hub's names.

    Attributes:
        model: coremltools' MLModel, as `ct.convert` gives it.
        inputs, outputs: the hub's names, types and shapes, and Core ML's names, in order.
        states: what the model keeps between runs: its input and, beside it, the name of the output that is its next value.
        growths: of the states that grow, by the hub's name; positions: by the name of the size that grows, Core ML's input that
            says how much of it is filled.
        images: the inputs that take pictures, and what happens to a pixel.
        labels: of a classifier, whose scores are the last output.
        sizes: bounds of the sizes that the inputs have by default, where they take only some, and of each of the others.
        ends: bounds of the least and the largest sizes that the user asked for.
        notes: what is not as in the hub model: types that Core ML has not, bounds that were chosen, names that were rewritten.
        own_roundoff: of the arithmetic, where it is not the hub's own.
        before: of a compressed model the weights as they were. With them it is verified where there is no Core ML: outputs cannot
            tell what the compression should have made of weights, which are compared one by one when they are compressed.
        compress: how weights are stored, "" for as they are.
        wide: of a program in half precision its constants before they were rounded.
    """

    model: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    notes: tuple[str, ...] = ()
    own_roundoff: float | None = None
    states: tuple[tuple[Port, str], ...] = ()
    growths: Mapping[str, Growth] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    labels: tuple[str | int, ...] = ()
    kind: str = "mlprogram"
    program: Any = field(default=None, repr=False, compare=False)
    """What runs where there is no Core ML: the MIL program of a neural network."""
    sizes: Sequence[Mapping[str, tuple[int, int]]] = ()
    ends: Sequence[Mapping[str, tuple[int, int]]] = ()
    before: Mapping[Key, Array] = field(default_factory=dict, repr=False, compare=False)
    compress: str = ""
    wide: Mapping[Place, Array] = field(default_factory=dict, repr=False, compare=False)
    advice: str = field(default="", repr=False, compare=False)
    _opened: bool = field(default=False, repr=False, compare=False)
    """Whether the source is named by who verifies a file, and need not be the one that it was made from."""
    _engine: Any = field(default=None, repr=False, compare=False)
    _engines: dict[bool, Interpreter] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def make(
        cls, model: Any, interface: Interface, hub: ir.Model, program: Any = None, before: Mapping[Key, Array] | None = None,
        wide: Mapping[Place, Array] | None = None,
    ) -> CoreMLModel:  # fmt: skip
        """The artifact, with everything that a later reader needs written into the model's own metadata."""
        asked = interface.asked
        states = tuple((p, asked.states[p.hub]) for p in interface.states)
        own = _own(asked, bool(states), hub)
        made = cls(
            model, tuple(interface.inputs), tuple(interface.outputs), tuple(interface.notes), own, states, interface.growths,
            interface.positions, asked.images, asked.labels, asked.kind, program, asked.sizes(hub.graph),
            asked.ends(hub.graph, {g.label for g in interface.growths.values()}), before or {},
            asked.compress, wide or {}, _MIXED if asked.precision == "fp16" else "",
        )  # fmt: skip
        described = {"short_description": hub.doc_string or hub.graph.doc_string or ""}
        for key, value in (hub.metadata_props | dict(asked.metadata)).items():
            if key.lower() in FIELDS:
                described[FIELDS[key.lower()]] = value
            else:
                model.user_defined_metadata[key] = value
        for name, text in described.items():
            if text:
                setattr(model, name, text)
        _describe(model, hub, made)
        model.user_defined_metadata.pop(DATE, None)  # the same model is to give the same bytes tomorrow
        model.user_defined_metadata[INTERFACE] = json.dumps({
            "inputs": [asdict(p) for p in made.inputs], "outputs": [asdict(p) for p in made.outputs], "unit": own,
            "states": [[asdict(p), output] for p, output in states], "images": {k: asdict(v) for k, v in made.images.items()},
            "labels": list(made.labels),
            **({"compress": made.compress} if made.compress else {}),
            **({"growths": {k: asdict(v) for k, v in made.growths.items()}, "positions": made.positions} if made.growths else {}),
        })  # fmt: skip
        if made.notes:
            model.user_defined_metadata[NOTES] = json.dumps(list(made.notes))
        return made

    @classmethod
    def of(cls, model: Any) -> CoreMLModel:
        """The artifact around an MLModel that this backend once made."""
        notes = model.user_defined_metadata.get(NOTES)
        if INTERFACE not in model.user_defined_metadata:
            raise UsageError("this Core ML model was not made by onnxbridge: the names of its source are not in it")
        held = json.loads(model.user_defined_metadata[INTERFACE])
        inputs, outputs = (tuple(map(_port, held[side])) for side in ("inputs", "outputs"))
        images = {
            k: Image(v["color"], tuple(v["scale"]), tuple(v["bias"]), v["layout"]) for k, v in held["images"].items()
        }  # fmt: skip
        return cls(
            model, inputs, outputs, tuple(json.loads(notes)) if notes else (), held["unit"],
            tuple((_port(p), output) for p, output in held["states"]),
            {k: Growth(**v) for k, v in held.get("growths", {}).items()}, held.get("positions", {}), images,
            tuple(held["labels"]), compress=held.get("compress", ""),
        )  # fmt: skip

    @property
    def unit_roundoff(self) -> float | None:
        """Of the arithmetic, where it is not the hub's own, or of weights that are compressed where those before are not here."""
        at_hand = self.before and sys.platform != "darwin"
        return max(self.own_roundoff or 0.0, 0.0 if at_hand else STEPS.get(self.compress, 0.0)) or None

    @cached_property
    def names(self) -> dict[str, str]:
        """Core ML's names by the hub's, of the inputs and outputs."""
        return {p.hub: p.coreml for p in (*self.inputs, *self.outputs, *(p for p, _ in self.states))}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """The model on the given inputs: by Core ML itself on a Mac, by our interpreter elsewhere.

        A state is set to the input that it stands for, and given out too, so that a run depends on nothing before it.
        """
        return self._run(feeds, lambda given, kept: self._predict(given, kept, {}))

    def before_compression(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """The same with the weights as they were before they were compressed, where these are here and Core ML is not."""
        before = {} if sys.platform == "darwin" else self.before
        return self._run(feeds, lambda given, kept: self._predict(given, kept, before))

    @property
    def rounds(self) -> bool:
        """Whether the program computes in half precision."""
        return self.own_roundoff == HALF and self.kind == "mlprogram"

    def rounded_from(self, singles: Mapping[Place, Array]) -> CoreMLModel:
        """The artifact of a file, with the constants of its source in float32."""
        return replace(self, wide=singles, _engines={}, _opened=True)

    def in_float32(self) -> Run | None:
        """What runs a program of half precision without its rounding, None where there is none or not all is known of it.

        Raises:
            VerificationError: if constants are not those that they were, rounded.
        """
        if not self.wide and not self.states:
            return None
        engine = Interpreter(self.model)
        widening = engine.widen(self.wide)
        if self._opened and 2 * len(widening.wrong) >= widening.known:  # it was made from another model
            return None
        if widening.wrong:
            more = f", and {len(widening.wrong) - 3} more" if len(widening.wrong) > 3 else ""
            raise VerificationError(f"half precision: {'; '.join(widening.wrong[:3])}{more}")
        if widening.unknown:
            self.notes = (*self.notes, f"nothing is computed in float32 beside, since {widening.unknown[0]} is not known before")
            return None
        return lambda feeds: self._run(feeds, lambda given, kept: _ran(engine, given, kept), np.float32)

    def _run(self, feeds: Mapping[str, Any], predict: Predict, held: Any = np.float16) -> dict[str, Array]:
        """`predict` takes the inputs and the states, which are of the type `held`, and gives the outputs and the states."""
        missing = [p.hub for p in (*self.inputs, *(p for p, _ in self.states)) if p.hub not in feeds]
        if missing:
            raise UsageError(f"the input {', '.join(missing)} is missing")
        given = {p.coreml: fed(np.asarray(feeds[p.hub]), p, self.images.get(p.hub)) for p in self.inputs}
        ports = [p for p, _ in self.states]
        given |= filled(ports, feeds, self.growths, self.positions)
        kept = {p.coreml: stored(np.asarray(feeds[p.hub]), self.growths.get(p.hub), held) for p in ports}
        results, kept = predict(given, kept)
        found = {p.hub: _given(self._scores(results, p), p) for p in self.outputs}
        return found | {output: _given(self._grown(kept[p.coreml], p, feeds), p) for p, output in self.states}

    def _grown(self, kept: Array, port: Port, feeds: Mapping[str, Any]) -> Array:
        """A state's next value: all of it or, of one that grows, what is filled."""
        growth = self.growths.get(port.hub)
        if growth is None:
            return kept
        steps = growth.steps
        if isinstance(steps, str):
            steps = next(np.shape(feeds[p.hub])[p.shape.index(steps)] for p in self.inputs if steps in p.shape)
        end = np.shape(feeds[port.hub])[growth.axis] + steps
        return kept[tuple(slice(end) if a == growth.axis else slice(None) for a in range(kept.ndim))]

    def _scores(self, results: Mapping[str, Any], port: Port) -> Array:
        """An output; a classifier's scores come as a dictionary by label."""
        if port.coreml in results:
            return np.asarray(results[port.coreml])
        by_label = next(v for v in results.values() if isinstance(v, Mapping))
        sizes = [n if isinstance(n, int) else 1 for n in port.shape]
        return np.array([by_label[label] for label in self.labels], np.float32).reshape(sizes)

    def _predict(
        self, feeds: dict[str, Array], kept: dict[str, Array], before: Mapping[Key, Array]
    ) -> tuple[Mapping[str, Any], dict[str, Array]]:
        if sys.platform == "darwin":
            return self._by_core_ml(feeds, kept)
        results, after = _ran(self._started(before), feeds, kept)
        return results, after

    def _started(self, before: Mapping[Key, Array]) -> Interpreter:
        if bool(before) not in self._engines:
            engine = Interpreter(self.model if self.program is None else self.program)
            self._engines[bool(before)] = restored(engine, before) if before else engine
        return self._engines[bool(before)]

    def against(self, before: Mapping[Key, Array]) -> CoreMLModel:
        """A compressed model of a file with the weights of its source, with which it runs from then on.

        Raises:
            VerificationError: if the weights of the file are not what their compression makes of those.
        """
        program = Interpreter(self.model)
        if not told(program, before):
            return self
        refuse(strayed(program, before, self.compress))
        return replace(self, before=before, _engines={})

    def _by_core_ml(self, feeds: dict[str, Any], kept: dict[str, Array]) -> tuple[Mapping[str, Any], dict[str, Array]]:
        import coremltools as ct

        self._engine = self._engine or ct.models.MLModel(self.model.package_path)
        for port in self.inputs:
            if port.hub in self.images:
                feeds[port.coreml] = _picture(feeds[port.coreml], self.images[port.hub])
        if not kept:
            predicted: Mapping[str, Any] = self._engine.predict(feeds)
            return predicted, {}
        state = self._engine.make_state()
        for name, value in kept.items():
            state.write_state(name, value)
        predicted = self._engine.predict(feeds, state=state)
        return predicted, {name: np.asarray(state.read_state(name)) for name in kept}


def _own(asked: Asked, states: bool, hub: ir.Model) -> float | None:
    """The unit roundoff of the program's arithmetic, where the source computes in finer numbers."""
    if asked.precision != "fp32" or states:
        return HALF
    made = (v for node in hub.graph.all_nodes() for v in node.outputs)
    return SINGLE if any(v.dtype == ir.DataType.DOUBLE for v in (*hub.graph.inputs, *made)) else None


def _port(held: Mapping[str, Any]) -> Port:
    return Port(**{**held, "shape": tuple(held["shape"])})


def _picture(pixels: Array, image: Image) -> Any:
    """What Core ML takes for a picture, of whole pixels."""
    from PIL import Image as pictures

    whole = np.clip(np.rint(pixels[0]), 0, 255).astype(np.uint8)
    if image.color == "BGR":
        whole = whole[::-1]
    return pictures.fromarray(whole[0], "L") if image.channels == 1 else pictures.fromarray(whole.transpose(1, 2, 0), "RGB")


def _describe(model: Any, hub: ir.Model, made: CoreMLModel) -> None:
    """What the source says of each input and output."""
    texts = {v.name: v.doc_string for v in (*hub.graph.inputs, *hub.graph.outputs) if v.doc_string}
    spec = model.get_spec().description
    for ports, described, there in (
        (made.inputs, model.input_description, spec.input), (made.outputs, model.output_description, spec.output),
    ):  # fmt: skip
        names = {d.name for d in there}
        for port in ports:
            if port.hub in texts and port.coreml in names:
                described[port.coreml] = texts[port.hub]


def fed(array: Array, port: Port, image: Image | None = None) -> Array:
    """An input as Core ML takes it: (1,) for a scalar, int32 for every integer and bool, the pixels behind a picture.

    Raises:
        UsageError: if a number does not fit.
    """
    array = array.reshape(1) if array.ndim == 0 else array
    if image is not None:
        return image.pixels(array.astype(np.float32))
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:
        limits = np.iinfo(np.int32)
        if array.size and (array.max() > limits.max or array.min() < limits.min):
            raise UsageError(f"the input {port.hub} holds an integer outside of int32, the widest of Core ML")
    if array.dtype.kind in "iub":
        return array.astype(np.int32)
    if array.dtype == np.float16:
        return array
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    if not np.array_equal(np.isinf(single), np.isinf(array)):
        raise UsageError(f"the input {port.hub} holds a number outside of float32, the widest of Core ML")
    return single


def _ran(engine: Interpreter, feeds: Mapping[str, Any], kept: Mapping[str, Array]) -> tuple[Mapping[str, Any], dict[str, Array]]:
    """What the interpreter gives, and the states after it."""
    for name, value in kept.items():
        engine.states[name].value = value
    results = engine.run(feeds)
    return results, {name: engine.states[name].value for name in kept}


def stored(past: Array, growth: Growth | None, held: Any = np.float16) -> Array:
    """A state's value: the past itself or, for a state that grows, at the front of its whole length.

    Raises:
        UsageError: if it is longer than that.
    """
    past = past.astype(held)
    if growth is None:
        return past
    if past.shape[growth.axis] > growth.length:
        raise UsageError(f"a past of {past.shape[growth.axis]} does not fit the state, which holds {growth.length}")
    whole: Array = np.zeros([growth.length if a == growth.axis else n for a, n in enumerate(past.shape)], held)
    whole[tuple(map(slice, past.shape))] = past
    return whole


def filled(
    states: Sequence[Port], feeds: Mapping[str, Any], growths: Mapping[str, Growth], positions: Mapping[str, str]
) -> dict[str, Array]:
    """How much of the growing states is filled, by the inputs that say so.

    Raises:
        UsageError: if states of one name of a size are not equally full.
    """
    found: dict[str, Array] = {}
    for port in states:
        growth = growths.get(port.hub)
        if growth is not None:
            name, place = positions[growth.label], np.array([np.shape(feeds[port.hub])[growth.axis]], np.int32)
            if not np.array_equal(found.setdefault(name, place), place):
                raise UsageError(f"{port.hub} has {place[0]} elements, another past {found[name][0]}: both are {growth.label}")
    return found


def _given(array: Array, port: Port) -> Array:
    """An output as the hub has it."""
    array = array.reshape(()) if not port.shape and array.size == 1 else array
    return array.astype(ir.DataType[port.dtype].numpy(), copy=False)
