"""Loads a source: a module or program itself, a `.pt2` or TorchScript file, or a factory with a file of weights."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frameworks.log_suppression import loggers_disabled
from onnxbridge.frontends.pytorch.capture.callables import as_module
from onnxbridge.frontends.pytorch.capture.state_dicts import load_state_dict
from onnxbridge.frontends.pytorch.torchscript import interpreter
from onnxbridge.hub.io.detect_format import detect_format, wrong_format_error
from onnxbridge.hub.io.safe_files import quoted

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
