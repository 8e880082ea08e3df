"""An exported program as a hub model: inputs, weights by reference, the walk, outputs under their own names."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import ConversionError, Problem, Source, UsageError
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.capture import io_names
from onnxbridge.frontends.pytorch.capture.sources import Captured
from onnxbridge.frontends.pytorch.fx import complex_pairs, graph_reader
from onnxbridge.frontends.pytorch.fx.target import PytorchTarget, Shapes
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.ir import provenance, source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.lowering import lower, resolve


class Weights(dict[Hashable, Any]):
    """The walker's values; parameters, buffers and constants become values of the hub when a call first uses them.

    The hub holds PyTorch's own memory; a tensor that two names share is one value.
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
                held = program.state_dict if name in program.state_dict else program.constants
                self._tensors[node] = name, held[name]

    def __missing__(self, key: Any) -> Any:
        if key in self._tensors:
            name, tensor = self._tensors[key]
        elif getattr(key, "op", "") == "get_attr":
            name, tensor = key.target, _get(key.graph.owning_module, key.target)
        elif isinstance(key, tuple) and isinstance(key[0], tuple):  # an element of a list among several results
            return self[key[0]][key[1]]
        else:
            raise KeyError(key)
        made = self[key] = self._constant(name, tensor)
        return made

    def _constant(self, name: str, tensor: Any) -> Any:
        memory = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else (name,)
        if memory not in self._shared:
            held = dtypes.array(tensor)
            dtype = dtypes.to_hub(tensor.dtype)
            made = self._op.constant(ir.Tensor(held, complex_pairs.PART.get(dtype, dtype), name=name), name)
            if made.const_value is not None:
                saved = "buffer" if name in self._saved else "constant"
                provenance.tell_state(made.const_value, "parameter" if name in self._parameters else saved)
            if not dtypes.in_order(tensor):
                made.meta["strided"] = True
            self._shared[memory] = complex_pairs.split(self._op, made) if dtype in complex_pairs.PART else made
        return self._shared[memory]


def _get(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def to_hub(captured: Captured) -> ir.Model:
    """The program as a hub model.

    Raises:
        ConversionError: with every operator that is in the way.
    """
    program = captured.program
    names = graph_reader.Names()
    target = PytorchTarget(Shapes(captured.dims), names)
    op = target.writer
    values = Weights(program, op)
    inputs = []
    state = _state(program)
    user = {name: captured.labels.get(name, name) for name in program.graph_signature.user_inputs if isinstance(name, str)}
    for node in program.graph.nodes:
        label = user.get(node.name) or state.get(node.name)
        if node.op == "placeholder" and label:
            dtype, shape = target.of(node.meta.get("val"))
            if dtype is not None and not isinstance(node.meta["val"], (int, float, bool)):
                if dtype in complex_pairs.PART:
                    inputs.append(op.input(label, complex_pairs.PART[dtype], [*(shape or ()), 2]))
                    values[node] = complex_pairs.split(op, inputs[-1])
                    continue
                values[node] = op.input(label, dtype, shape)
                target.mark(node, values[node])
                inputs.append(values[node])
    inputs.sort(key=lambda v: v.name in state.values())  # the state behind what the user gives
    labels = io_names.outputs(program.module_call_graph[0].signature.out_spec, [v.name or "" for v in inputs])
    left = [io_names.after(name) for name in (*_written(program, user), *state.values())]
    for label in (*labels, *left):
        op.reserve(label)
    limits = captured.limits()
    with frameworks.torch().no_grad():
        lower(graph_reader.of(program.graph, names), rule, values, target)
    results = _user_results(program, graph_reader.results_of(program.graph, names), user)
    outputs = []
    held = {io_names.after(v.name or ""): v.dtype for v in inputs}
    labels += [io_names.after(name) for name in _written(program, user)]
    labels += [io_names.after(s.target) for s in program.graph_signature.output_specs if s.kind.name == "BUFFER_MUTATION"]
    for label, result in zip(labels, results, strict=True):
        if label and result is not None and not isinstance(result, str):
            [value] = resolve([result], values)
            value = complex_pairs.joined(op, value) if isinstance(value, complex_pairs.Complex) else value
            value = value if isinstance(value, ir.Value) else op.constant(value)
            if label in left and value.dtype != held[label]:  # PyTorch's own norms compute statistics of halves in float32
                value = op.Cast(value, to=held[label])
            reason = _undetermined(value)
            if reason:
                raise _refused(label, reason)
            outputs.append(op.output(value, label))
    if not outputs:
        raise UsageError("the model returns no tensor")
    model = op.model(inputs, outputs, "main_graph")
    if limits:
        model.metadata_props[provenance.SIZES] = limits
    if captured.training:
        model.metadata_props[provenance.TRAINING] = ", ".join(captured.training)
    model.metadata_props[source_locations.CLASSES] = json.dumps(graph_reader.classes(program.graph.nodes))
    return model


_MOVES = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Gather", "Concat", "Split"})


def _undetermined(value: ir.Value) -> str:
    """Why a result could be another and still be right: a rule has marked it, or what it is only a view of."""
    while "undetermined" not in value.meta:
        node = value.producer()
        if node is None or node.op_type not in _MOVES or node.inputs[0] is None:
            return ""
        value = node.inputs[0]
    return str(value.meta["undetermined"])


def _refused(label: str, reason: str) -> ConversionError:
    hint = "return what does not depend on them"
    return ConversionError("PyTorch to ONNX", [Problem(f"output {label}", reason, hint, (Source(),))])


def _user_results(program: Any, results: tuple[Any, ...], labels: dict[str, str]) -> list[Any]:
    """What the user's forward returns, then what it leaves in its inputs and in its buffers."""
    specs = program.graph_signature.output_specs
    kept = [(s.kind.name, r) for s, r in zip(specs, results, strict=True) if not _again(program, s, labels)]
    order = ("USER_OUTPUT", "USER_INPUT_MUTATION", "BUFFER_MUTATION")
    return [r for wanted in order for kind, r in kept if kind == wanted]


def _written(program: Any, labels: dict[str, str]) -> list[str]:
    """The inputs that the program writes into: a caller of ONNX gets what is left there as outputs."""
    specs = program.graph_signature.output_specs
    written = [s for s in specs if s.kind.name == "USER_INPUT_MUTATION" and not _again(program, s, labels)]
    return [labels.get(s.target, s.target) for s in written]


def _again(program: Any, spec: Any, labels: dict[str, str]) -> bool:
    """Whether an output is what is left in a cache that the program returns too, under the name that caches have there."""
    if spec.kind.name != "USER_INPUT_MUTATION" or not io_names.returned(labels.get(spec.target, spec.target)):
        return False
    return spec.arg.name in program.graph_signature.user_outputs


def _state(program: Any) -> dict[str, str]:
    """The buffers that the program writes, by their placeholders: ONNX models keep no state, so it comes in and goes out.

    Raises:
        UsageError: where an input has the name of such a buffer already.
    """
    written = set(program.graph_signature.buffers_to_mutate.values())
    found = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.target in written}
    twice = sorted(set(found.values()) & set(program.graph_signature.user_inputs))
    if twice:
        raise UsageError(f"the model writes to its buffer {twice[0]!r}, and has an input of that name: rename one of them")
    return found
