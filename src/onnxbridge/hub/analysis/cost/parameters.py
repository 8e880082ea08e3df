"""Number and bytes of a model's weights, by dtype, and the largest."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.values import dtype_name


@dataclass(frozen=True)
class Tensors:
    """Some tensors: how many, their elements and their bytes."""

    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class Largest:
    """One of the largest tensors."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Parameters:
    """The weights of a model, constants included. `trained` are the source's parameters, None if it does not say which."""

    by_dtype: dict[str, Tensors]
    trained: Tensors | None
    largest: tuple[Largest, ...]


def parameters(model: ir.Model, most: int = 5) -> Parameters:
    """The weights of a model and its subgraphs, and the `most` largest of them."""
    tensors = [
        (v.name or "", v.const_value) for g in every_graph(model) for v in g.initializers.values() if v.const_value is not None
    ]
    groups: dict[str, list[ir.TensorProtocol]] = {}
    for _, tensor in tensors:
        groups.setdefault(dtype_name(tensor.dtype), []).append(tensor)
    by_dtype = dict(sorted(((dtype, _sum(found)) for dtype, found in groups.items()), key=lambda item: -item[1].bytes))
    trained = [t for _, t in tensors if provenance.state_of(t) == "parameter"]
    largest = sorted(tensors, key=lambda item: -item[1].nbytes)[:most]
    rows = tuple(Largest(name, dtype_name(t.dtype), tuple(map(int, t.shape.numpy())), t.nbytes) for name, t in largest)
    return Parameters(by_dtype, _sum(trained) if trained else None, rows)


def _sum(tensors: list[ir.TensorProtocol]) -> Tensors:
    return Tensors(len(tensors), sum(t.size for t in tensors), sum(t.nbytes for t in tensors))
