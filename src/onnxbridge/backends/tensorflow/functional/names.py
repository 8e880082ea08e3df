"""Names of layers, which Keras requires to be unique and without slashes."""

from __future__ import annotations

import re

import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.trainable import COMPUTED, is_generated_name
from onnxbridge.hub.ir.unique_name import free_name

_CELLS = ("/lstm_cell", "/gru_cell", "/simple_rnn_cell")
"""Names of what Keras's recurrent layers repeat, which have the weights."""


class LayerNames:
    """Gives out names that are unique in a model.

    Keras names calls of functions itself, with numbers that depend on what was called before ("matmul_3"): no layer has such a
    name of one of the `functions`.
    """

    def __init__(self, taken: set[str]) -> None:
        self._taken = {name.lower() for name in taken}
        self.functions: set[str] = set()
        self.with_weights: set[str] = set()

    def unused(self, name: str, has_weights: bool = False) -> str:
        """The name as Keras allows it, with a number where it is taken, or where it is that of a layer `with_weights`."""
        if re.sub(r"_\d+$", "", plain_name(name)).lower() in self.functions:
            name = f"{name}_layer"
        taken = self._taken if has_weights else self._taken | self.with_weights
        found = free_name(plain_name(name), lambda name: name.lower() in taken)
        self._taken.add(found.lower())
        return found


def plain_name(name: str) -> str:
    """The name with an underscore for what Keras and TensorFlow do not allow."""
    plain = re.sub(r"[^\w.\-]+", "_", name, flags=re.ASCII).strip("_.") or "layer"
    return plain if plain[0].isalnum() else f"v{plain}"


def name_of(node: ir.Node, weights: tuple[ir.Value, ...], kind: str) -> str:
    """The name for a layer: the path of its weights in the source, else the node's own name, else its kind."""
    paths = [path for value in weights if (path := _path(value.name or ""))]
    if paths:
        first = paths[0][:-1]
        if kind in ("MultiHeadAttention", "Bidirectional"):  # their weights belong to several modules
            first = next((first[:i] for i in range(len(first), 0, -1) if all(p[:i] == first[:i] for p in paths)), first)
        # "linear.weight.transpose" is of the module of "linear.bias"
        scope = min((p[:-1] for p in paths if first[: len(p) - 1] == p[:-1]), key=len, default=first)
        while len(scope) > 1 and (scope[-1] in _CELLS or (kind == "Bidirectional" and scope[-1].startswith("/forward_"))):
            scope = scope[:-1]
        return "".join(scope).strip("./")
    location = source_locations.read(node)
    named = location.scope if weights and location.scope else _layer_of(location.node)
    return named or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.removeprefix("ops.")).lower()


def _layer_of(name: str) -> str:
    """The name of Keras's layer in that of an operator of a traced Keras model: "relu" of "resnet_1/relu_1/Relu"."""
    first, *layers = name.split("/")
    if len(layers) < 2 or not first.endswith("_1") or not all(part.endswith("_1") for part in layers[:-1]):
        return name
    return "/".join(part.removesuffix("_1") for part in layers[:-1])


def _path(name: str) -> list[str]:
    """The parts of the name of a weight, each with the sign before it; empty if it has one part, or was not given by the user."""
    if COMPUTED.fullmatch(name) or is_generated_name(name):
        return []
    separator = "/" if "/" in name else "."
    first, *rest = name.split(separator)
    return [first, *(f"{separator}{part}" for part in rest)] if rest else []
