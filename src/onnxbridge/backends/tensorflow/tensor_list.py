"""Sequences: a Python list of tensors where the length is known while TensorFlow traces, else a list of TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.errors import Unsupported

_ANY_SHAPE = -1


class KnownList(list[Any]):
    """A sequence of known length, with the hub type of its elements, which an empty list does not show."""

    dtype: ir.DataType | None = None


@dataclass(frozen=True)
class TensorList:
    """A sequence whose length is known only when the model runs: the handle of a list of tensors, which is a tensor itself."""

    handle: Any
    dtype: Any

    @property
    def length(self) -> Any:
        return tf.raw_ops.TensorListLength(input_handle=self.handle)

    def at(self, index: Any) -> Any:
        """The element at a non-negative index."""
        return tf.raw_ops.TensorListGetItem(
            input_handle=self.handle, index=index, element_shape=_ANY_SHAPE, element_dtype=self.dtype
        )

    def appended(self, tensor: Any) -> TensorList:
        return TensorList(tf.raw_ops.TensorListPushBack(input_handle=self.handle, tensor=tensor), self.dtype)


def typed(value: Any, dtype: ir.DataType | None) -> Any:
    """A list with the hub type of its elements; other values as they are."""
    if not isinstance(value, list):
        return value
    made = KnownList(value)
    made.dtype = dtype
    return made


def empty(dtype: Any) -> TensorList:
    handle = tf.raw_ops.EmptyTensorList(element_shape=_ANY_SHAPE, max_num_elements=-1, element_dtype=dtype)
    return TensorList(handle, dtype)


def tensor_list(sequence: Any) -> TensorList:
    """A sequence of either kind as a list of TensorFlow's own."""
    if isinstance(sequence, TensorList):
        return sequence
    made = empty(_element_type(sequence))
    for tensor in sequence:
        made = made.appended(tensor)
    return made


def _element_type(sequence: Any) -> Any:
    if isinstance(sequence, TensorList):
        return sequence.dtype
    if sequence:
        return sequence[0].dtype
    if getattr(sequence, "dtype", None) is None:
        raise Unsupported("an empty sequence of unknown type")
    return dtypes.of(sequence.dtype)


def generated(count: Any, element: Callable[[Any], Any], dtype: Any) -> TensorList:
    """The sequence of `element(i)` for each i below a count."""

    def step(i: Any, handle: Any) -> tuple[Any, Any]:
        return i + 1, TensorList(handle, dtype).appended(element(i)).handle

    _, handle = tf.while_loop(lambda i, _: i < count, step, (tf.constant(0), empty(dtype).handle))
    return TensorList(handle, dtype)


def packed(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values that pass through control flow, as tensors; `unpacked` gives them back.

    Raises:
        Unsupported: for an optional value.
    """
    found = []
    for v in values:
        if isinstance(v, (list, TensorList)):
            v = tensor_list(v).handle
        if not isinstance(v, tf.Tensor):
            raise Unsupported("an optional value through control flow")
        found.append(tf.identity(v))
    return tuple(found)


def unpacked(tensors: Iterable[Any], like: Iterable[Any]) -> tuple[Any, ...]:
    """The values of which `packed` made these tensors, or others of the same kinds as in `like`."""

    def unpack(tensor: Any, like: Any) -> Any:
        return TensorList(tensor, _element_type(like)) if isinstance(like, (list, TensorList)) else tensor

    return tuple(map(unpack, tensors, like))


def as_python_list(handle: Any, dtype: Any) -> list[Any]:
    """The elements of a list whose length is known, since the model has run."""
    made = TensorList(handle, dtype)
    return [made.at(i) for i in range(int(made.length))]
