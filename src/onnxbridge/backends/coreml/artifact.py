"""What the backend makes: Core ML's model, and what ties it to the hub model it was made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

Array = np.ndarray[Any, Any]

INTERFACE, NOTES = "onnxbridge.interface", "onnxbridge.notes"
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


@dataclass
class CoreMLModel:
    """A Core ML model with the hub's names.

    Attributes:
        model: coremltools' MLModel, as `ct.convert` gives it.
        inputs, outputs: the hub's names, types and shapes, and Core ML's names, in order.
        notes: what is not as in the hub model: types that Core ML has not, bounds that were chosen, names that were rewritten.
        unit_roundoff: of the arithmetic, where it is not the hub's own.
    """

    model: Any
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    notes: tuple[str, ...] = ()
    unit_roundoff: float | None = None
    _engine: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def make(
        cls, model: Any, inputs: Sequence[Port], outputs: Sequence[Port], notes: Sequence[str], hub: ir.Model, *, half: bool
    ) -> CoreMLModel:
        """The artifact, with everything that a later reader needs written into the model's own metadata."""
        made = cls(model, tuple(inputs), tuple(outputs), tuple(notes), 2.0**-11 if half else None)
        described = {"short_description": hub.doc_string or hub.graph.doc_string or ""}
        for key, value in hub.metadata_props.items():
            if key.lower() in FIELDS:
                described[FIELDS[key.lower()]] = value
            else:
                model.user_defined_metadata[key] = value
        for name, text in described.items():
            if text:
                setattr(model, name, text)
        model.user_defined_metadata.pop(DATE, None)  # the same model is to give the same bytes tomorrow
        interface = {"inputs": [asdict(p) for p in inputs], "outputs": [asdict(p) for p in outputs], "half": half}
        model.user_defined_metadata[INTERFACE] = json.dumps(interface)
        if notes:
            model.user_defined_metadata[NOTES] = json.dumps(list(notes))
        return made

    @classmethod
    def of(cls, model: Any) -> CoreMLModel:
        """The artifact around an MLModel that this backend once made."""
        notes = model.user_defined_metadata.get(NOTES)
        if INTERFACE not in model.user_defined_metadata:
            raise UsageError("this Core ML model was not made by onnxbridge: the names of its source are not in it")
        held = json.loads(model.user_defined_metadata[INTERFACE])
        inputs, outputs = (tuple(Port(**{**p, "shape": tuple(p["shape"])}) for p in held[side]) for side in ("inputs", "outputs"))
        return cls(model, inputs, outputs, tuple(json.loads(notes)) if notes else (), 2.0**-11 if held["half"] else None)

    @cached_property
    def names(self) -> dict[str, str]:
        """Core ML's names by the hub's, of the inputs and outputs."""
        return {p.hub: p.coreml for p in (*self.inputs, *self.outputs)}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """The model on the given inputs: by Core ML itself on a Mac, by our interpreter elsewhere."""
        missing = [p.hub for p in self.inputs if p.hub not in feeds]
        if missing:
            raise UsageError(f"the input {', '.join(missing)} is missing")
        results = self._predict({p.coreml: fed(np.asarray(feeds[p.hub]), p) for p in self.inputs})
        return {p.hub: _given(np.asarray(results[p.coreml]), p) for p in self.outputs}

    def _predict(self, feeds: dict[str, Array]) -> Mapping[str, Any]:
        if sys.platform == "darwin":
            import coremltools as ct

            self._engine = self._engine or ct.models.MLModel(self.model.package_path)
            predicted: Mapping[str, Any] = self._engine.predict(feeds)
            return predicted
        from onnxbridge.runtime.mil import Interpreter

        self._engine = self._engine or Interpreter(self.model)
        run: Mapping[str, Any] = self._engine.run(feeds)
        return run


def fed(array: Array, port: Port) -> Array:
    """An input as Core ML takes it: (1,) for a scalar, int32 for every integer and bool.

    Raises:
        UsageError: if an integer does not fit.
    """
    array = array.reshape(1) if array.ndim == 0 else array
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:
        limits = np.iinfo(np.int32)
        if array.size and (array.max() > limits.max or array.min() < limits.min):
            raise UsageError(f"the input {port.hub} holds an integer outside of int32, the widest of Core ML")
    if array.dtype.kind in "iub":
        return array.astype(np.int32)
    return array if array.dtype == np.float16 else array.astype(np.float32)


def _given(array: Array, port: Port) -> Array:
    """An output as the hub has it."""
    array = array.reshape(()) if not port.shape and array.size == 1 else array
    return array.astype(ir.DataType[port.dtype].numpy(), copy=False)
