"""Loads a source: a module or program itself, a `.pt2` or TorchScript file, or a factory with a file of weights."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UnsafeFileError, UsageError, first_line
from onnxbridge.frameworks.log_suppression import loggers_disabled
from onnxbridge.frontends.pytorch.capture.callables import as_module
from onnxbridge.frontends.pytorch.torchscript import interpreter
from onnxbridge.hub.io.detect_format import detect_format, wrong_format_error
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import open_archive

FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress PyTorch's warnings and log output."""
    with loggers_disabled("torch"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(source: Any) -> Any:
    """Load a source: a module or exported program itself, or the one in a file or built by a factory."""
    weights = None
    if isinstance(source, (tuple, list)) and len(source) == 2:
        source, weights = source
    if isinstance(source, str) and FACTORY.fullmatch(source) and not os.path.exists(source):
        return _build(source, weights)
    if weights is not None:
        raise UsageError(f"weights require a factory: pass ('module:function', {os.fspath(weights)!r})")
    if isinstance(source, (str, os.PathLike)):
        kind = detect_format(source)
        if kind == "torchscript":
            with quiet():
                return interpreter.load(source)
        if kind != "pt2":  # checked before PyTorch is imported, which takes seconds
            raise wrong_format_error(source, kind, "a PyTorch program")
        frameworks.torch()  # its loggers exist once it is imported
        from onnxbridge.frontends.pytorch.pt2.archive import load_program

        with quiet():
            return load_program(Path(source))
    torch = frameworks.torch()
    if interpreter.is_script(source):
        return interpreter.make_traceable(source)
    if isinstance(source, (torch.nn.Module, torch.export.ExportedProgram)):
        return source
    if callable(source):
        return as_module(source)
    raise UsageError(f"{type(source).__qualname__} is not a torch.nn.Module, a function or an ExportedProgram")


def _build(name: str, weights: Any) -> Any:
    """The module that a factory builds, with the weights loaded."""
    torch = frameworks.torch()
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{name}: no module named {error.name!r}") from error
    finally:
        sys.path.remove(os.getcwd())
    for part in function.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{name}: {module} has no attribute {function!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{name} is a {type(found).__qualname__}, which is not callable")
    with torch.random.fork_rng(devices=[]):  # random initial weights must be the same for conversion and verification
        torch.manual_seed(0)
        built = found if isinstance(found, torch.nn.Module) else found()
    if not isinstance(built, torch.nn.Module):
        raise UsageError(f"{name} returned a {type(built).__qualname__}, not a torch.nn.Module")
    if weights is not None:
        try:
            built.load_state_dict(load_state_dict(weights))
        except RuntimeError as error:  # torch lists every missing, unexpected or mismatched key
            reasons = "; ".join(line.strip() for line in str(error).splitlines()[1:4])
            raise UsageError(f"{quoted(os.fspath(weights))} does not match {type(built).__name__}: {reasons}") from error
    return built.eval()


def load_state_dict(path: Any) -> Mapping[str, Any]:
    """Load a state dict without running code."""
    torch = frameworks.torch()
    kind = detect_format(path)
    if kind == "safetensors":
        try:
            tensors: Mapping[str, Any] = frameworks.safetensors().load_file(os.fspath(path))
        except Exception as error:  # SafetensorError, KeyError of an unknown dtype, RuntimeError of a wrong size
            reason = first_line(error)
            raise UnsafeFileError(f"{quoted(os.fspath(path))} is damaged ({reason}); save the weights again") from error
        return tensors
    if kind == "pytorch-pickle" and zipfile.is_zipfile(path):
        open_archive(path, "save the state dict again with torch.save")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        hint = "load it where you trust it, and save its state_dict()" if kind == "pytorch-pickle" else None
        raise wrong_format_error(path, kind, "a state dict that loads without running code", hint) from error
    if not isinstance(state, Mapping):
        raise UsageError(f"{quoted(os.fspath(path))} is not a state dict: it holds a {type(state).__qualname__}")
    others = [name for name, v in state.items() if not isinstance(v, torch.Tensor)]
    if others:
        raise UsageError(f"{quoted(os.fspath(path))} is not a state dict: {_not_tensors(path, state, others)}")
    return state


def _not_tensors(path: Any, state: Mapping[Any, Any], others: list[Any]) -> str:
    """Describe a file that is not a state dict, and where in it the weights are."""
    torch = frameworks.torch()
    nested = [
        name for name in others
        if isinstance(state[name], Mapping) and state[name] and all(isinstance(v, torch.Tensor) for v in state[name].values())
    ]  # fmt: skip
    keys = ", ".join(repr(name) for name in list(state)[:6]) + (", ..." if len(state) > 6 else "")
    if not nested:
        return f"{others[0]!r} is of type {type(state[others[0]]).__qualname__}, not a tensor; its keys are {keys}"
    name = os.path.basename(os.fspath(path))
    command = f"torch.save(torch.load({name!r})[{nested[0]!r}], 'weights.pth')"
    return f"it is a checkpoint with the keys {keys}, and its weights are under {nested[0]!r}; save only these: {command}"
