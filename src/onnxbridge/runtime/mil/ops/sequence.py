"""Lists of tensors. They are immutable Python lists: writing returns a new one."""

import numpy as np

from onnxbridge.rules import Bool, Int, Str
from onnxbridge.runtime.mil.ops import Values, rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


@rule("make_list")
def make_list(elem_shape: Values, init_length: Int = 1, dynamic_length: Bool = True, dtype: Str = "fp32"):
    """Elements are zeros if their shape is static; otherwise they must be written before they are read."""
    fixed = all(np.asarray(n).dtype.kind in "iu" for n in elem_shape)
    empty = np.zeros([int(n) for n in elem_shape], DTYPES[dtype]) if fixed else None
    return [empty] * init_length


@rule("list_length")
def list_length(ls):
    return np.asarray(len(ls), np.int32)


def _write(ls, index, value):
    """A copy of the list with one element replaced, extended with zeros if it is too short."""
    extended = list(ls) + [np.zeros_like(value)] * (int(index) + 1 - len(ls))
    extended[int(index)] = value
    return extended


@rule("list_write", kind="move")
def list_write(ls, index, value):
    return _write(ls, index, value)


@rule("list_read", kind="move")
def list_read(ls, index):
    return _read(ls, index)


def _read(ls, index):
    if ls[int(index)] is None:
        raise ValueError(f"element {int(index)} of the list is read before it is written")
    return ls[int(index)]


@rule("list_gather", kind="move")
def list_gather(ls, indices):
    return np.stack([_read(ls, i) for i in np.ravel(indices)])


@rule("list_scatter", kind="move")
def list_scatter(ls, indices, value):
    for index, element in zip(np.ravel(indices), value, strict=True):
        ls = _write(ls, index, element)
    return ls
