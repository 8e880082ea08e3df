"""Reads files of weights without running code."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UnsafeFileError, UsageError, first_line
from onnxbridge.hub.io.detect_format import detect_format, wrong_format_error
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import open_archive


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
