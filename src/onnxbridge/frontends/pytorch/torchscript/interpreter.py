"""Interprets the graphs of TorchScript modules operator by operator, so that torch.export can trace them like any module.

Static decisions (types, ranks, numbers) are evaluated during tracing; data-dependent ones become cond and while_loop. Attributes
that the code assigns are state: tensors among them become buffers, written when the call ends.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch.torchscript import control_flow, inference_mode, python_values, quantized_tensors
from onnxbridge.frontends.pytorch.torchscript.graph_nodes import every_node
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable


class SharedState:
    """State shared by the modules of one script.

    `written` holds attributes assigned during a call, `replacements` the operands that stand for tensors inside a subgraph,
    `packed` and `assigned` the names of attributes with packed weights and of attributes that code assigns, `numbers` the values
    of constant one-element tensors.
    """

    def __init__(self) -> None:
        self.written: dict[tuple[Any, str], Any] = {}
        self.replacements: dict[int, Any] = {}
        self.read: list[Any] | None = None
        self.depth = 0
        self.packed: frozenset[str] = frozenset()
        self.assigned: frozenset[str] = frozenset()
        self.numbers: dict[int, tuple[Any, Any]] = {}


@functools.cache
def _module_class() -> type[Any]:
    """The module class, created when PyTorch is first needed."""
    nn = frameworks.torch().nn

    class Scripted(nn.Module):  # type: ignore[misc, name-defined]
        """A script module with ordinary submodules, parameters and buffers; `script` is the original module."""

        def __init__(self, script: Any, shared: SharedState, wrapped: dict[int, Any]) -> None:
            super().__init__()
            torch = frameworks.torch()
            object.__setattr__(self, "script", script)
            object.__setattr__(self, "shared", shared)
            object.__setattr__(self, "packed", {})
            object.__setattr__(self, "numbers", {})
            outermost = not wrapped
            wrapped[id(script)] = self
            self.training = bool(getattr(script, "training", False))
            for name, parameter in script.named_parameters(recurse=False):
                own = isinstance(parameter, nn.Parameter)
                self.register_parameter(name, parameter if own else nn.Parameter(parameter, requires_grad=False))
            for name, buffer in script.named_buffers(recurse=False):
                self.register_buffer(name, buffer)
                if buffer.numel() == 1 and name not in shared.assigned:
                    self.numbers[name] = buffer.item()
            for name, child in script.named_children():
                found = wrapped.get(id(child))
                self.add_module(name, found if found is not None else Scripted(child, shared, wrapped))
            for name in _assigned(script):
                value = getattr(script, name, None)
                if isinstance(value, torch.Tensor) and name not in self._parameters and name not in self._buffers:
                    self.register_buffer(name, value)
            for name in sorted(shared.packed):
                if script._c.hasattr(name):
                    self.packed[name] = quantized_tensors.unpack(self, name, script._c.getattr(name))
            self.forward = _forward_function(self) if outermost else functools.partial(call, self, "forward")

    return Scripted


def is_script(source: Any) -> bool:
    return isinstance(source, frameworks.torch().jit.ScriptModule)


def is_scripted(module: Any) -> bool:
    return isinstance(module, _module_class())


def make_traceable(script: Any) -> Any:
    """Wrap a script module in a module that torch.export can trace."""
    in_training = inference_mode.scripts_in_training(script)
    script, traced_operators = inference_mode.script_for_inference(script)
    shared = SharedState()
    graphs = [m._c._get_method(name).graph for m in script.modules() for name in m._c._method_names()]
    nodes = [node for graph in graphs for node in every_node(graph)]
    shared.packed = frozenset(quantized_tensors.packed_attributes(nodes))
    shared.assigned = frozenset(node.s("name") for node in nodes if node.kind() == "prim::SetAttr")
    module = _module_class()(script, shared, {})
    module.training_names = (*in_training, *traced_operators)
    return module


def script_or_trace(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Wrap a module with packed weights in a traceable one: scripted, or traced by torch.jit where it is not valid TorchScript.

    Code that checks torch.jit.is_scripting may return other results when scripted: such a module is traced by torch.jit, too.

        Raises:
            UsageError: if torch.jit can neither script nor trace it.
    """
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    with torch.no_grad():
        script = None
        with contextlib.suppress(Exception):
            found = torch.jit.script(module)
            if pytree.tree_structure(found(*args, **kwargs)) == pytree.tree_structure(module(*args, **kwargs)):
                script = found
        if script is None:
            try:
                script = torch.jit.trace(module, args, example_kwarg_inputs=dict(kwargs) or None, strict=False, check_trace=False)
            except Exception as error:
                text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
                raise UsageError(f"torch.jit can neither script nor trace {type(module).__name__}: {text}") from error
    return make_traceable(script)


def _assigned(script: Any) -> list[str]:
    """The attributes of this module that its own methods assign."""
    found: dict[str, None] = {}
    for method in script._c._method_names():
        graph = script._c._get_method(method).graph
        own = next(iter(graph.inputs())).debugName()
        for node in every_node(graph):
            if node.kind() == "prim::SetAttr" and node.inputsAt(0).debugName() == own:
                found[node.s("name")] = None
    return list(found)


def has_state(module: Any) -> bool:
    """Whether calling the script changes its state."""
    return any(_assigned(m.script) for m in module.modules())


def after_first_call(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Wrap the script with the state after its first call, when shapes are final; the script itself is not modified."""
    torch = frameworks.torch()
    copied = copy.deepcopy(module.script)
    with torch.no_grad():
        copied(*args, **kwargs)
    return make_traceable(copied)


def run_script(module: Any, args: Any, kwargs: Any, state: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The results of the original script, and its new state if there is any; the script itself is not modified."""
    if not state:
        return module.script(*args, **kwargs), {}
    copied = copy.deepcopy(module.script)
    copied(*args, **kwargs)  # attributes that are not tensors get their final values in the first call
    for name, value in state.items():
        owner, last = _owner(copied, name)
        owner._c.setattr(last, value)
    result = copied(*args, **kwargs)
    return result, {name: _owner(copied, name)[0]._c.getattr(_owner(copied, name)[1]) for name in state}


def _owner(script: Any, path: str) -> tuple[Any, str]:
    *parts, last = path.split(".")
    return functools.reduce(getattr, parts, script), last


def _forward_function(module: Any) -> Callable[..., Any]:
    """The forward of the root module, with the parameters of its schema."""
    if not module.script._c._has_method("forward"):
        own = ", ".join(module.script._c._method_names())
        raise UsageError(
            f"the script has no method 'forward' (it has {own}); save a module whose forward calls the method that you need"
        )
    schema = module.script._c._get_method("forward").schema
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            a.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=a.default_value if a.has_default_value() else empty
        )
        for a in schema.arguments[1:]
    ]
    signature = inspect.Signature(parameters)

    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = [
            python_values.convert_to_declared(value, a.type) for value, a in zip(bound.args, schema.arguments[1:], strict=True)
        ]
        shared = module.shared
        shared.written.clear()
        shared.numbers.clear()
        result = call(module, "forward", *given)
        for (owner, name), value in list(shared.written.items()):
            _write_back(owner, name, value)
        shared.written.clear()
        return result

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _write_back(owner: Any, name: str, value: Any) -> None:
    """Write an assigned attribute to its buffer when the call ends."""
    torch = frameworks.torch()
    buffer = owner._buffers.get(name)
    if isinstance(value, torch.Tensor) and buffer is not None and buffer.shape == value.shape and buffer.dtype == value.dtype:
        if buffer is not value:
            buffer.copy_(value)
        return
    before = buffer if buffer is not None else getattr(owner.script, name, None)
    if isinstance(value, torch.Tensor) or isinstance(before, torch.Tensor):
        shapes = " to ".join(str(list(t.shape)) if isinstance(t, torch.Tensor) else str(t) for t in (before, value))
        raise NotTraceable(f"the script's state {name!r} changes its shape between calls ({shapes})")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or value != before:
        raise NotTraceable(f"the script's state {name!r} is not a tensor, and changes between calls ({before} becomes {value})")


def call(module: Any, method: str, *args: Any) -> Any:
    """Run a method of the script on traced values."""
    graph = _graph(module.script, method)
    names = [v.debugName() for v in graph.inputs()]
    values = dict(zip(names, (module, *args), strict=True))
    control_flow.run(graph, values, _Attributes(module.shared))
    results = [values[v.debugName()] for v in graph.outputs()]
    return results[0] if len(results) == 1 else tuple(results)


def _graph(script: Any, method: str) -> Any:
    """The method's graph; inlined only if it calls plain functions or creates objects, so that submodules keep their names."""
    found = script._c._get_method(method)
    kinds = {node.kind() for node in every_node(found.graph)}
    if not kinds & {"prim::CallFunction", "prim::CreateObject"}:
        return found.graph
    return found.inlined_graph


class _Attributes:
    """Reads and writes attributes of modules and objects, and calls methods, for the interpreter."""

    def __init__(self, shared: SharedState) -> None:
        self.shared = shared

    def get(self, owner: Any, name: str) -> Any:
        torch = frameworks.torch()
        if isinstance(owner, python_values.Instance):
            return owner.fields[name]
        if (owner, name) in self.shared.written:
            return self._read(self.shared.written[owner, name])
        for table in (owner._parameters, owner._buffers, owner._modules):
            if name in table:
                tensor = self._read(table[name])
                if name in owner.numbers:
                    self.shared.numbers[id(tensor)] = tensor, owner.numbers[name]
                return tensor
        if owner.packed.get(name) is not None:
            return owner.packed[name]
        value = owner.script._c.getattr(name)
        if isinstance(value, torch.Tensor):
            owner.register_buffer(name, value, persistent=False)
            return self._read(value)
        return value

    def _read(self, value: Any) -> Any:
        if isinstance(value, frameworks.torch().Tensor):
            if self.shared.read is not None:
                self.shared.read.append(value)
            return self.shared.replacements.get(id(value), value)
        return value

    def number(self, x: Any) -> Any:
        """The value of a one-element buffer that no code assigns, or of a tensor made of numbers; None for any other tensor."""
        tensor, found = self.shared.numbers.get(id(x), (None, None))
        return found if tensor is x else None

    def set_number(self, x: Any, number: Any) -> None:
        self.shared.numbers[id(x)] = x, number

    def set(self, owner: Any, name: str, value: Any) -> None:
        if self.shared.depth:
            raise NotTraceable(f"{name!r} is assigned inside a data-dependent branch or loop")
        if isinstance(owner, python_values.Instance):
            owner.fields[name] = value
        else:
            self.shared.written[owner, name] = value

    def run(self, block: Any, values: dict[str, Any]) -> None:
        """Run every node of a block, and add the results to `values`."""
        control_flow.run(block, values, self)

    def call(self, owner: Any, method: str, args: tuple[Any, ...]) -> Any:
        if not is_scripted(owner):
            raise NotTraceable(f"calls the method {method!r} of a {type(owner).__name__}")
        return owner(*args) if method == "forward" else call(owner, method, *args)


def load(path: Any) -> Any:
    """Load a TorchScript archive as a module that torch.export can trace.

    Raises:
        UsageError: for an archive that PyTorch cannot read.
        UnsafeFileError: for code with effects outside the model.
    """
    from onnxbridge.frontends.pytorch.torchscript.validation import archive_checks

    torch = frameworks.torch()
    with archive_checks.validated_copy(path) as copied:
        try:
            found = torch.jit.load(copied, map_location="cpu")
        except Exception as error:  # PyTorch's parser raises any kind
            text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise UsageError(f"{path}: PyTorch {torch.__version__} cannot read this TorchScript archive: {text}") from error
    return make_traceable(found)
