"""Indexing: TopK, OneHot, Scatter, and negative axes and indices, which opset 11 added."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, flattened, up
from onnxbridge.hub.opset.known_values import dtype_of, fixed_shape, known, rank_of
from onnxbridge.rules import Int


@up("TopK", to=10)
def top_k(op, X, *, k, axis=-1):
    return op.TopK(X, [k], axis=axis, outputs=2)


@down("TopK", to=10)
def top_k_largest(op, X, K, *, axis=-1, largest=1, sorted=1):
    """Sorted results are also valid for sorted=0."""
    dtype = dtype_of(X)
    if dtype.is_integer():
        return _top_of_integers(op, X, K, axis, largest)
    if largest:
        return op.TopK(X, K, axis=axis, outputs=2)
    values, indices = op.TopK(op.Neg(X), K, axis=axis, outputs=2)
    return op.Neg(values), indices


def _top_of_integers(op, X, K, axis, largest):
    """Before opset 11 only floats were supported: a radix sort by digits that float32 represents, the lowest digit first.

    TopK is stable, so each pass keeps the order of the passes before it.
    """
    size = X.shape[axis] if X.shape is not None else None
    if not isinstance(size, int):
        raise Unsupported("opset 11 added integers, and the length of the axis must be known")
    dtype = dtype_of(X)
    wide = ir.DataType.UINT64 if dtype == ir.DataType.UINT64 else ir.DataType.INT64
    rest, digits = op.Cast(X, to=wide), []
    base = op.constant(1 << _DIGIT, dtype=wide)
    for _ in range(0, dtype.bitwidth, _DIGIT):
        high = op.Div(rest, base)
        digit = op.Cast(op.Sub(rest, op.Mul(high, base)), to=1)
        digits.append(digit if largest else op.Neg(digit))
        rest = high
    order = None
    for i, digit in enumerate(digits):
        count = K if i == len(digits) - 1 else np.array([size], np.int64)
        digit = digit if order is None else gather_elements(op, digit, order, axis=axis)
        _, indices = op.TopK(digit, count, axis=axis, outputs=2)
        order = indices if order is None else gather_elements(op, order, indices, axis=axis)
    return gather_elements(op, X, order, axis=axis), order


_DIGIT = 22


@down("TopK", to=9)
def top_k_number(op, X, K: Int, *, axis=-1):
    return op.TopK(X, k=K, axis=axis, outputs=2)


@up("Scatter", to=11)
def scatter(op, data, indices, updates, *, axis=0):
    return op.ScatterElements(data, indices, updates, axis=axis)


@down("ScatterElements", to=10)
def scatter_elements(op, data, indices, updates, *, axis=0):
    return op.Scatter(data, indices, updates, axis=axis % rank_of(data) if axis < 0 else axis)


@down("Gather", to=10)
def gather(op, data, indices, *, axis=0):
    """Negative axes and indices were not supported."""
    found = known(indices)
    if found is not None and found.size and found.min() < 0:
        indices = np.where(found < 0, found + fixed_shape(data)[axis], found)
    return op.Gather(data, indices, axis=axis % rank_of(data) if axis < 0 else axis)


@down("Where", to=8)
def where(op, condition, X, Y):
    """A Gather from X and Y, flattened and concatenated, which keeps every element exactly."""
    inputs = (condition, X, Y)
    if all(v.shape is not None and all(isinstance(d, int) for d in v.shape) for v in inputs):
        shape = np.broadcast_shapes(*(tuple(v.shape) for v in inputs))
        count = int(np.prod(shape, dtype=np.int64))
        positions, size, result_shape = (
            op.constant(np.arange(count).reshape(shape)),
            np.array(count, np.int64),
            np.array(shape, np.int64),
        )
    else:
        whole = functools.reduce(op.Or, (v if v is condition else op.Cast(v, to=ir.DataType.BOOL) for v in inputs))
        size, result_shape = op.Size(whole), op.Shape(whole)
        positions, shape = op.Reshape(flattened.map_range(op, size), result_shape), None
    rows = (v if shape is not None and tuple(v.shape) == shape else op.Expand(v, result_shape) for v in (X, Y))
    both = op.Concat(*(op.Reshape(v, [-1]) for v in rows), axis=0)
    second = op.Mul(op.Cast(op.Not(condition), to=7), size)
    return op.Gather(both, op.Add(second, positions), axis=0)


@down("GatherElements", to=10)
def gather_elements(op, data, indices, *, axis=0):
    return op.Gather(op.Reshape(data, [-1]), flattened.along_axis(op, data, indices, axis), axis=0)


@down("Scatter", to=8)
def scatter_in_a_loop(op, data, indices, updates, *, axis=0):
    """A Gather from the concatenated data and updates; a loop computes the source index of each element."""
    count, steps = (flattened.product(op, flattened.sizes(op, v)) for v in (data, indices))
    positions = flattened.arange(op, count)
    targets = op.Reshape(flattened.along_axis(op, data, indices, axis), [-1])
    first, steps = (op.constant(np.array(n, np.int64)) if isinstance(n, int) else n for n in (count, steps))

    def body(step, condition, source):
        here = op.Cast(op.Equal(positions, op.Gather(targets, step, axis=0)), to=7)
        difference = op.Sub(op.Add(step, first), source)
        return [condition, op.Add(source, op.Mul(here, difference))]

    source = op.Loop(steps, True, positions, body=body)
    both = op.Concat(op.Reshape(data, [-1]), op.Reshape(updates, [-1]), axis=0)
    return op.Reshape(op.Gather(both, source, axis=0), op.Shape(data))


def _depth(indices):
    """The length of an index tuple."""
    depth = indices.shape[-1] if rank_of(indices) else None
    if not isinstance(depth, int):
        raise Unsupported(f"the last size of {indices.name!r} must be known")
    return depth


@down("GatherND", to=11)
def gather_nd_batches(op, data, indices, *, batch_dims=0):
    if not batch_dims:
        return op.GatherND(data, indices)
    return _gather_rows(op, data, indices, batch_dims)


def _gather_rows(op, data, indices, batch):
    index, trailing = flattened.rows(op, data, indices, _depth(indices), batch)
    return op.Gather(op.Reshape(data, op.dims([-1, *trailing])), index, axis=0)


@down("GatherND", to=10)
def gather_nd(op, data, indices):
    return _gather_rows(op, data, indices, 0)


@down("ScatterND", to=10)
def scatter_nd(op, data, indices, updates):
    """Scatters the elements of each row in the flattened tensor."""
    index, trailing = flattened.rows(op, data, indices, _depth(indices), 0)
    count = flattened.product(op, trailing)
    positions = op.Add(flattened.scaled(op, op.Reshape(index, [-1, 1]), count), flattened.arange(op, count))
    rows = (op.Reshape(v, [-1]) for v in (data, positions, updates))
    return op.Reshape(op.Scatter(*rows, axis=0), op.Shape(data))


_REDUCTION_OPS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def _sequential_updates(op, data, updates, reduction, update, steps):
    """Applies updates one by one in a loop, since several may have the same index."""

    def body(step, condition, current):
        current.shape = data.shape
        old, new, write = update(op, step, current, updates)
        return [condition, write(op.call(_REDUCTION_OPS[reduction], old, new))]

    return op.Loop(steps, True, data, body=body)


def _scatter_elements(native):
    def scatter(op, data, indices, updates, *, axis=0, reduction="none"):
        if reduction in native:
            attrs = {} if native == ("none",) else {"reduction": reduction}
            return op.ScatterElements(data, indices, updates, axis=axis, **attrs)

        def update(op, step, current, updates):
            """One slice of the updates, whose elements have distinct indices."""
            where = op.Unsqueeze(step, [0])
            index, new = (op.Gather(v, where, axis=axis) for v in (indices, updates))
            return op.GatherElements(current, index, axis=axis), new, lambda v: op.ScatterElements(current, index, v, axis=axis)

        steps = op.Gather(op.Shape(indices), np.array(axis % rank_of(data), np.int64))
        return _sequential_updates(op, data, updates, reduction, update, steps)

    return scatter


def _scatter_nd(native):
    def scatter(op, data, indices, updates, *, reduction="none"):
        if reduction in native:
            return op.ScatterND(data, indices, updates, **({} if native == ("none",) else {"reduction": reduction}))
        depth = _depth(indices)
        tuples = op.Reshape(indices, [-1, depth])
        rows = op.Reshape(updates, op.dims([-1, *flattened.sizes(op, data)[depth:]]))

        def update(op, step, current, updates):
            where = op.Unsqueeze(step, [0])
            index, new = op.Gather(tuples, where, axis=0), op.Gather(rows, where, axis=0)
            return op.GatherND(current, index), new, lambda v: op.ScatterND(current, index, v)

        steps = op.Gather(op.Shape(tuples), np.array(0, np.int64))
        return _sequential_updates(op, data, updates, reduction, update, steps)

    return scatter


for _to, _native in ((17, ("none", "add", "mul")), (15, ("none",))):
    down("ScatterElements", to=_to)(_scatter_elements(_native))
    down("ScatterND", to=_to)(_scatter_nd(_native))


@down("OneHot", to=10)
def one_hot(op, indices, depth, values, *, axis=-1):
    """Negative indices gave a row of `off` before; other indices out of range still do."""
    found = known(indices)
    if found is None or (found < 0).any():
        indices = op.Cast(indices, to=7)
        size = op.Cast(depth if depth.shape is not None and not len(depth.shape) else op.Reshape(depth, [1]), to=7)
        zero = np.array(0, np.int64)
        indices = op.Add(indices, op.Mul(op.Cast(op.Less(indices, zero), to=7), size))
        # indices that are still negative are moved past the end, since runtimes may treat them as negative again
        indices = op.Add(indices, op.Mul(op.Cast(op.Less(indices, zero), to=7), op.Sub(size, indices)))
    return op.OneHot(indices, depth, values, axis=axis)


@down("OneHot", to=8)
def one_hot_by_comparing(op, indices, depth, values, *, axis=-1):
    rank = rank_of(indices) + 1
    axis %= rank
    found = known(depth)
    size = int(found.reshape(())) if found is not None else op.Reshape(op.Cast(depth, to=7), np.zeros(0, np.int64))
    classes = op.Reshape(flattened.arange(op, size), [-1] + [1] * (rank - 1 - axis))
    hot = op.Equal(op.Unsqueeze(op.Cast(indices, to=7), axes=[axis]), classes)
    return op.Gather(values, op.Cast(hot, to=7), axis=0)


@down("EyeLike", to=8)
def eye_like(op, input, *, dtype=None, k=0):
    """Ones where column = row + k."""
    rows, columns = (flattened.arange(op, size) for size in flattened.sizes(op, input))
    rows = op.Add(op.Reshape(rows, [-1, 1]), np.array(k, np.int64))
    return op.Cast(op.Equal(rows, op.Reshape(columns, [1, -1])), to=dtype or dtype_of(input))


@down("ReverseSequence", to=9)
def reverse_sequence(op, input, sequence_lens, *, batch_axis=1, time_axis=0):
    """A Gather by the flat index over the first two axes."""
    shape = flattened.sizes(op, input)
    steps = op.Reshape(flattened.arange(op, shape[time_axis]), [-1, 1] if time_axis == 0 else [1, -1])
    along = [-1, 1] if batch_axis == 0 else [1, -1]
    batch = op.Reshape(flattened.arange(op, shape[batch_axis]), along)
    lengths = op.Reshape(op.Cast(sequence_lens, to=7), along)
    inside = op.Cast(op.Less(steps, lengths), to=7)
    last = op.Sub(lengths, op.Add(op.Add(steps, steps), np.array(1, np.int64)))
    row_step = op.Add(op.Mul(inside, last), steps)
    far, near = (shape[1] if axis == 0 else 1 for axis in (time_axis, batch_axis))
    index = op.Reshape(op.Add(flattened.scaled(op, row_step, far), flattened.scaled(op, batch, near)), [-1])
    return op.Reshape(op.Gather(op.Reshape(input, op.dims([-1, *shape[2:]])), index, axis=0), op.Shape(input))


@down("Trilu", to=13)
def trilu(op, input, k=None, *, upper=1):
    """Keeps elements whose column minus row is at least (upper) or at most (lower) `k`."""
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    rows, columns = (op.Range(zero, op.Gather(op.Shape(input), np.array(axis, np.int64)), one) for axis in (-2, -1))
    distance = op.Sub(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))
    k = zero if k is None else k
    outside = op.Less(distance, k) if upper else op.Greater(distance, k)
    return op.Where(outside, np.zeros((), dtype_of(input).numpy()), input)
