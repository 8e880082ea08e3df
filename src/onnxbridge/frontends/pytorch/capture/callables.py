"""Functions and bound methods as sources, for example `model.encode`."""

from __future__ import annotations

import copy
import inspect
import sys
import types
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError


def is_method(source: Any) -> bool:
    """Whether a source is a bound method of an nn.Module. A plain function is ambiguous between frameworks."""
    torch = sys.modules.get("torch")
    return torch is not None and inspect.ismethod(source) and isinstance(source.__self__, torch.nn.Module)


def as_module(function: Any) -> Any:
    """An nn.Module whose forward is the function; for a method it has the parameters of the method's module, same names.

    Raises:
        UsageError: for compiled code, which has no Python signature.
    """
    nn = frameworks.torch().nn
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(f"{name} has no Python signature; pass a function that calls it: lambda x: {name}(x)") from error
    if is_method(function):
        wrapper = copy.copy(function.__self__)
        wrapper.forward = types.MethodType(function.__func__, wrapper)
        wrapper._forward_hooks, wrapper._forward_pre_hooks = type(wrapper._forward_hooks)(), type(wrapper._forward_pre_hooks)()
    else:
        wrapper = nn.Module()
        wrapper.forward = function
        for name, module in _referenced_modules(function).items():
            wrapper.add_module(name, module)
    wrapper.__dict__["source_object"] = function.__self__ if is_method(function) else function
    return wrapper


def _referenced_modules(function: Any) -> dict[str, Any]:
    """The modules that a function refers to by name, so that they are in evaluation mode while it is traced."""
    plain = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isfunction(plain):
        return {}
    names = inspect.getclosurevars(plain)
    found = {**names.globals, **names.nonlocals}
    return {name: v for name, v in found.items() if isinstance(v, frameworks.torch().nn.Module)}
