"""Lists of tensors. A list is a Python list that is never changed: writing gives a new one."""

import numpy as np

from onnxbridge.rules import Bool, Int, Str
from onnxbridge.runtime.mil.ops import Values, rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


@rule("make_list")
def make_list(elem_shape: Values, init_length: Int = 1, dynamic_length: Bool = True, dtype: Str = "fp32"):
    """Zeros where the shape of an element is known; where it is not, a place has to be written before it is read."""
    fixed = all(np.asarray(n).dtype.kind in "iu" for n in elem_shape)
    empty = np.zeros([int(n) for n in elem_shape], DTYPES[dtype]) if fixed else None
    return [empty] * init_length


@rule("list_length")
def list_length(ls):
    return np.asarray(len(ls), np.int32)


def _written(ls, index, value):
    """The list with another element; where it has to grow for it, by zeros."""
    grown = list(ls) + [np.zeros_like(value)] * (int(index) + 1 - len(ls))
    grown[int(index)] = value
    return grown


@rule("list_write", kind="move")
def list_write(ls, index, value):
    return _written(ls, index, value)


@rule("list_read", kind="move")
def list_read(ls, index):
    return _element(ls, index)


def _element(ls, index):
    if ls[int(index)] is None:
        raise ValueError(f"element {int(index)} of the list has no value yet")
    return ls[int(index)]


@rule("list_gather", kind="move")
def list_gather(ls, indices):
    return np.stack([_element(ls, i) for i in np.ravel(indices)])


@rule("list_scatter", kind="move")
def list_scatter(ls, indices, value):
    for index, element in zip(np.ravel(indices), value, strict=True):
        ls = _written(ls, index, element)
    return ls
