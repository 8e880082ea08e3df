"""Where a hub model's weights live in the module: which are trained, under which names, and on whose memory."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import nn

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.hub.ir.provenance import is_fixed, state_of
from onnxbridge.hub.ir.trainable import COMPUTED, is_made

_VIEWED = (".reshape", ".transpose")
"""What the frontends call a weight of which the model takes a view."""
_TURNED = re.compile(r"\.transpose(_\d+)?$")
_SHAPED = frozenset({"cast", "concat", "expand", "identity", "reshape", "squeeze", "transpose", "unsqueeze"})
"""Steps of a constant's computing that say nothing of what it is."""
_ARITHMETIC = frozenset({"add", "and", "div", "mul", "not", "or", "sub", "where"})
"""Steps that say little."""
_OPERATORS = frozenset(schema.name.lower() for schema in onnx.defs.get_all_schemas())


def untransposed(name: str) -> str:
    """The name of the parameter of which a weight is the transpose, by what the frontends call that; empty where it is none."""
    return _TURNED.sub("", name) if _TURNED.search(name) else ""


def _short(name: str) -> str:
    """The name to register under: of what was computed from a constant or a weight, not each of the steps that did it."""
    first, *rest = name.split(".")
    count = len(rest) if is_made(name) else _steps(rest)
    if not count:
        return name
    steps, base = rest[-count:], [first, *rest[:-count]]
    telling = [s for s in steps if _bare(s) not in _SHAPED]
    step = next((s for s in reversed(telling) if _bare(s) not in _ARITHMETIC), telling[-1] if telling else "")
    if is_made(name):
        return step or first
    return ".".join(base) + (f"_{step}" if step else f"_{steps[-1]}")


def _steps(parts: Sequence[str]) -> int:
    """How many of a name's last parts are operators, 0 where it may be somebody's own name."""
    count = 0
    while count < len(parts) and _bare(parts[-1 - count]) in _OPERATORS:
        count += 1
    of_weight = count < len(parts) and parts[-1 - count] in ("weight", "bias")
    return count if count > 1 or of_weight else 0


def _bare(step: str) -> str:
    return re.sub(r"_\d+$", "", step).rstrip("_")


def _vacant(home: nn.Module, leaf: str, numbered: bool) -> str:
    """The name itself where it is free."""
    found, number = leaf, 0
    while hasattr(home, found):
        number += 1
        found = f"{leaf}_{number}" if numbered else f"{found}_"
    return found


class Weights:
    """Puts tensors into nested modules under the dotted names that the hub has for them.

    `kept` says that names which could be a module's own are one: the model came from PyTorch, and its `state_dict` has them.
    """

    def __init__(self, root: nn.Module, kept: bool = False) -> None:
        self.root = root
        self.kept = kept
        self.layers: dict[str, tuple[type[nn.Module], Mapping[str, Any]]] = {}
        self._names: dict[str, str] = {}
        self.fixed: set[str] = set()
        """The paths of buffers, as the source tells: no layer may train them."""
        self._constants: dict[Hashable, tuple[str, torch.Tensor]] = {}

    def add(self, value: ir.Value, trained: bool, own: bool = True) -> tuple[str, torch.Tensor]:
        """Register a weight, one of the model's `own` or a constant; returns its path and its tensor."""
        assert value.const_value is not None
        array = value.const_value.numpy()
        tensor = dtypes.tensor(array)
        if value.dtype in dtypes.WIDE:
            tensor = tensor.to(torch.int64)
        state = state_of(value.const_value)
        if trained or state or not is_made(value.name or ""):
            number = not self.kept and not trained and tensor.numel() == 1  # code has it as a literal
            saved = own and (state == "buffer" or not (number or state == "constant"))
            path, tensor = self._register(value.name or "constant", tensor, trained, saved)
            if is_fixed(value.const_value):
                self.fixed.add(path)
            return path, tensor
        key = (value.dtype, array.shape, array.tobytes())  # folding computes some constants in several places
        if key not in self._constants:
            self._constants[key] = self._register(value.name or "constant", tensor, trained, own)
        return self._constants[key]

    def add_source(self, name: str, array: np.ndarray[Any, Any], trained: bool = True) -> tuple[str, torch.Tensor]:
        """Register the parameter or buffer of which a weight is a view, or find it where it is registered already."""
        tensor = dtypes.tensor(array)
        there = next((p for p, n in self._names.items() if n == name), None)
        if there is not None:
            held = self.at(there)
            if held.shape == tensor.shape and torch.equal(held, tensor):
                return there, held
        path, tensor = self._register(name, tensor, trained, own=True)
        if not trained:
            self.fixed.add(path)
        return path, tensor

    def _register(self, name: str, tensor: torch.Tensor, trained: bool, own: bool) -> tuple[str, torch.Tensor]:
        *scope, leaf = identifiers(_short(name))
        home, path = self._module(scope)
        leaf = _vacant(home, leaf, numbered=is_made(name))
        if trained:
            home.register_parameter(leaf, nn.Parameter(tensor))
        else:
            home.register_buffer(leaf, tensor, persistent=own and not is_made(name) and not COMPUTED.fullmatch(name))
        found = ".".join([*path, leaf])
        self._names[found] = name
        return found, tensor

    def _module(self, scope: Sequence[str]) -> tuple[nn.Module, list[str]]:
        """The module at a path, made where there is none; where something else is there, beside it."""
        home, path = self.root, []
        for part in scope:
            while not isinstance(getattr(home, part, None), nn.Module):
                if not hasattr(home, part):
                    home.add_module(part, nn.Module())
                else:
                    part += "_"
            home = getattr(home, part)
            path.append(part)
        return home, path

    def at(self, path: str) -> Any:
        """The weight or module at a path."""
        found: Any = self.root
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def keeps(self, path: str) -> bool:
        """Whether a weight's name is the source's own, and what users load a `state_dict` by."""
        own = path == self._names.get(path) and not path.endswith(_VIEWED) and not COMPUTED.fullmatch(path)
        return self.kept and own

    def is_saved(self, path: str) -> bool:
        """Whether a `state_dict` has the weight."""
        scope, _, leaf = path.rpartition(".")
        home = self.at(scope) if scope else self.root
        return leaf not in home._non_persistent_buffers_set

    def is_free(self, path: str, own: Sequence[str]) -> bool:
        """Whether a layer can be at `path`: nothing is there but the weights `own`, and no layer is around it."""
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

    def unused(self, path: str) -> str:
        """The path with a number behind it that nothing has."""
        number = 1
        while not self.is_free(f"{path}_{number}", ()):
            number += 1
        return f"{path}_{number}"

    def put(self, path: str, layer: nn.Module, arguments: Mapping[str, Any]) -> None:
        """Place a layer, made of these arguments, where the weights that are now its own were."""
        self.layers[path] = type(layer), arguments
        *scope, leaf = path.split(".")
        home, _ = self._module(scope)
        home._parameters.pop(leaf, None)
        home._buffers.pop(leaf, None)
        home.add_module(leaf, layer)

    def prune(self, used: set[str]) -> None:
        """Drop the weights and modules that no path in `used` leads to or through."""

        def keep(module: nn.Module, path: str) -> bool:
            if path.rstrip(".") in used:
                return True
            for held in (module._parameters, module._buffers):
                for name in [n for n in held if path + n not in used]:
                    del held[name]
            for name, child in list(module.named_children()):
                if not keep(child, f"{path}{name}."):
                    del module._modules[name]
            return bool(module._parameters or module._buffers or module._modules)

        keep(self.root, "")


def identifiers(name: str) -> list[str]:
    """A hub name as the names of modules and of the weight in the last one."""
    name = unicodedata.normalize("NFKC", name)  # as Python reads identifiers
    parts = [re.sub(r"\W", "_", part) or "_" for part in name.split(".")]
    return [f"{part}_" if keyword.iskeyword(part) else part for part in parts]
