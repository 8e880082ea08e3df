"""Converts an exported program to a hub model: inputs, weights by reference, operators, named outputs."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import ConversionError, Problem, SourceLocation, UsageError
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.capture import io_names
from onnxbridge.frontends.pytorch.capture.export import Captured
from onnxbridge.frontends.pytorch.fx import complex_pairs, graph_reader
from onnxbridge.frontends.pytorch.fx.target import PytorchTarget, Shapes
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import provenance, source_locations, states
from onnxbridge.hub.ir.values import undetermined
from onnxbridge.lowering import lower, resolve


class Weights(dict[Hashable, Any]):
    """The values of the lowering. Parameters, buffers and constants are added to the hub model when a call first uses them.

    The hub model shares PyTorch's memory; a tensor under two names becomes one value.
    """

    def __init__(self, program: Any, op: Builder) -> None:
        super().__init__()
        self._op = op
        self._shared: dict[tuple[Any, ...], Any] = {}
        self._tensors: dict[Any, tuple[str, Any]] = {}
        self._saved = frozenset(program.state_dict)
        self._parameters = frozenset(name for name, _ in program.named_parameters())
        named = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.target is not None}
        for node in program.graph.nodes:
            if node.op == "placeholder" and node.name in named:
                name = named[node.name]
                tensors = program.state_dict if name in program.state_dict else program.constants
                self._tensors[node] = name, tensors[name]

    def __missing__(self, key: Any) -> Any:
        if key in self._tensors:
            name, tensor = self._tensors[key]
        elif getattr(key, "op", "") == "get_attr":
            name, tensor = key.target, _get(key.graph.owning_module, key.target)
        elif isinstance(key, tuple) and isinstance(key[0], tuple):  # an element of a list that is one of several results
            return self[key[0]][key[1]]
        else:
            raise KeyError(key)
        value = self[key] = self._constant(name, tensor)
        return value

    def _constant(self, name: str, tensor: Any) -> Any:
        memory = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else (name,)
        if memory not in self._shared:
            array = dtypes.array(tensor)
            dtype = dtypes.to_hub(tensor.dtype)
            value = self._op.constant(ir.Tensor(array, complex_pairs.PART_DTYPE.get(dtype, dtype), name=name), name)
            if value.const_value is not None:
                saved = "buffer" if name in self._saved else "constant"
                provenance.set_state(value.const_value, "parameter" if name in self._parameters else saved)
            if not dtypes.is_contiguous(tensor):
                value.meta["strided"] = True
            self._shared[memory] = complex_pairs.split(self._op, value) if dtype in complex_pairs.PART_DTYPE else value
        return self._shared[memory]


def _get(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def to_hub(captured: Captured) -> ir.Model:
    """Convert the program to a hub model.

    Raises:
        ConversionError: listing every operator that cannot be converted.
    """
    program = captured.program
    names = graph_reader.NodeKeys()
    target = PytorchTarget(Shapes(captured.dims), names)
    op = target.writer
    values = Weights(program, op)
    inputs = []
    state = _state(program)
    user_labels = {name: captured.labels.get(name, name) for name in program.graph_signature.user_inputs if isinstance(name, str)}
    for node in program.graph.nodes:
        label = user_labels.get(node.name) or state.get(node.name)
        if node.op == "placeholder" and label:
            dtype, shape = target.of(node.meta.get("val"))
            if dtype is not None and not isinstance(node.meta["val"], (int, float, bool)):
                if dtype in complex_pairs.PART_DTYPE:
                    inputs.append(op.input(label, complex_pairs.PART_DTYPE[dtype], [*(shape or ()), 2]))
                    values[node] = complex_pairs.split(op, inputs[-1])
                    continue
                values[node] = op.input(label, dtype, shape)
                target.mark(node, values[node])
                inputs.append(values[node])
    inputs.sort(key=lambda v: v.name in state.values())  # states come after the user's inputs
    for value in inputs:
        if value.name in state.values():
            tensors = program.state_dict if value.name in program.state_dict else program.constants
            states.describe(value, dtypes.array(tensors[value.name]))
    labels = io_names.output_names(program.module_call_graph[0].signature.out_spec, [v.name or "" for v in inputs])
    mutated = [states.next_name(name) for name in (*_mutated_inputs(program, user_labels), *state.values())]
    for label in (*labels, *mutated):
        op.reserve(label)
    valid_sizes = captured.valid_sizes()
    with frameworks.torch().no_grad():
        lower(graph_reader.calls_of(program.graph, names), rule, values, target)
    results = _user_results(program, graph_reader.results_of(program.graph, names), user_labels)
    outputs = []
    input_dtypes = {states.next_name(v.name or ""): v.dtype for v in inputs}
    labels += [states.next_name(name) for name in _mutated_inputs(program, user_labels)]
    labels += [
        states.next_name(s.target) for s in program.graph_signature.output_specs if s.kind.name == "BUFFER_MUTATION"
    ]
    for label, result in zip(labels, results, strict=True):
        if label and result is not None and not isinstance(result, str):
            [value] = resolve([result], values)
            value = complex_pairs.join(op, value) if isinstance(value, complex_pairs.Complex) else value
            value = value if isinstance(value, ir.Value) else op.constant(value)
            # PyTorch's norms compute statistics of half tensors in float32
            if label in mutated and value.dtype != input_dtypes[label]:
                value = op.Cast(value, to=input_dtypes[label])
            reason = undetermined(value)
            if reason:
                raise _undetermined_error(label, reason)
            outputs.append(op.output(value, label))
    if not outputs:
        raise UsageError("the model returns no tensor")
    model = op.model(inputs, outputs, "main_graph")
    if valid_sizes:
        model.metadata_props[provenance.SIZES] = valid_sizes
    if captured.training:
        model.metadata_props[provenance.TRAINING] = ", ".join(captured.training)
    model.metadata_props[source_locations.CLASSES] = json.dumps(graph_reader.classes(program.graph.nodes))
    return model


def _undetermined_error(label: str, reason: str) -> ConversionError:
    hint = "return results that do not depend on it"
    return ConversionError("PyTorch to ONNX", [Problem(f"output {label}", reason, hint, (SourceLocation(),))])


def _user_results(program: Any, results: tuple[Any, ...], labels: dict[str, str]) -> list[Any]:
    """The results of forward, then the mutated inputs, then the mutated buffers."""
    specs = program.graph_signature.output_specs
    outputs = [(s.kind.name, r) for s, r in zip(specs, results, strict=True) if not _is_returned_cache(program, s, labels)]
    order = ("USER_OUTPUT", "USER_INPUT_MUTATION", "BUFFER_MUTATION")
    return [r for output_kind in order for kind, r in outputs if kind == output_kind]


def _mutated_inputs(program: Any, labels: dict[str, str]) -> list[str]:
    """The inputs that the program mutates; ONNX models return their new values as outputs."""
    specs = program.graph_signature.output_specs
    written = [s for s in specs if s.kind.name == "USER_INPUT_MUTATION" and not _is_returned_cache(program, s, labels)]
    return [labels.get(s.target, s.target) for s in written]


def _is_returned_cache(program: Any, spec: Any, labels: dict[str, str]) -> bool:
    """Whether an output is the new value of a cache that the program also returns as "present"."""
    if spec.kind.name != "USER_INPUT_MUTATION" or not io_names.present_name(labels.get(spec.target, spec.target)):
        return False
    return spec.arg.name in program.graph_signature.user_outputs


def _state(program: Any) -> dict[str, str]:
    """The mutated buffers by placeholder name. ONNX models are stateless, so these become inputs and outputs.

    Raises:
        UsageError: if an input has the same name as such a buffer.
    """
    written = set(program.graph_signature.buffers_to_mutate.values())
    found = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.target in written}
    duplicates = sorted(set(found.values()) & set(program.graph_signature.user_inputs))
    if duplicates:
        raise UsageError(f"the model mutates its buffer {duplicates[0]!r} and has an input of the same name: rename one of them")
    return found
