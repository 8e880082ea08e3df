"""TorchScript modules: their graphs, run operator by operator, so that torch.export traces them as it traces any module.

What a graph decides while it is traced (types, ranks, numbers) is decided; what depends on data becomes cond and while_loop.
Attributes that the code assigns are state: the tensors among them become buffers, written when the call ends.
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


class Objects:
    """What the modules of one script share: attributes written during a call, stand-ins for tensors inside a subgraph, the names
    of attributes that hold packed weights and of those that code assigns, and the numbers of tensors that stay what they are."""

    def __init__(self) -> None:
        self.written: dict[tuple[Any, str], Any] = {}
        self.instead: dict[int, Any] = {}
        self.read: list[Any] | None = None
        self.inside = 0
        self.packed: frozenset[str] = frozenset()
        self.assigned: frozenset[str] = frozenset()
        self.numbers: dict[int, tuple[Any, Any]] = {}


@functools.cache
def _module_class() -> type[Any]:
    """The class of traced stand-ins, made when PyTorch is first needed."""
    nn = frameworks.torch().nn

    class Scripted(nn.Module):  # type: ignore[misc, name-defined]
        """A script module with ordinary submodules, parameters and buffers; `script` is the original."""

        def __init__(self, script: Any, objects: Objects, known: dict[int, Any]) -> None:
            super().__init__()
            torch = frameworks.torch()
            object.__setattr__(self, "script", script)
            object.__setattr__(self, "objects", objects)
            object.__setattr__(self, "packed", {})
            object.__setattr__(self, "numbers", {})
            outermost = not known
            known[id(script)] = self
            self.training = bool(getattr(script, "training", False))
            for name, parameter in script.named_parameters(recurse=False):
                own = isinstance(parameter, nn.Parameter)
                self.register_parameter(name, parameter if own else nn.Parameter(parameter, requires_grad=False))
            for name, buffer in script.named_buffers(recurse=False):
                self.register_buffer(name, buffer)
                if buffer.numel() == 1 and name not in objects.assigned:
                    self.numbers[name] = buffer.item()
            for name, child in script.named_children():
                found = known.get(id(child))
                self.add_module(name, found if found is not None else Scripted(child, objects, known))
            for name in _assigned(script):
                value = getattr(script, name, None)
                if isinstance(value, torch.Tensor) and name not in self._parameters and name not in self._buffers:
                    self.register_buffer(name, value)
            for name in sorted(objects.packed):
                if script._c.hasattr(name):
                    self.packed[name] = quantized_tensors.unpacked(self, name, script._c.getattr(name))
            self.forward = _entry(self) if outermost else functools.partial(call, self, "forward")

    return Scripted


def is_script(source: Any) -> bool:
    return isinstance(source, frameworks.torch().jit.ScriptModule)


def is_scripted(module: Any) -> bool:
    return isinstance(module, _module_class())


def traceable(script: Any) -> Any:
    """A script module as one that torch.export can trace."""
    asked = inference_mode.scripts_in_training(script)
    script, recorded = inference_mode.script_for_inference(script)
    objects = Objects()
    graphs = [m._c._get_method(name).graph for m in script.modules() for name in m._c._method_names()]
    nodes = [node for graph in graphs for node in every_node(graph)]
    objects.packed = frozenset(quantized_tensors.packed_attributes(nodes))
    objects.assigned = frozenset(node.s("name") for node in nodes if node.kind() == "prim::SetAttr")
    made = _module_class()(script, objects, {})
    made.recorded_training = (*asked, *recorded)
    return made


def recorded(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A module with packed weights as one that torch.export can trace: scripted, or recorded where its code is no TorchScript.

    Code that asks whether it is scripted may give other results then: such a module is recorded too.

    Raises:
        UsageError: where it is neither.
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
    return traceable(script)


def _assigned(script: Any) -> list[str]:
    """The attributes of this module that any of its own methods assigns."""
    found: dict[str, None] = {}
    for method in script._c._method_names():
        graph = script._c._get_method(method).graph
        own = next(iter(graph.inputs())).debugName()
        for node in every_node(graph):
            if node.kind() == "prim::SetAttr" and node.inputsAt(0).debugName() == own:
                found[node.s("name")] = None
    return list(found)


def keeps_state(module: Any) -> bool:
    """Whether a call of the script leaves something behind for the next."""
    return any(_assigned(m.script) for m in module.modules())


def settled(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A stand-in for the script as its first call leaves it, with state of lasting shapes; the script stays as it was."""
    torch = frameworks.torch()
    copied = copy.deepcopy(module.script)
    with torch.no_grad():
        copied(*args, **kwargs)
    return traceable(copied)


def called(module: Any, args: Any, kwargs: Any, state: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the script itself returns, and what it leaves behind where it keeps state; the script stays as it was."""
    if not state:
        return module.script(*args, **kwargs), {}
    copied = copy.deepcopy(module.script)
    copied(*args, **kwargs)  # what is no tensor settles in the first call
    for name, value in state.items():
        holder, last = _holder(copied, name)
        holder._c.setattr(last, value)
    result = copied(*args, **kwargs)
    return result, {name: _holder(copied, name)[0]._c.getattr(_holder(copied, name)[1]) for name in state}


def _holder(script: Any, path: str) -> tuple[Any, str]:
    *parts, last = path.split(".")
    return functools.reduce(getattr, parts, script), last


def _entry(module: Any) -> Callable[..., Any]:
    """The forward of the outermost module, with the parameters that its schema names."""
    if not module.script._c._has_method("forward"):
        own = ", ".join(module.script._c._method_names())
        raise UsageError(f"the script has no method 'forward' (it has {own}); save a module whose forward calls what you need")
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
            python_values.as_declared(value, a.type) for value, a in zip(bound.args, schema.arguments[1:], strict=True)
        ]
        objects = module.objects
        objects.written.clear()
        result = call(module, "forward", *given)
        for (holder, name), value in list(objects.written.items()):
            _keep(holder, name, value)
        objects.written.clear()
        return result

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _keep(holder: Any, name: str, value: Any) -> None:
    """Write an assigned attribute back when the call ends."""
    torch = frameworks.torch()
    buffer = holder._buffers.get(name)
    if isinstance(value, torch.Tensor) and buffer is not None and buffer.shape == value.shape and buffer.dtype == value.dtype:
        if buffer is not value:
            buffer.copy_(value)
        return
    before = buffer if buffer is not None else getattr(holder.script, name, None)
    if isinstance(value, torch.Tensor) or isinstance(before, torch.Tensor):
        shapes = " to ".join(str(list(t.shape)) if isinstance(t, torch.Tensor) else str(t) for t in (before, value))
        raise NotTraceable(f"the script's state {name!r} changes its shape from call to call ({shapes})")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or value != before:
        raise NotTraceable(f"the script keeps {name!r}, which is no tensor, from call to call ({before} becomes {value})")


def call(module: Any, method: str, *args: Any) -> Any:
    """Run a method of the script on traced values."""
    graph = _graph(module.script, method)
    names = [v.debugName() for v in graph.inputs()]
    values = dict(zip(names, (module, *args), strict=True))
    control_flow.run(graph, values, _Attributes(module.objects))
    results = [values[v.debugName()] for v in graph.outputs()]
    return results[0] if len(results) == 1 else tuple(results)


def _graph(script: Any, method: str) -> Any:
    """The method's graph; inlined only where it calls plain functions or makes objects, so that submodules keep their names."""
    found = script._c._get_method(method)
    kinds = {node.kind() for node in every_node(found.graph)}
    if not kinds & {"prim::CallFunction", "prim::CreateObject"}:
        return found.graph
    return found.inlined_graph


class _Attributes:
    """Reads and writes attributes of modules and objects for the interpreter, and calls methods."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def get(self, holder: Any, name: str) -> Any:
        torch = frameworks.torch()
        if isinstance(holder, python_values.Instance):
            return holder.fields[name]
        if (holder, name) in self.objects.written:
            return self._met(self.objects.written[holder, name])
        for table in (holder._parameters, holder._buffers, holder._modules):
            if name in table:
                met = self._met(table[name])
                if name in holder.numbers:
                    self.objects.numbers[id(met)] = met, holder.numbers[name]
                return met
        if holder.packed.get(name) is not None:
            return holder.packed[name]
        value = holder.script._c.getattr(name)
        if isinstance(value, torch.Tensor):
            holder.register_buffer(name, value, persistent=False)
            return self._met(value)
        return value

    def _met(self, value: Any) -> Any:
        if isinstance(value, frameworks.torch().Tensor):
            if self.objects.read is not None:
                self.objects.read.append(value)
            return self.objects.instead.get(id(value), value)
        return value

    def number(self, x: Any) -> Any:
        """The number in a buffer of one element that no code assigns; None for any other tensor."""
        tensor, found = self.objects.numbers.get(id(x), (None, None))
        return found if tensor is x else None

    def set(self, holder: Any, name: str, value: Any) -> None:
        if self.objects.inside:
            raise NotTraceable(f"{name!r} is assigned inside a branch or loop that depends on data")
        if isinstance(holder, python_values.Instance):
            holder.fields[name] = value
        else:
            self.objects.written[holder, name] = value

    def run(self, block: Any, values: dict[str, Any]) -> None:
        """Run every node of a block, adding the results to `values`."""
        control_flow.run(block, values, self)

    def call(self, holder: Any, method: str, args: tuple[Any, ...]) -> Any:
        if not is_scripted(holder):
            raise NotTraceable(f"calls the method {method!r} of a {type(holder).__name__}")
        return holder(*args) if method == "forward" else call(holder, method, *args)


def load(path: Any) -> Any:
    """A TorchScript archive, as a module that torch.export can trace.

    Raises:
        UsageError: for an archive that PyTorch cannot read.
        UnsafeFileError: for code that would reach out of the model.
    """
    from onnxbridge.frontends.pytorch.torchscript import archive_checks

    torch = frameworks.torch()
    with archive_checks.checked(path) as copied:
        try:
            found = torch.jit.load(copied, map_location="cpu")
        except Exception as error:  # PyTorch's parser raises any kind
            text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise UsageError(f"{path}: PyTorch {torch.__version__} cannot read this TorchScript archive: {text}") from error
    return traceable(found)
