"""Functions and methods as sources: `model.encode`, or code that uses modules without being one."""

from __future__ import annotations

import copy
import inspect
import sys
import types
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError


def is_method(source: Any) -> bool:
    """Whether a source is a method of a module, which only PyTorch can mean; a plain function could be any framework's."""
    torch = sys.modules.get("torch")
    return torch is not None and inspect.ismethod(source) and isinstance(source.__self__, torch.nn.Module)


def called(function: Any) -> Any:
    """A module whose forward is the function; a method's has the parameters of its own module, under their names.

    Raises:
        UsageError: for compiled code, which does not tell its parameters.
    """
    nn = frameworks.torch().nn
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(f"{name} does not tell its parameters; give a function that calls it: lambda x: {name}(x)") from error
    if is_method(function):
        made = copy.copy(function.__self__)
        made.forward = types.MethodType(function.__func__, made)
        made._forward_hooks, made._forward_pre_hooks = type(made._forward_hooks)(), type(made._forward_pre_hooks)()
    else:
        made = nn.Module()
        made.forward = function
        for name, module in _used(function).items():
            made.add_module(name, module)
    made.__dict__["stands_for"] = function.__self__ if is_method(function) else function
    return made


def _used(function: Any) -> dict[str, Any]:
    """The modules that a function reaches by name, so that they are in evaluation mode while it is traced."""
    plain = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isfunction(plain):
        return {}
    names = inspect.getclosurevars(plain)
    found = {**names.globals, **names.nonlocals}
    return {name: v for name, v in found.items() if isinstance(v, frameworks.torch().nn.Module)}
