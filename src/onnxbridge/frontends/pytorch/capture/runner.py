"""Runs the source in PyTorch."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.capture import export, io_names, pytree_containers, training_mode
from onnxbridge.frontends.pytorch.capture.load import load, quiet
from onnxbridge.frontends.pytorch.torch_patches.attention_fast_path import without_attention_fast_path
from onnxbridge.frontends.pytorch.torchscript import interpreter
from onnxbridge.hub.ir import states
from onnxbridge.plugin_protocols import Arrays, Run


def runner(source: Any) -> Run:
    """A function that runs the source, which is loaded once, in evaluation mode; parameters are not modified.

    As in the hub model, buffers that the model mutates are inputs and outputs, and mutated inputs are outputs too.
    """
    torch = frameworks.torch()
    pytree_containers.register()
    loaded = load(source)
    exported = isinstance(loaded, torch.export.ExportedProgram)
    if exported:
        loaded, _ = training_mode.program_for_inference(loaded)
    module = loaded.module() if exported else loaded
    scripted = not exported and interpreter.is_scripted(module)

    def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        with torch.no_grad(), quiet():
            state = _state_feeds(module, feeds, source)
            tensors = {name: dtypes.tensor(value) for name, value in feeds.items() if name not in state}
            versions = {name: tensor._version for name, tensor in tensors.items()}
            args, kwargs = _program_arguments(loaded, tensors) if exported else _module_arguments(module, tensors, source)
            if scripted:
                with export.eval_mode(module):
                    result, mutated = interpreter.run_script(module, args, kwargs, {n: dtypes.tensor(feeds[n]) for n in state})
            else:
                mode = _eval_mode(module, exported)
                with (
                    _with_buffers(module, {n: feeds[n] for n in state}),
                    mode,
                    without_attention_fast_path(),
                    _without_printed_code(exported),
                ):
                    result = module(*args, **kwargs)
                    mutated = {n: module.get_buffer(n) for n in state}
            written = {n: t for n, t in tensors.items() if t._version != versions[n] or _changed(t, feeds[n])}
            mutated = written | mutated
        found = outputs_of(result, feeds)
        arrays = {n: np.array(dtypes.array(t)) for n, t in mutated.items()}
        returned = {name: found.get(io_names.present_name(name)) for name in arrays}
        duplicates = {n for n, a in arrays.items() if (r := returned[n]) is not None and r.tobytes() == a.tobytes()}
        return found | {states.next_name(n): a for n, a in arrays.items() if n not in duplicates}

    return run


def run_traced(source: Any, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]] | None:
    """Outputs of the program that torch.export traces with these inputs; None for sources that are programs already."""
    torch = frameworks.torch()
    module = load(source)
    if isinstance(module, torch.export.ExportedProgram) or interpreter.is_scripted(module) or _state_feeds(module, feeds, source):
        return None
    tensors = {name: dtypes.tensor(value) for name, value in feeds.items()}
    args, kwargs = _module_arguments(module, tensors, source)
    program = export.traced(module, args, kwargs)
    with torch.no_grad(), quiet():
        return outputs_of(program.module()(*args, **kwargs), feeds)


def _without_printed_code(exported: bool) -> contextlib.AbstractContextManager[Any]:
    """Discard the generated code that a failing program prints to stderr; a program itself prints nothing."""
    return contextlib.redirect_stderr(io.StringIO()) if exported else contextlib.nullcontext()


def _changed(tensor: Any, versions: Any) -> bool:
    """Whether a tensor differs from the array it was made from: batch norms write without incrementing the version."""
    current, previous = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (dtypes.array(tensor), versions))
    return not np.array_equal(current, previous)


def _eval_mode(module: Any, exported: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if exported else export.eval_mode(module)


def _state_feeds(module: Any, feeds: Mapping[str, Any], source: Any) -> list[str]:
    """The names of the feeds that are buffers of the module and not arguments."""
    structure = io_names.stored_structure(module, source)
    arguments = set(structure.names) if structure is not None else set(inspect.signature(module.forward).parameters)
    buffers = dict(module.named_buffers())
    return [name for name in feeds if name in buffers and name not in arguments]


@contextlib.contextmanager
def _with_buffers(module: Any, state: Arrays) -> Iterator[None]:
    """Set buffers of the module to these values, and restore them on exit."""
    slots = [(module.get_submodule(path), name) for path, _, name in (n.rpartition(".") for n in state)]
    saved = [owner._buffers[name] for owner, name in slots]
    try:
        for (owner, name), value in zip(slots, state.values(), strict=True):
            owner._buffers[name] = dtypes.tensor(value).clone()
        yield
    finally:
        for (owner, name), tensor in zip(slots, saved, strict=True):
            owner._buffers[name] = tensor


def outputs_of(result: Any, inputs: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The result of forward as arrays, under the output names of the hub model."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    pytree_containers.register_dataclasses(result)
    leaves, spec = pytree.tree_flatten(result)
    found = {}
    for name, value in zip(io_names.output_names(spec, inputs), leaves, strict=True):
        if isinstance(value, torch.Tensor):
            found[name] = np.asarray(dtypes.array(value))
        elif isinstance(value, (bool, int, float)):
            found[name] = np.asarray(value)
    return found


def _program_arguments(program: Any, feeds: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments of an exported program; constant ones have the value they were exported with."""
    from torch.utils import _pytree as pytree

    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    leaves = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        name = getattr(spec.arg, "name", "")
        if hasattr(spec.arg, "value"):
            leaves.append(spec.arg.value)
        elif name not in feeds:
            raise UsageError(f"no value for the input {name!r}")
        else:
            leaves.append(_leaf(spec.arg, feeds[name], getattr(values[name], "dtype", None)))
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def _leaf(declared: Any, value: Any, dtype: Any) -> Any:
    return dtypes.tensor(value, like=dtype) if type(declared).__name__ == "TensorArgument" else np.asarray(value).item()


def _module_arguments(module: Any, feeds: Mapping[str, Any], source: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the module, in the structure of its last conversion, else one input per parameter of forward."""
    structure = io_names.stored_structure(module, source)
    if structure is not None and set(structure.names) >= set(feeds):
        return structure.arguments(feeds)
    parameters = inspect.signature(module.forward).parameters
    unknown = [name for name in feeds if name not in parameters]
    if unknown and len(parameters) == 1 and all(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return tuple(dtypes.tensor(v) for v in feeds.values()), {}
    if unknown:
        raise UsageError(f"forward has no parameter {', '.join(unknown)}; it takes {', '.join(parameters)}")
    bound = inspect.signature(module.forward).bind(**{name: dtypes.tensor(v) for name, v in feeds.items()})
    return bound.args, bound.kwargs
