"""The source itself on given inputs, as PyTorch computes it."""

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
from onnxbridge.frontends.pytorch.capture import io_names, pytree_containers, sources, training_mode
from onnxbridge.frontends.pytorch.torchscript import interpreter
from onnxbridge.plugins import Arrays, Run


def runner(source: Any) -> Run:
    """The source, loaded once, as a function; in evaluation mode, the weights untouched.

    Buffers that the model writes are inputs and outputs, and inputs that it writes are outputs too, as in the hub model.
    """
    torch = frameworks.torch()
    pytree_containers.register()
    opened = sources.load(source)
    exported = isinstance(opened, torch.export.ExportedProgram)
    if exported:
        opened, _ = training_mode.program_for_inference(opened)
    module = opened.module() if exported else opened
    scripted = not exported and interpreter.is_scripted(module)

    def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        with torch.no_grad(), sources.quiet():
            state = _state_among(module, feeds, source)
            given = {name: dtypes.tensor(value) for name, value in feeds.items() if name not in state}
            before = {name: tensor._version for name, tensor in given.items()}
            args, kwargs = _arguments(opened, given) if exported else _by_name(module, given, source)
            if scripted:
                with sources.evaluating(module):
                    result, left = interpreter.called(module, args, kwargs, {n: dtypes.tensor(feeds[n]) for n in state})
            else:
                mode = _evaluating(module, exported)
                with _holding(module, {n: feeds[n] for n in state}), mode, _as_traced(), _without_code_dumps(exported):
                    result = module(*args, **kwargs)
                    left = {n: module.get_buffer(n) for n in state}
            written = {n: t for n, t in given.items() if t._version != before[n] or _changed(t, feeds[n])}
            left = written | left
        found = outputs_of(result, feeds)
        arrays = {n: np.array(dtypes.array(t)) for n, t in left.items()}
        returned = {name: found.get(io_names.returned(name)) for name in arrays}
        again = {n for n, a in arrays.items() if (r := returned[n]) is not None and r.tobytes() == a.tobytes()}
        return found | {io_names.after(n): a for n, a in arrays.items() if n not in again}

    return run


def _without_code_dumps(exported: bool) -> contextlib.AbstractContextManager[Any]:
    """Without the generated code that a program prints where a run of it fails; it has no prints of its own."""
    return contextlib.redirect_stderr(io.StringIO()) if exported else contextlib.nullcontext()


@contextlib.contextmanager
def _as_traced() -> Iterator[None]:
    """Without the kernels that take whole layers of attention at once, which no trace has: they answer NaN for rows that are
    all padding, where the operators of the layers' own code answer 0."""
    mha = frameworks.torch().backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


def _changed(tensor: Any, before: Any) -> bool:
    """Whether a tensor is another than the array that it was made from: batch norms write without a new version."""
    now, was = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (dtypes.array(tensor), before))
    return not np.array_equal(now, was)


def _evaluating(module: Any, exported: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if exported else sources.evaluating(module)


def _state_among(module: Any, feeds: Mapping[str, Any], source: Any) -> list[str]:
    """The feeds that are buffers of the module and no arguments."""
    given = io_names.remembered(module, source)
    arguments = set(given.names) if given is not None else set(inspect.signature(module.forward).parameters)
    buffers = dict(module.named_buffers())
    return [name for name in feeds if name in buffers and name not in arguments]


@contextlib.contextmanager
def _holding(module: Any, state: Arrays) -> Iterator[None]:
    """With these values in the module's buffers, its own put back afterwards."""
    places = [(module.get_submodule(path), name) for path, _, name in (n.rpartition(".") for n in state)]
    kept = [holder._buffers[name] for holder, name in places]
    try:
        for (holder, name), value in zip(places, state.values(), strict=True):
            holder._buffers[name] = dtypes.tensor(value).clone()
        yield
    finally:
        for (holder, name), tensor in zip(places, kept, strict=True):
            holder._buffers[name] = tensor


def outputs_of(result: Any, inputs: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a forward returned, flat and under the names that the hub model gives."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    pytree_containers.adopt(result)
    leaves, spec = pytree.tree_flatten(result)
    found = {}
    for name, value in zip(io_names.outputs(spec, inputs), leaves, strict=True):
        if isinstance(value, torch.Tensor):
            found[name] = np.asarray(dtypes.array(value))
        elif isinstance(value, (bool, int, float)):
            found[name] = np.asarray(value)
    return found


def _arguments(program: Any, feeds: Mapping[str, Any]) -> tuple[Any, Any]:
    """The program's arguments, its constant ones as they were exported."""
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
            raise UsageError(f"there is no value for the input {name!r}")
        else:
            leaves.append(_leaf(spec.arg, feeds[name], getattr(values[name], "dtype", None)))
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def _leaf(declared: Any, value: Any, dtype: Any) -> Any:
    return dtypes.tensor(value, like=dtype) if type(declared).__name__ == "TensorArgument" else np.asarray(value).item()


def _by_name(module: Any, feeds: Mapping[str, Any], source: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The module's arguments: the structure of its last conversion, otherwise one input for each parameter of forward."""
    given = io_names.remembered(module, source)
    if given is not None and set(given.names) >= set(feeds):
        return given.arguments(feeds)
    parameters = inspect.signature(module.forward).parameters
    unknown = [name for name in feeds if name not in parameters]
    if unknown and len(parameters) == 1 and all(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return tuple(dtypes.tensor(v) for v in feeds.values()), {}
    if unknown:
        raise UsageError(f"forward has no parameter {', '.join(unknown)}; it takes {', '.join(parameters)}")
    bound = inspect.signature(module.forward).bind(**{name: dtypes.tensor(v) for name, v in feeds.items()})
    return bound.args, bound.kwargs
