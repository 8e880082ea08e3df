"""The Core ML frontend: converts `.mlpackage`, `.mlmodel`, `MLModel`s and MIL programs to the hub. No Mac is needed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.frontends.coreml.names import Names
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.rules import Rules

KINDS = frozenset({"mlpackage", "mlmodel"})
_FLOAT16 = "_cast_fp16"
"""What coremltools appends to the name of a value that it computes in float16."""


class CoreML(Frontend):
    """The frontend. A source is the path of an `.mlpackage` or `.mlmodel`, an `MLModel`, its specification, or a MIL program;
    (source, function) selects one of the model's functions."""

    name = "coreml"
    title = "Core ML"
    package = "coremltools"
    has_empty_arrays = False
    aliases = ("mlprogram", "mlpackage")

    @property
    def rules(self) -> Rules:
        return rule

    def accepts(self, source: Any) -> bool:
        source, _ = _split(source)
        if isinstance(source, (str, os.PathLike)):
            return os.path.exists(source) and detect_format(source) in KINDS
        return type(source).__module__.split(".")[0] == "coremltools" or type(source).__module__ == "Model_pb2"

    def isolates(self, source: Any) -> bool:
        return isinstance(_split(source)[0], (str, os.PathLike))

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        """Convert the source to a hub model. `dynamic` names the dynamic sizes of the model: {input: {axis: name}}.

        Raises:
            ConversionError: with every unsupported operator.
            UsageError: for sizes that the model does not support.
            UnsafeFileError: for a damaged file.
        """
        from onnxbridge.formats.coreml.reader import metadata, read
        from onnxbridge.frontends.coreml import graph_reader
        from onnxbridge.frontends.coreml.names import names, portable_metadata

        source, function = _split(source)
        program, input_features, output_features = read(source, function)
        source_metadata = metadata(source)
        hub_names = names(source_metadata, input_features, output_features, list(program.states))
        declared = {hub_names.inputs[s.name]: s.type.shape for s in program.block.inputs if s.type is not None}
        model = graph_reader.hub_model(
            program, input_features, output_features, _shapes(declared, inputs, dynamic, hub_names), hub_names
        )
        model.metadata_props.update(portable_metadata(source_metadata))
        return model

    def origin(self, source: Any) -> dict[str, str]:
        from onnxbridge.formats.coreml.reader import metadata
        from onnxbridge.frontends.coreml.names import INTERFACE

        return {key: value for key, value in metadata(_split(source)[0]).items() if key != INTERFACE}

    def runs_here(self) -> bool:
        return importlib.util.find_spec("coremltools") is not None

    def runner(self, source: Any, device: str = "auto") -> Run:
        """Run the source with the MIL interpreter. A state is an input, and its updated value an output."""
        return self._interpreted(source, None)

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        def shown(name: str, value: Any) -> None:
            see(name, np.asarray(value))
            if name.endswith(_FLOAT16):
                see(name.removesuffix(_FLOAT16), np.asarray(value))

        self._interpreted(source, shown)(feeds)
        return True

    def _interpreted(self, source: Any, see: Callable[[str, Any], None] | None) -> Run:
        from onnxbridge.formats.coreml.reader import metadata
        from onnxbridge.frontends.coreml.names import names
        from onnxbridge.runtime.mil import Interpreter

        source, function = _split(source)
        interpreter = Interpreter(source, function=function)
        hub_names = names(metadata(source), interpreter.inputs, interpreter.outputs, list(interpreter.states))
        source_names = {hub: source_name for source_name, hub in hub_names.inputs.items()}

        def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
            rest = dict(feeds)
            for name, state in interpreter.states.items():
                state.value = np.asarray(rest.pop(hub_names.states[name][0]))
            results = interpreter.run({source_names.get(name, name): value for name, value in rest.items()}, see)
            is_classifier = interpreter.classes is not None  # its label, a string, is not an output of the hub model
            found = {hub_names.outputs[k]: _tensor(v) for k, v in results.items() if not (is_classifier and isinstance(v, str))}
            return found | {hub_names.states[name][1]: state.value for name, state in interpreter.states.items()}

        return run


def _tensor(value: Any) -> np.ndarray[Any, Any]:
    """An output as an array: for a classifier's dictionary the probabilities, in the order of the classes."""
    if isinstance(value, Mapping):
        return np.asarray(list(value.values()), np.float32)
    return np.asarray(value, dtype=object if isinstance(value, str) else None)


def _split(source: Any) -> tuple[Any, str]:
    """Split a source and the name of the selected function, which may be ""."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str) and not os.path.exists(source[1]):
        return source
    return source, ""


def _shapes(declared: Mapping[str, Any], inputs: Any, dynamic: Any, names: Names) -> dict[str, tuple[int | str | None, ...]]:
    """The shapes of the inputs that the user specified.

    Raises:
        UsageError: if the model has no such input, or a different shape.
    """
    specs = inputs if isinstance(inputs, Mapping) else dict(zip(declared, inputs or (), strict=False))
    dynamic_names = dynamic if isinstance(dynamic, Mapping) else {}
    unknown = sorted((set(specs) | set(dynamic_names)) - set(declared))
    if unknown:
        raise UsageError(f"the model has no input {', '.join(unknown)}, only {', '.join(declared)}")
    found = {}
    for name in {**specs, **dynamic_names}:
        declared_shape = declared[name]
        item = specs.get(name)
        requested = declared_shape if item is None else item[0] if isinstance(item, tuple) else np.shape(item)
        if declared_shape is None or requested is None:
            continue
        if len(requested) != len(declared_shape) or any(
            isinstance(w, int) and n not in (None, w) for w, n in zip(requested, declared_shape, strict=True)
        ):
            raise UsageError(f"the input {name} has shape {declared_shape}, not {tuple(requested)}")
        labels = dynamic_names.get(name, {})
        # dynamic sizes stay dynamic: the size of an example is only one of many
        dim_names = [w if isinstance(w, str) else names.dim_name(name, a, len(declared_shape)) for a, w in enumerate(requested)]
        found[name] = tuple(
            labels.get(a, dim_names[a] if not isinstance(item, tuple) or not isinstance(requested[a], int) else requested[a])
            if n is None else n for a, n in enumerate(declared_shape)
        )  # fmt: skip
    return found


frontend = CoreML()

__all__ = ["CoreML", "frontend"]
