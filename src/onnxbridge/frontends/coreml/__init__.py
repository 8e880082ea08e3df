"""Core ML to the hub: `.mlpackage` and `.mlmodel`, `MLModel`s and MIL programs in memory. No Mac is needed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.frontends.coreml.names import Names
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.io.detect_format import recognise
from onnxbridge.plugins import Arrays, Run
from onnxbridge.rules import Rules

KINDS = frozenset({"mlpackage", "mlmodel"})


class CoreML:
    """The frontend. A source is the path of an `.mlpackage` or `.mlmodel`, an `MLModel`, its specification, or a MIL program;
    (source, function) chooses one of a model's functions."""

    name = "coreml"
    title = "Core ML"
    package = "coremltools"

    @property
    def rules(self) -> Rules:
        return rule

    def accepts(self, source: Any) -> bool:
        source, _ = _split(source)
        if isinstance(source, (str, os.PathLike)):
            return os.path.exists(source) and recognise(source) in KINDS
        return type(source).__module__.split(".")[0] == "coremltools" or type(source).__module__ == "Model_pb2"

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        """The source as a hub model. `dynamic` names the sizes that the model leaves open: {input: {axis: name}}.

        Raises:
            ConversionError: with every operator that is in the way.
            UsageError: for sizes that the model does not take.
            UnsafeFileError: for a damaged file.
        """
        from onnxbridge.formats.coreml.reader import metadata, read
        from onnxbridge.frontends.coreml import graph_reader
        from onnxbridge.frontends.coreml.names import names, told

        source, function = _split(source)
        program, takes, gives = read(source, function)
        said = metadata(source)
        named = names(said, takes, gives, list(program.states))
        declared = {named.inputs[s.name]: s.type.shape for s in program.block.inputs if s.type is not None}
        model = graph_reader.hub_model(program, takes, gives, _shapes(declared, inputs, dynamic, named), named)
        model.metadata_props.update(told(said))
        return model

    def runs_here(self) -> bool:
        return importlib.util.find_spec("coremltools") is not None

    def runner(self, source: Any, device: str = "auto") -> Run:
        """The interpreter of MIL. A state is an input, and its last value an output."""
        from onnxbridge.formats.coreml.reader import metadata
        from onnxbridge.frontends.coreml.names import names
        from onnxbridge.runtime.mil import Interpreter

        source, function = _split(source)
        interpreter = Interpreter(source, function=function)
        named = names(metadata(source), interpreter.inputs, interpreter.outputs, list(interpreter.states))
        takes = {hub: own for own, hub in named.inputs.items()}

        def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
            rest = dict(feeds)
            for name, state in interpreter.states.items():
                state.value = np.asarray(rest.pop(named.states[name][0]))
            results = interpreter.run({takes.get(name, name): value for name, value in rest.items()})
            labelled = interpreter.classes is not None  # its label, a text, is not in the hub
            found = {named.outputs[k]: _tensor(v) for k, v in results.items() if not (labelled and isinstance(v, str))}
            return found | {named.states[name][1]: state.value for name, state in interpreter.states.items()}

        return run


def _tensor(value: Any) -> np.ndarray[Any, Any]:
    """An output as the hub has it: of a classifier's dictionary the probabilities, in the order of the classes."""
    if isinstance(value, Mapping):
        return np.asarray(list(value.values()), np.float32)
    return np.asarray(value, dtype=object if isinstance(value, str) else None)


def _split(source: Any) -> tuple[Any, str]:
    """A source and the function that is chosen with it."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str) and not os.path.exists(source[1]):
        return source
    return source, ""


def _shapes(declared: Mapping[str, Any], inputs: Any, dynamic: Any, names: Names) -> dict[str, tuple[int | str | None, ...]]:
    """The shapes of the inputs that the user says something of.

    Raises:
        UsageError: if the model has no such input, or takes another shape.
    """
    given = inputs if isinstance(inputs, Mapping) else dict(zip(declared, inputs or (), strict=False))
    named = dynamic if isinstance(dynamic, Mapping) else {}
    unknown = sorted((set(given) | set(named)) - set(declared))
    if unknown:
        raise UsageError(f"the model has no input {', '.join(unknown)}; it takes {', '.join(declared)}")
    found = {}
    for name in {**given, **named}:
        own = declared[name]
        item = given.get(name)
        wanted = own if item is None else item[0] if isinstance(item, tuple) else np.shape(item)
        if own is None or wanted is None:
            continue
        if len(wanted) != len(own) or any(isinstance(w, int) and n not in (None, w) for w, n in zip(wanted, own, strict=True)):
            raise UsageError(f"the input {name} has shape {own}, not {tuple(wanted)}")
        labels = named.get(name, {})
        # what the model leaves open stays open: an example's size is one of many
        open_sizes = [w if isinstance(w, str) else names.open_size(name, a, len(own)) for a, w in enumerate(wanted)]
        found[name] = tuple(
            labels.get(a, open_sizes[a] if not isinstance(item, tuple) or not isinstance(wanted[a], int) else wanted[a])
            if n is None else n for a, n in enumerate(own)
        )  # fmt: skip
    return found


frontend = CoreML()

__all__ = ["CoreML", "frontend"]
