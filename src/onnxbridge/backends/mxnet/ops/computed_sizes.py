"""Sizes that a model computes when it runs, as int64 vectors of one element.

Of MXNet's operators only `_contrib_boolean_mask` has results whose size is no attribute. From the digits of n it makes a vector
of n elements, from which `take`, `reshape_like` and broadcasting get every other shape. Such symbols run in a SymbolBlock, which
infers shapes operator by operator; `Module` and `Symbol.bind` infer all of them before they run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxbridge.backends.mxnet.ops.types import BOOL, cast, sliced, typed
from onnxbridge.errors import Unsupported

BASE, DIGITS = 256, 4
LARGEST = 2**31 - 1
"""The largest size of an array that MXNet 1.9 supports."""
_EXACT = 2**40
"""Larger bounds of slices mean the end of an axis; constants up to here are stored as floats without loss."""


def integer(sym, x):
    """A number, or an array of one element, as an int64 vector of one element."""
    if not hasattr(x, "dtype") or isinstance(x, (np.ndarray, np.generic)):
        return sym.literal(np.clip(np.asarray(x), -_EXACT, _EXACT).astype(np.int64).reshape(1))
    if x.array is not None:
        return integer(sym, x.array)
    return vector_of_one(sym, cast(sym, x, np.int64))


def vector_of_one(sym, x):
    """An array of one element as a vector."""
    if x.shape == (1,):
        return x
    if x.shape == () and not sym.np_shape:  # it has a dimension then
        return replace(x, shape=(1,))
    return typed(sym._np_reshape(x, newshape=(1,)), x.dtype, (1,))


def element(sym, vector, index):
    """One element of an integer vector."""
    if vector.array is not None:
        return integer(sym, vector.array.reshape(-1)[index])
    return typed(sliced(sym, cast(sym, vector, np.int64), 0, index, index + 1), np.int64, (1,))


def size_of(sym, x, axis):
    """The size of an axis."""
    size = x.shape[axis]
    if isinstance(size, int):
        return integer(sym, size)
    return typed(sym.slice_axis(typed(sym.shape_array(x), np.int64), axis=0, begin=axis, end=axis + 1), np.int64, (1,))


def _operator(name):
    def compute(sym, a, b):
        return typed(sym.call(name, integer(sym, a), integer(sym, b)), np.int64, (1,))

    return compute


add, subtract, multiply = _operator("_npi_add"), _operator("_npi_subtract"), _operator("_npi_multiply")
minimum, maximum = _operator("_npi_minimum"), _operator("_npi_maximum")


def where(sym, condition, a, b):
    return typed(sym._npi_where(condition, integer(sym, a), integer(sym, b)), np.int64, (1,))


def less(sym, a, b):
    return typed(sym._npi_less(integer(sym, a), integer(sym, b)), BOOL, (1,))


def ceil_divided(sym, a, b):
    """The quotient of two numbers, rounded up, as an int64 vector of one element. float64 is exact for all sizes."""
    a, b = (cast(sym, v, np.float64) for v in (a, b))
    quotient = typed(sym.ceil(typed(sym._npi_true_divide(a, b), np.float64)), np.float64)
    return integer(sym, typed(quotient, np.float64, (1,)))


def product(sym, vector):
    """The product of the elements of an integer vector."""
    return typed(sym._np_prod(cast(sym, vector, np.int64), axis=(0,), keepdims=True), np.int64, (1,))


def selected(sym, data, flags):
    """The elements of a vector whose flags are not 0.

    Raises:
        Unsupported: inside a loop or a branch, where MXNet infers shapes before it runs.
    """
    sym.needs_np_shape = True
    if len(sym.graphs) > 1:
        raise Unsupported("a size that is computed inside a loop or a branch", "make it a constant, or compute the array before")
    return typed(sym._contrib_boolean_mask(data, flags), data.dtype, (None,))


def computed_zeros(sym, size):
    """As many zeros of float64 as a computed size, none where that is negative.

    Each digit of the size multiplies the number of zeros so far, and adds as many as it says. One more than these, which the last
    step removes, keeps the intermediate vectors from being empty, which MXNet's operators do not support.
    """
    size = sym.BlockGrad(cast(sym, minimum(sym, maximum(sym, size, 0), LARGEST), np.float64))
    zeros = sym.literal(np.zeros(1))
    for power in range(DIGITS)[::-1]:
        scaled = typed(sym._mul_scalar(typed(size, np.float64), scalar=float(BASE**-power)), np.float64)
        digit = cast(sym, typed(sym._mod_scalar(typed(sym.floor(scaled), np.float64), scalar=float(BASE)), np.float64), np.int64)
        chosen = typed(sym._npi_less_equal(np.arange(BASE), digit), BOOL)
        more = selected(sym, sym.literal(np.zeros(BASE)), chosen)
        zeros = typed(sym.Concat(typed(sym.tile(zeros, reps=(BASE,)), np.float64), more, dim=0), np.float64)
        zeros = typed(sym.slice_axis(zeros, axis=0, begin=BASE, end="None"), np.float64)
    return typed(sym.slice(zeros, begin=(1,), end=(None,)), np.float64, (None,))
