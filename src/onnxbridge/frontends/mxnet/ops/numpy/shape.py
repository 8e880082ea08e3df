"""Reshaping, joining, splitting, padding and reordering."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule, shape
from onnxbridge.frontends.mxnet.ops.shape import FIRST, LAST, moved_axes, product, sizes
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.ir.values import is_integer, rank, static_shape


@rule("_np_squeeze")
def squeeze(op, a, *, axis=None):
    if axis is None and not all(isinstance(d, int) for d in a.shape):
        raise Unsupported("squeeze of dynamic dimensions without axis is not supported", hint="pass axis, or static shapes")
    axes = list(as_tuple(axis)) if axis is not None else [i for i, d in enumerate(a.shape) if d == 1]
    return op.Squeeze(a, axes) if axes and rank(a) else op.Identity(a)  # of a scalar MXNet ignores axis 0 and -1


@rule("_np_transpose")
def transpose(op, a, *, axes=None):
    order = [d % rank(a) for d in as_tuple(axes)] or list(range(rank(a)))[::-1]
    return op.Transpose(a, perm=order)


@rule("_np_reshape")
def reshape(op, a, *, newshape, order="C"):
    new = list(as_tuple(newshape))
    if order != "C" or any(d < -1 for d in new):
        raise Unsupported(f"newshape={newshape} in order {order!r} is not supported")
    return op.Reshape(a, np.array(new, np.int64), allowzero=1 if 0 in new else None)


@rule("_npx_reshape")
def npx_reshape(op, a, *, newshape, reverse=False, order="C"):
    if order != "C":
        raise Unsupported(f"order={order!r} is not supported")
    codes, dims = list(as_tuple(newshape)), sizes(op, a)
    if reverse:
        return op.reshape(a, _new_sizes(op, dims[::-1], codes[::-1])[::-1])
    return op.reshape(a, _new_sizes(op, dims, codes))


def _new_sizes(op, dims, codes):
    """The new sizes from the codes and the old sizes.

    -1 is what is left, -2 keeps a dimension, -3 removes one of size 1, -4 keeps all that follow, -5 joins two, -6 splits one into
    the next two.
    """
    new, at, codes = [], 0, list(codes)
    while codes:
        code = codes.pop(0)
        if code >= -1:
            new.append(code)
            at += 1
        elif code == -2:
            new.append(dims[at])
            at += 1
        elif code == -3:
            at += 1
        elif code == -4:
            new += dims[at:]
            at = len(dims)
        elif code == -5:
            new.append(product(op, dims[at : at + 2]))
            at += 2
        elif code == -6:
            a, b = codes.pop(0), codes.pop(0)
            new += [shape.divide(op, dims[at], b) if a == -1 else a, shape.divide(op, dims[at], a) if b == -1 else b]
            at += 1
        else:
            raise Unsupported(f"unknown shape code {code}")
    return new


@rule("_npi_broadcast_to")
def broadcast_to(op, array, *, shape=()):
    """A size of -2 is unchanged."""
    return op.Expand(array, np.array([1 if d == -2 else d for d in as_tuple(shape)], np.int64))


@rule("_np_copy")
def copy(op, a):
    return op.Identity(a)


@rule("_np_moveaxis")
def moveaxis(op, a, *, source, destination):
    return op.Transpose(a, perm=moved_axes(rank(a), as_tuple(source), as_tuple(destination)))


@rule("_np_roll")
def roll(op, data, *, shift=None, axis=None):
    """Elements that leave at one end come back at the other; without an axis, of the flattened array."""
    if axis is None:
        return op.Reshape(roll(op, op.Reshape(data, [-1]), shift=as_tuple(shift)[:1], axis=(0,)), op.Shape(data))
    axes, shifts = as_tuple(axis), as_tuple(shift)
    for a, s in zip(axes, shifts * len(axes) if len(shifts) == 1 else shifts, strict=True):
        size = op.size(data, a)
        known = [-s % size if size else 0] if isinstance(size, int) else None
        if known == [0]:
            continue
        start = op.Reshape(op.Mod(op.constant(np.int64(-s)), size), [1]) if known is None else known
        data = op.Concat(op.Slice(data, start, [LAST], [a]), op.Slice(data, [0], start, [a]), axis=a)
    return op.Identity(data)


@rule("_npi_flip")
def flip(op, data, *, axis):
    axes = list(range(rank(data))) if axis is None else list(as_tuple(axis))
    return op.Slice(data, [LAST] * len(axes), [FIRST] * len(axes), axes, [-1] * len(axes)) if axes else op.Identity(data)


@rule("_npi_rot90")
def rot90(op, data, *, k=1, axes=None):
    """Rotate by k quarter turns in the plane of two axes."""
    a, b = (x % rank(data) for x in as_tuple(axes) or (0, 1))
    order = list(range(rank(data)))
    order[a], order[b] = b, a
    if k % 4 == 0:
        return op.Identity(data)
    if k % 4 == 2:
        return flip(op, data, axis=(a, b))
    if k % 4 == 1:
        return op.Transpose(flip(op, data, axis=(b,)), perm=order)
    return flip(op, op.Transpose(data, perm=order), axis=(b,))


# joining


@rule("_npi_concatenate")
def concatenate(op, *data, axis=0, dim=None):
    """Without an axis, of the flattened arrays."""
    if axis is None:
        return op.Concat(*[op.Reshape(d, [-1]) for d in data], axis=0)
    return op.Concat(*data, axis=axis)


@rule("_npi_stack")
def stack(op, *data, axis=0):
    return op.Concat(*[op.Unsqueeze(d, [axis]) for d in data], axis=axis)


@rule("_npi_hstack")
def hstack(op, *data, axis=0, dim=1):
    parts = [op.Unsqueeze(d, [0]) if rank(d) == 0 else d for d in data]
    return op.Concat(*parts, axis=0 if rank(parts[0]) == 1 else 1)


@rule("_npi_vstack")
def vstack(op, *data):
    return op.Concat(*[_at_least_2d(op, d) for d in data], axis=0)


@rule("_npi_dstack")
def dstack(op, *data, axis=0, dim=1):
    return op.Concat(*[_at_least_3d(op, d) for d in data], axis=2)


@rule("_npi_column_stack")
def column_stack(op, *data):
    return op.Concat(*[op.Reshape(d, [-1, 1]) if rank(d) < 2 else d for d in data], axis=1)


def _at_least_1d(op, x):
    return op.Unsqueeze(x, [0]) if rank(x) == 0 else op.Identity(x)


def _at_least_2d(op, x):
    return op.Unsqueeze(x, list(range(2 - rank(x)))) if rank(x) < 2 else op.Identity(x)


def _at_least_3d(op, x):
    if rank(x) >= 3:
        return op.Identity(x)
    return op.Unsqueeze(x, {0: [0, 1, 2], 1: [0, 2], 2: [2]}[rank(x)])


def _at_least(function):
    def lower(op, *arys):
        return tuple(function(op, a) for a in arys)

    return lower


rule("_np_atleast_1d")(_at_least(_at_least_1d))
rule("_np_atleast_2d")(_at_least(_at_least_2d))
rule("_np_atleast_3d")(_at_least(_at_least_3d))


# splitting


def _split_along(axis):
    def lower(op, data, *, indices, axis=1, squeeze_axis=False, sections=0):
        along = 0 if rank(data) == 1 else axis_of
        return shape.split_v2(op, data, indices=indices, axis=along, squeeze_axis=squeeze_axis, sections=sections)

    axis_of = axis
    return lower


rule("_npi_hsplit")(_split_along(1))
rule("_npi_dsplit")(_split_along(2))


# diagonals


@rule("_np_diag")
def diag(op, data, *, k=0):
    """A matrix with the elements of a vector on a diagonal, or the diagonal of a matrix."""
    return shape.diag(op, data, k=k)


@rule("_np_diagflat")
def diagflat(op, data, *, k=0):
    return shape.diag(op, op.Reshape(data, [-1]), k=k)


@rule("_np_diagonal")
def diagonal(op, data, *, offset=0, axis1=0, axis2=1):
    return shape.diag(op, data, k=offset, axis1=axis1, axis2=axis2)


@rule("_npi_tril")
def tril(op, data, *, k=0):
    """A vector stands for the matrix whose rows are that vector."""
    if rank(data) == 1:
        data = op.Expand(data, op.Concat(op.Shape(data), op.Shape(data), axis=0))
    return op.Trilu(data, op.constant(np.int64(k)), upper=0)


# padding


@rule("_npi_pad")
def pad(op, data, *, pad_width, mode="constant", constant_value=0.0, reflect_type="even"):
    if reflect_type != "even":
        raise Unsupported(f"reflect_type={reflect_type!r} is not supported")
    widths = [as_tuple(w) for w in pad_width]
    if mode in ("maximum", "minimum"):
        return _pad_extreme(op, data, "ReduceMax" if mode == "maximum" else "ReduceMin", widths)
    if mode in ("symmetric", "reflect"):
        return _pad_mirrored(op, data, widths, mode)
    before, after = zip(*widths, strict=True)
    if mode == "edge":
        return op.Pad(data, [*before, *after], mode=mode)
    if mode != "constant":
        raise Unsupported(f"mode={mode!r} is not supported")
    value = int(constant_value) if is_integer(data) else constant_value
    return op.Pad(data, [*before, *after], op.constant(value, dtype=data.dtype))


def _pad_extreme(op, data, onnx, widths):
    for axis, (before, after) in enumerate(widths):
        value = op.call(onnx, data, [axis], keepdims=1)
        if before or after:
            data = op.Concat(*[value] * before, data, *[value] * after, axis=axis)
    return data


def _pad_mirrored(op, data, widths, mode):
    """ONNX reflects by less than the size of an axis, and not the edge itself: other widths gather elements by index."""
    dims = [op.size(data, i) for i in range(rank(data))]
    if mode == "reflect" and not any(isinstance(d, int) and max(w) >= d for d, w in zip(dims, widths, strict=True)):
        before, after = zip(*widths, strict=True)
        return op.Pad(data, [*before, *after], mode="reflect")
    for axis, width in enumerate(widths):
        if any(width):
            (size,) = static_shape(data, [axis])
            data = op.Gather(data, np.pad(np.arange(size), width, mode=mode), axis=axis)
    return data
