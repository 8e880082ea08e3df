"""Tensors of a TensorFlow graph: their names, sizes and the values bound to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.lowering import Ref


@dataclass(frozen=True, eq=False)
class StoredValue:
    """The value of a variable, a captured tensor or a constant; `read` returns its array.

    `state` is "parameter", "buffer" or "constant", or empty if TensorFlow does not say.
    """

    name: str
    read: Callable[[], Any]
    state: str = ""


def plain_name(tensor: Any) -> str:
    """ "a/b:0" as "a/b"; "a/b:1" unchanged."""
    return str(tensor.name).removesuffix(":0")


def ref(tensor: Any, bound: dict[str, Any], prefix: str) -> Any:
    """The value bound to a graph tensor."""
    return bound.get(tensor.name) or Ref((prefix, tensor.name))


def refs(items: Iterable[Any], bound: dict[str, Any], prefix: str) -> list[Any]:
    return [tuple(refs(i, bound, prefix)) if isinstance(i, tuple) else ref(i, bound, prefix) for i in items]


def is_stored(tensor: Any, bound: dict[str, Any]) -> bool:
    """Whether a tensor is a variable, a captured value or a constant."""
    found = bound.get(tensor.name)
    return isinstance(found, Ref) and isinstance(found.key, StoredValue)


def through_identities(tensor: Any) -> Any:
    """The input of a chain of Identity operators."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


_PASSED_ON = frozenset({"Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration"})
_ARRAYS = frozenset({"TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3"})


def tensor_array_of(tensor: Any) -> Any:
    """The operator that makes the TensorArray (of TensorFlow 1) that a handle or a flow stands for; None for other tensors."""
    while tensor.op.type in _PASSED_ON or tensor.op.type in _ARRAYS:
        tensor = next(t for t in tensor.op.inputs if t.op.type != "NextIteration")
    return tensor.op if tensor.op.type == "TensorArrayV3" else None


def is_list(tensor: Any) -> bool:
    """Whether a tensor stands for a list of tensors, so that its own dtype and shape are not those of its elements."""
    if hub_dtype(tensor.dtype) is None:
        return True
    scalar = tensor.dtype.name == "float32" and tensor.shape.rank in (None, 0)
    return scalar and tensor_array_of(tensor) is not None


def written_sizes(array: Any) -> tuple[int | None, ...] | None:
    """The shape of the elements of a TensorArray of TensorFlow 1: as declared, or as they are written; None if unknown."""
    declared = array.get_attr("element_shape")
    if not declared.unknown_rank:
        return tuple(d.size if d.size >= 0 else None for d in declared.dim)
    for op in array.graph.get_operations():
        if op.type in ("TensorArrayWriteV3", "TensorArrayScatterV3") and tensor_array_of(op.inputs[0]) is array:
            shape = op.inputs[2].shape
            if shape.rank is not None:
                return tuple(shape.as_list()[0 if op.type == "TensorArrayWriteV3" else 1 :])
    return None


def sizes_of(tensor: Any) -> tuple[int | None, ...] | None:
    known = tensor.shape.rank is not None and not is_list(tensor)
    return tuple(tensor.shape.as_list()) if known else None
