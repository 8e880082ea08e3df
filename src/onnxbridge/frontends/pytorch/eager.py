"""The source itself on given inputs, as PyTorch computes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import capture, dtypes, naming
from onnxbridge.plugins import Arrays, Run


def runner(source: Any) -> Run:
    """The source, loaded once, as a function; in evaluation mode, the weights untouched."""
    torch = frameworks.torch()
    opened = capture.load(source)
    exported = isinstance(opened, torch.export.ExportedProgram)
    module = opened.module() if exported else opened

    def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        with torch.no_grad(), capture.quiet():
            if exported:
                args, kwargs = _arguments(opened, feeds)
                result = module(*args, **kwargs)
            else:
                args, kwargs = _by_name(module, feeds)
                with capture.evaluating(module):
                    result = module(*args, **kwargs)
        return outputs_of(result, feeds)

    return run


def outputs_of(result: Any, inputs: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """What a forward returned, flat and under the names that the hub model gives."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(result)
    found = {}
    for name, value in zip(naming.outputs(spec, inputs), leaves, strict=True):
        if isinstance(value, torch.Tensor):
            found[name] = np.asarray(dtypes.array(value))
        elif isinstance(value, (bool, int, float)):
            found[name] = np.asarray(value)
    return found


def _arguments(program: Any, feeds: Mapping[str, Any]) -> tuple[Any, Any]:
    """The program's arguments, its constant ones as they were exported."""
    from torch.utils import _pytree as pytree

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
            leaves.append(_leaf(spec.arg, feeds[name]))
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def _leaf(declared: Any, value: Any) -> Any:
    return dtypes.tensor(value) if type(declared).__name__ == "TensorArgument" else np.asarray(value).item()


def _by_name(module: Any, feeds: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The module's arguments: the structure of its last conversion, otherwise one input for each parameter of forward."""
    given = naming.remembered(module)
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
