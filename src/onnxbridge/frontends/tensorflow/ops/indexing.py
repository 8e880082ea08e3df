"""Gather, scatter and slices."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import LEAST, MOST, int64, known_ints
from onnxbridge.frontends.tensorflow.wider_dtypes import where as selected
from onnxbridge.hub.decompositions.standard.dynamic_axis import along
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.fold import known_elements
from onnxbridge.hub.ir.values import cast, rank, zero


@rule("Gather")
def gather(op, params, indices):
    return _gathered(op, params, indices, 0, 0)


@rule("GatherV2")
def gather_v2(op, params, indices, axis, *, batch_dims=0):
    axes = known_ints(axis)
    if axes is None and not batch_dims:
        return along(op, axis, rank(params), lambda a: op.Gather(params, indices, axis=a))
    if axes is None:
        raise Unsupported("an axis known only when the model runs, with batch_dims")
    return _gathered(op, params, indices, axes[0], batch_dims)


@rule("ResourceGather")
def resource_gather(op, resource, indices, *, batch_dims=0, dtype):
    return _gathered(op, resource, indices, batch_dims, batch_dims)


def _gathered(op, params, indices, axis, batch_dims):
    if params.shape is not None:
        axis = axis % rank(params)
    indices = indices if indices.dtype == ir.DataType.INT32 else int64(op, indices)
    batch_dims = batch_dims + rank(indices) if batch_dims < 0 else batch_dims
    if not batch_dims and (params.dtype != ir.DataType.STRING or axis == rank(params) - 1):
        return op.Gather(params, indices, axis=axis)
    if axis != batch_dims:  # move the indexed axis after the batch axes, and the indices' axes back to its position
        n, m = rank(params), rank(indices)
        rest = [i for i in range(n) if i != axis]
        moved = op.Transpose(params, perm=[*rest[:batch_dims], axis, *rest[batch_dims:]])
        y = _gathered(op, moved, indices, batch_dims, batch_dims)
        between = axis - batch_dims
        consumed = list(range(batch_dims, m))
        inner = list(range(m, m + between))
        return op.Transpose(y, perm=[*range(batch_dims), *inner, *consumed, *range(m + between, n - 1 + m - batch_dims)])
    # also rows of strings: ONNX Runtime 1.31's Gather returns only the first of each
    return op.GatherND(params, op.Unsqueeze(int64(op, indices), [-1]), batch_dims=batch_dims)


@rule("GatherNd")
def gather_nd(op, params, indices):
    return op.GatherND(params, int64(op, indices))


@rule("ResourceGatherNd")
def resource_gather_nd(op, resource, indices, *, dtype):
    return op.GatherND(resource, int64(op, indices))


@rule("ScatterNd")
def scatter_nd(op, indices, updates, shape):
    zeros = op.Expand(zero(updates.dtype), int64(op, shape))
    return scatter(op, zeros, indices, updates, "add")


def scatter(op, tensor, indices, updates, reduction):
    """ScatterND; half-precision reductions in float32, as runtimes have no kernel for them."""
    dtype = tensor.dtype
    if reduction != "none" and dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        tensor, updates = (op.Cast(v, to=ir.DataType.FLOAT) for v in (tensor, updates))
    return cast(op, op.ScatterND(tensor, int64(op, indices), updates, reduction=reduction), dtype)


def _scatter_rule(name, reduction):
    @rule(name)
    def scatter_of(op, tensor, indices, updates):
        return scatter(op, tensor, indices, updates, reduction)


for _name, _reduction in {
    "TensorScatterUpdate": "none", "TensorScatterAdd": "add", "TensorScatterMax": "max", "TensorScatterMin": "min",
}.items():  # fmt: skip
    _scatter_rule(_name, _reduction)


@rule("TensorScatterSub")
def tensor_scatter_sub(op, tensor, indices, updates):
    return scatter(op, tensor, indices, op.Sub(np.zeros((), updates.dtype.numpy()), updates), "add")


def _in_place(name, reduction, sign=1):
    @rule(name)
    def in_place(op, x, i, v):
        """The rows i of x, modulo their number, replaced or changed by v, one after the other."""
        at = op.Unsqueeze(op.Mod(op.Reshape(int64(op, i), [-1]), op.Shape(x, start=0, end=1)), [1])
        return scatter(op, x, at, v if sign > 0 else op.Sub(np.zeros((), v.dtype.numpy()), v), reduction)


_in_place("InplaceUpdate", "none")
_in_place("InplaceAdd", "add")
_in_place("InplaceSub", "add", sign=-1)


@rule("Slice")
def slice_(op, input, begin, size):
    """A size of -1 is all that follows."""
    vector = begin if isinstance(begin.shape[0], int) else size
    count = sizes.length(vector, "a slice") if input.shape is None else rank(input)
    starts, lengths = sizes.elements(op, begin, count), sizes.elements(op, size, count)
    if all(isinstance(s, int) for s in (*starts, *lengths)):
        ends = [MOST if s == -1 else b + s for b, s in zip(starts, lengths, strict=True)]
        sliced = [i for i in range(count) if starts[i] or ends[i] != MOST and (input.shape is None or ends[i] != input.shape[i])]
        return op.Slice(input, [starts[i] for i in sliced], [ends[i] for i in sliced], sliced) if sliced else input
    named = known_elements(size) or [None] * count
    dims = [d if isinstance(d, int) else d.value for d in input.shape or ir.Shape([None] * count)]
    whole = [starts[i] == 0 and named[i] is not None and named[i] in (dims[i], -1) for i in range(count)]
    axes = [i for i in range(count) if not whole[i]]
    if not axes:
        return input
    vectors = int64(op, begin), int64(op, size), op.Shape(input)
    begin, size, longest = vectors if len(axes) == count else (op.Gather(v, axes) for v in vectors)
    is_size = all(isinstance(named[i], str) for i in axes)  # the name of a size, which is never -1
    ends = op.Add(begin, size)
    return op.Slice(input, begin, ends if is_size else op.Where(op.Less(size, 0), longest, ends), axes)


@rule("XlaDynamicSlice")
def dynamic_slice(op, input, start_indices, size_indices):
    """The slice lies inside of the input: start indices are limited to where it fits."""
    n = rank(input)
    if not n:
        return input
    size = int64(op, size_indices)
    start = _fitting(op, input, start_indices, size)
    return op.Slice(input, start, op.Add(start, size), list(range(n)))


@rule("XlaDynamicUpdateSlice")
def dynamic_update_slice(op, input, update, indices):
    """The update lies inside of the input: start indices are limited to where it fits."""
    n = rank(input)
    if not n:
        return update
    start = _fitting(op, input, indices, op.Shape(update))
    partial = [a for a in range(n) if not isinstance(update.shape[a], int) or update.shape[a] != input.shape[a]]
    return _placed(op, input, update, start, partial)


def _fitting(op, input, start, size):
    return op.Max(op.Min(int64(op, start), op.Sub(op.Shape(input), size)), np.zeros(rank(input), np.int64))


def _placed(op, input, update, start, axes):
    """`input` with `update` at `start`, axis by axis: the innermost update is completed with what stands beside it."""
    if not axes:
        return update
    axis, rest = axes[0], axes[1:]
    begin = op.Slice(start, [axis], [axis + 1], [0])
    end = op.Add(begin, op.Shape(update, start=axis, end=axis + 1))
    update = _placed(op, op.Slice(input, begin, end, [axis]), update, start, rest) if rest else update
    before = op.Slice(input, [0], begin, [axis])
    return op.Concat(before, update, op.Slice(input, end, [MOST], [axis]), axis=axis)


@rule("StridedSlice")
def strided_slice(
    op, input, begin, end, strides, *, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0
):
    """Each position of the three vectors is an input axis, a new axis, or the ellipsis for the remaining axes."""
    steps_of = sizes.elements(op, strides, _index_count(begin, end, strides))
    kinds = [
        "..." if ellipsis_mask >> i & 1 else "new" if new_axis_mask >> i & 1 else "pick" if shrink_axis_mask >> i & 1 else "range"
        for i in range(len(steps_of))
    ]
    consumed = sum(k in ("pick", "range") for k in kinds)
    starts, ends, axes, steps, new, picks = [], [], [], [], [], []
    axis = new_axis_index = 0
    for i, kind in enumerate(kinds):
        if kind == "...":
            axis += rank(input) - consumed
            new_axis_index += rank(input) - consumed
        elif kind == "new":
            new.append(new_axis_index)
            new_axis_index += 1
        elif kind == "pick":
            picks.append((axis, i))
            axis += 1
        else:
            low = None if begin_mask >> i & 1 else _element(op, begin, i)
            high = None if end_mask >> i & 1 else _element(op, end, i)
            step = steps_of[i]
            high = _by_direction(op, step, MOST, LEAST) if high is None or _is_whole(input, axis, high, step) else high
            low, high = (_by_direction(op, step, 0, MOST), high) if low is None else _backward(op, input, axis, low, high, step)
            if not (step == 1 and isinstance(low, int) and low == 0 and isinstance(high, int) and high == MOST):
                starts.append(low)
                ends.append(high)
                axes.append(axis)
                steps.append(step)
            axis += 1
            new_axis_index += 1
    x = op.Slice(input, _vector(op, starts), _vector(op, ends), axes, _vector(op, steps)) if axes else input
    for k, (a, i) in enumerate(picks):
        at = _element(op, begin, i)
        x = op.Gather(x, np.array(at) if isinstance(at, int) else op.Squeeze(at, [0]), axis=a - k)
    return op.Unsqueeze(x, new) if new else x


@rule("TensorStridedSliceUpdate")
def tensor_strided_slice_update(op, input, begin, end, strides, value, **masks):
    """The slice of the elements' positions says which of them are replaced."""
    shape, count = op.Shape(input), op.Size(input)
    positions = strided_slice(op, op.Reshape(op.Range(np.int64(0), count, np.int64(1)), shape), begin, end, strides, **masks)
    updates = op.Expand(value, op.Shape(positions))
    flat = [op.Reshape(x, [-1]) for x in (input, positions, updates)]
    return op.Reshape(op.ScatterElements(*flat, axis=0), shape)


def _backward(op, x, axis, low, high, step):
    """A slice with a negative step that starts before the first element is empty; ONNX would start at the first."""
    if isinstance(step, int) and step > 0 or isinstance(low, int) and low >= -1:
        return low, high
    size = op.size(x, axis)
    if all(isinstance(v, int) for v in (low, step, size)):
        return (0, size) if low + size < 0 else (low, high)
    outside = op.And(op.Less(op.Add(low, size), 0), op.Less(step, 0))
    return op.Where(outside, 0, low), op.Where(outside, size, high)


def _is_whole(x, axis, high, step):
    """Whether a slice forward ends where the axis does."""
    size = None if x.shape is None else x.shape[axis]
    size = size if size is None or isinstance(size, int) else size.value
    return step == 1 and size is not None and (high == size if isinstance(high, int) else known_elements(high) == [size])


def _index_count(*vectors):
    counts = [v.shape[0] for v in vectors if isinstance(v.shape[0], int)]
    if not counts:
        raise Unsupported("a slice of an unknown number of axes")
    return counts[0]


def _by_direction(op, step, forward, backward):
    """The open end of a slice, which is the other one where the step is negative."""
    return (forward if step > 0 else backward) if isinstance(step, int) else op.Where(op.Greater(step, 0), forward, backward)


def _element(op, vector, i):
    """One element of an index vector: a number if it is known, otherwise a one-element value."""
    known = fold.known_sizes(vector)
    if known is not None and known[i] is not None:
        return known[i]
    return op.Slice(int64(op, vector), [i], [i + 1], [0])


def _vector(op, elements):
    if all(isinstance(e, int) for e in elements):
        return elements
    return op.Concat(*(np.array([e], np.int64) if isinstance(e, int) else op.Reshape(e, [1]) for e in elements), axis=0)


_ONE_HOT = (ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.STRING)


@rule("OneHot")
def one_hot(op, indices, depth, on_value, off_value, *, axis=-1):
    """Negative indices select nothing in TensorFlow but wrap in ONNX, so they are moved out of range."""
    depth = op.Reshape(int64(op, depth), [1])
    indices = int64(op, indices)
    if indices.shape is not None and rank(indices) == 0:
        return op.Squeeze(one_hot(op, op.Unsqueeze(indices, [0]), depth, on_value, off_value), [0])
    if on_value.dtype not in _ONE_HOT:  # runtimes have no kernel for others
        hot = one_hot(op, indices, depth, op.constant(np.int64(1)), op.constant(np.int64(0)), axis=axis)
        return selected(op, op.Cast(hot, to=ir.DataType.BOOL), on_value, off_value)
    outside = op.Where(op.Less(indices, 0), op.Reshape(depth, []), indices)
    values = op.Concat(op.Reshape(off_value, [1]), op.Reshape(on_value, [1]), axis=0)
    return op.OneHot(outside, depth, values, axis=axis)


_NON_ZERO = (ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64)


@rule("Where")
def where(op, input):
    input = input if input.dtype in _NON_ZERO else op.Cast(input, to=ir.DataType.BOOL)
    return op.Transpose(op.NonZero(input), perm=[1, 0])
