"""How a hub model's weights are registered in the module: under which names, as parameter or buffer, and on which memory."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import nn

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.hub.ir.provenance import is_fixed, state_of
from onnxbridge.hub.ir.trainable import COMPUTED, is_generated_name
from onnxbridge.hub.ir.unique_name import free_name

_VIEW_SUFFIXES = (".reshape", ".transpose")
"""Suffixes that the frontends give to weights that are views."""
_TRANSPOSED = re.compile(r"\.transpose(_\d+)?$")
_SHAPE_OPERATORS = frozenset({"cast", "concat", "expand", "identity", "reshape", "squeeze", "transpose", "unsqueeze"})
"""Name parts of operators that only change shape or dtype; they do not describe a constant."""
_ARITHMETIC = frozenset({"add", "and", "div", "mul", "not", "or", "sub", "where"})
"""Name parts of operators that describe a constant poorly."""
_OPERATORS = frozenset(schema.name.lower() for schema in onnx.defs.get_all_schemas())


def untransposed(name: str) -> str:
    """The name of the parameter whose transpose a weight is, by the frontends' naming; empty if it is not a transpose."""
    return _TRANSPOSED.sub("", name) if _TRANSPOSED.search(name) else ""


def _registration_name(name: str) -> str:
    """The name to register a weight under: for values computed from a constant or a weight, without each operator on the way."""
    first, *rest = name.split(".")
    count = len(rest) if is_generated_name(name) else _steps(rest)
    if not count:
        return name
    steps, base = rest[-count:], [first, *rest[:-count]]
    descriptive = [s for s in steps if _operator_name(s) not in _SHAPE_OPERATORS]
    step = next(
        (s for s in reversed(descriptive) if _operator_name(s) not in _ARITHMETIC), descriptive[-1] if descriptive else ""
    )
    if is_generated_name(name):
        return step or first
    return ".".join(base) + (f"_{step}" if step else f"_{steps[-1]}")


def _steps(parts: Sequence[str]) -> int:
    """How many trailing parts of a name are operators; 0 if the user may have chosen it."""
    count = 0
    while count < len(parts) and _operator_name(parts[-1 - count]) in _OPERATORS:
        count += 1
    of_weight = count < len(parts) and parts[-1 - count] in ("weight", "bias")
    return count if count > 1 or of_weight else 0


def _operator_name(step: str) -> str:
    return re.sub(r"_\d+$", "", step).rstrip("_")


def _unused_name(parent: nn.Module, leaf: str, numbered: bool) -> str:
    """An unused attribute name: `leaf` itself if it is free."""
    if numbered:
        return free_name(leaf, partial(hasattr, parent))
    while hasattr(parent, leaf):
        leaf += "_"
    return leaf


class Weights:
    """Registers tensors in nested modules under their dotted hub names.

    `from_pytorch` says that the model came from PyTorch, so that valid names are those of the source's `state_dict`.
    """

    def __init__(self, root: nn.Module, from_pytorch: bool = False) -> None:
        self.root = root
        self.from_pytorch = from_pytorch
        self.layers: dict[str, tuple[type[nn.Module], Mapping[str, Any]]] = {}
        self._names: dict[str, str] = {}
        self.source_buffers: set[str] = set()
        """Paths of the source's buffers; no layer may train them."""
        self._constants: dict[Hashable, tuple[str, torch.Tensor]] = {}

    def add(self, value: ir.Value, trained: bool, own: bool = True) -> tuple[str, torch.Tensor]:
        """Register a weight (`own`: a weight of the model, not a derived constant); returns its path and tensor."""
        assert value.const_value is not None
        array = value.const_value.numpy()
        tensor = dtypes.tensor(array)
        if value.dtype in dtypes.WIDE:
            tensor = tensor.to(torch.int64)
        state = state_of(value.const_value)
        if trained or state or not is_generated_name(value.name or ""):
            number = not self.from_pytorch and not trained and tensor.numel() == 1  # inlined as a literal
            saved = own and (state == "buffer" or not (number or state == "constant"))
            path, tensor = self._register(value.name or "constant", tensor, trained, saved)
            if is_fixed(value.const_value):
                self.source_buffers.add(path)
            return path, tensor
        key = (value.dtype, array.shape, array.tobytes())  # folding duplicates some constants
        if key not in self._constants:
            self._constants[key] = self._register(value.name or "constant", tensor, trained, own)
        return self._constants[key]

    def add_source(self, name: str, array: np.ndarray[Any, Any], trained: bool = True) -> tuple[str, torch.Tensor]:
        """Register the parameter or buffer that a weight is a view of, or find it if it is registered."""
        tensor = dtypes.tensor(array)
        path = next((p for p, n in self._names.items() if n == name), None)
        if path is not None:
            registered = self.get(path)
            if registered.shape == tensor.shape and torch.equal(registered, tensor):
                return path, registered
        path, tensor = self._register(name, tensor, trained, own=True)
        if not trained:
            self.source_buffers.add(path)
        return path, tensor

    def _register(self, name: str, tensor: torch.Tensor, trained: bool, own: bool) -> tuple[str, torch.Tensor]:
        *scope, leaf = identifiers(_registration_name(name))
        parent, path = self._module(scope)
        leaf = _unused_name(parent, leaf, numbered=is_generated_name(name))
        if trained:
            parent.register_parameter(leaf, nn.Parameter(tensor))
        else:
            parent.register_buffer(leaf, tensor, persistent=own and not is_generated_name(name) and not COMPUTED.fullmatch(name))
        found = ".".join([*path, leaf])
        self._names[found] = name
        return found, tensor

    def _module(self, scope: Sequence[str]) -> tuple[nn.Module, list[str]]:
        """The module at a path, created if missing; if the name is in use, under another name."""
        parent, path = self.root, []
        for part in scope:
            while not isinstance(getattr(parent, part, None), nn.Module):
                if not hasattr(parent, part):
                    parent.add_module(part, nn.Module())
                else:
                    part += "_"
            parent = getattr(parent, part)
            path.append(part)
        return parent, path

    def get(self, path: str) -> Any:
        """The weight or module at a path."""
        found: Any = self.root
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def has_source_name(self, path: str) -> bool:
        """Whether a weight has the source's own name, under which users load a `state_dict`."""
        own = path == self._names.get(path) and not path.endswith(_VIEW_SUFFIXES) and not COMPUTED.fullmatch(path)
        return self.from_pytorch and own

    def is_saved(self, path: str) -> bool:
        """Whether a weight is in the `state_dict`."""
        scope, _, leaf = path.rpartition(".")
        parent = self.get(scope) if scope else self.root
        return leaf not in parent._non_persistent_buffers_set

    def is_free(self, path: str, own: Sequence[str]) -> bool:
        """Whether a layer can be placed at `path`: nothing but the weights `own` is there, and no layer encloses it."""
        found: Any = self.root
        for i, part in enumerate(path.split(".")):
            if found is not self.root and type(found) is not nn.Module:
                return False
            if not hasattr(found, part):
                return True
            found = getattr(found, part)
            if not isinstance(found, nn.Module):
                return path.split(".")[: i + 1] == path.split(".") and path in own
        inside = {f"{path}.{n}" for n, _ in (*found.named_parameters(), *found.named_buffers())}
        return all(type(m) is nn.Module for m in found.modules()) and inside <= set(own)

    def unused_path(self, path: str) -> str:
        """The path with the first numeric suffix that is unused."""
        number = 1
        while not self.is_free(f"{path}_{number}", ()):
            number += 1
        return f"{path}_{number}"

    def place_layer(self, path: str, layer: nn.Module, arguments: Mapping[str, Any]) -> None:
        """Place a layer, constructed with these arguments, where its weights were registered."""
        self.layers[path] = type(layer), arguments
        *scope, leaf = path.split(".")
        parent, _ = self._module(scope)
        parent._parameters.pop(leaf, None)
        parent._buffers.pop(leaf, None)
        parent.add_module(leaf, layer)

    def prune(self, used: set[str]) -> None:
        """Drop the weights and modules that are not needed by a path in `used`."""

        def prune_module(module: nn.Module, path: str) -> bool:
            if path.rstrip(".") in used:
                return True
            for tensors in (module._parameters, module._buffers):
                for name in [n for n in tensors if path + n not in used]:
                    del tensors[name]
            for name, child in list(module.named_children()):
                if not prune_module(child, f"{path}{name}."):
                    del module._modules[name]
            return bool(module._parameters or module._buffers or module._modules)

        prune_module(self.root, "")


def identifiers(name: str) -> list[str]:
    """A hub name as the names of the nested modules and, last, of the weight."""
    name = unicodedata.normalize("NFKC", name)  # as Python reads identifiers
    parts = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
    return [f"{part}_" if keyword.iskeyword(part) else part for part in parts]
