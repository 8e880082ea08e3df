"""A TensorFlow Lite model as plain data: graphs of operators on numbered tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Quantization:
    """value = scale * (stored - zero_point). Several scales lie along `axis`, or in blocks of `block` elements if it is not 0."""

    scale: Array
    zero_point: Array
    axis: int = 0
    block: int = 0

    def equals(self, other: Quantization | None) -> bool:
        return (
            other is not None and (self.axis, self.block) == (other.axis, other.block)
            and np.array_equal(self.scale, other.scale) and np.array_equal(self.zero_point, other.zero_point)
        )  # fmt: skip


@dataclass(frozen=True)
class Sparsity:
    """How the elements of a sparse tensor are stored: the order of its dimensions, the dimensions that are split into blocks,
    and for each the dense size, or the segments and indices of a compressed one."""

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    dimensions: tuple[int | tuple[Array, Array], ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor: `sizes` has None where a size is dynamic; `data` are the bytes of a constant, which start at `offset` of the
    file. A tensor without a known rank has the sizes None."""

    name: str
    type: str
    sizes: tuple[int | None, ...] | None
    data: Array | None = None
    offset: int = 0
    quantization: Quantization | None = None
    sparsity: Sparsity | None = None
    is_variable: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator: `name` is the schema's, or for custom operators the code by which they are registered. Inputs and outputs are
    indices of tensors, -1 for an omitted one."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    custom_options: bytes = b""
    is_custom: bool = False


@dataclass(frozen=True)
class Graph:
    name: str
    tensors: Sequence[Tensor]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[Operator]


@dataclass(frozen=True)
class Signature:
    """A graph under a key, with names of its inputs and outputs. The key "" is a graph without a signature."""

    key: str
    graph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Model:
    """`path` names the file, and `metadata` has the entries of the model's metadata that are text."""

    path: str
    version: int
    description: str
    graphs: Sequence[Graph]
    signatures: Sequence[Signature]
    metadata: Mapping[str, str]
