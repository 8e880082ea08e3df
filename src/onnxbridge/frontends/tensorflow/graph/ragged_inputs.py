"""Ragged tensors among the inputs and outputs of a function: their values and the row splits of each level are tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxbridge.errors import UsageError


def components(item: Any) -> list[tuple[str, Any]]:
    """The tensors, or specs of tensors, of a ragged tensor with their names; an empty list for anything else.

    Raises:
        UsageError: for sparse tensors.
    """
    import tensorflow as tf

    if isinstance(item, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        values, *splits = tf.nest.flatten(item, expand_composites=True)
        names = [f"row_splits_{i}" for i in range(len(splits))] if len(splits) > 1 else ["row_splits"]
        return [("values", values), *zip(names, splits, strict=True)]
    if isinstance(item, (tf.SparseTensor, tf.SparseTensorSpec)):
        raise UsageError("the function takes or returns sparse tensors, which are not supported; use dense or ragged tensors")
    return []


def input_names(structure: Any, tensors: Sequence[Any]) -> Iterator[str]:
    """A name for each input tensor that is part of a ragged tensor, and an empty one for the others."""
    import tensorflow as tf

    rest = iter(tensors)
    for item in tf.nest.flatten(structure):
        found = components(item)
        placeholders = [next(rest) for _ in found]
        if isinstance(item, tf.TensorSpec):
            next(rest)
            yield ""
        yield from (f"{placeholders[0].op.name}/{name}" for name, _ in found)


def partitions(names: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """By the names of all inputs: row splits, what they partition, and by how much that is larger than their last element."""
    for i, name in enumerate(names):
        base, _, part = name.rpartition("/")
        if part.startswith("row_splits") and f"{base}/values" in names:
            inner = i + 1 < len(names) and names[i + 1].startswith(f"{base}/row_splits")
            yield name, names[i + 1] if inner else f"{base}/values", int(inner)
