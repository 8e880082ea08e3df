"""Slice, gather, scatter, sort and non-maximum suppression operators."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Float, Int, Ints, Str
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


def _slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask):
    """The NumPy index of slice_by_index: a slice per axis, or an integer for a squeezed axis."""
    none = (False,) * x.ndim
    results = []
    for axis in range(x.ndim):
        step = stride[axis] if stride else 1
        first = None if (begin_mask or none)[axis] else begin[axis]
        last = None if (end_mask or none)[axis] else end[axis]
        if (squeeze_mask or none)[axis]:
            results.append((0 if step > 0 else -1) if first is None else first)
        else:
            results.append(slice(first, last, step))
    return tuple(results)


@rule("slice_by_index", kind="move")
def slice_by_index(
    x,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Ints | None = None,
    end_mask: Ints | None = None,
    squeeze_mask: Ints | None = None,
):
    return x[_slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)]


@rule("slice_update", kind="move")
def slice_update(
    x,
    update,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Ints | None = None,
    end_mask: Ints | None = None,
    squeeze_mask: Ints | None = None,
):
    y = x.copy()
    y[_slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)] = update
    return y


@rule("slice_by_size", kind="move")
def slice_by_size(x, begin: Ints, size: Ints):
    ends = (n if s == -1 else b % n + s if n else s for b, s, n in zip(begin, size, x.shape, strict=True))
    return x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]


def _valid_indices(indices, size, validate):
    """The indices as nonnegative integers. Indices out of range are an error with `validate`, else they are clamped: MIL leaves
    the result undefined."""
    indices = np.asarray(indices).astype(np.int64)
    if validate and indices.size and (indices.min() < 0 or indices.max() >= size):
        raise IndexError(f"an index is out of bounds [0, {size})")
    return np.clip(np.where(indices < 0, indices + size, indices), 0, max(0, size - 1))


@rule("gather", kind="move")
def gather(x, indices, axis: Int = 0, batch_dims: Int = 0, validate_indices: Bool = False):
    axis %= x.ndim
    batch_dims = batch_dims % x.ndim if batch_dims < 0 else batch_dims
    indices = _valid_indices(indices, x.shape[axis], validate_indices)
    if not batch_dims:
        return np.take(x, indices, axis)
    lead = x.shape[:batch_dims]
    flat, rows = x.reshape(-1, *x.shape[batch_dims:]), indices.reshape(-1, *indices.shape[batch_dims:])
    results = [np.take(row, index, axis - batch_dims) for row, index in zip(flat, rows, strict=True)]
    return np.stack(results).reshape(*lead, *results[0].shape)


@rule("gather_along_axis", kind="move")
def gather_along_axis(x, indices, axis: Int = 0, validate_indices: Bool = False):
    return np.take_along_axis(x, _valid_indices(indices, x.shape[axis], validate_indices), axis)


def _split_coordinates(indices, sizes, validate=False):
    """Split the last axis of coordinates into one index array per dimension."""
    return tuple(_valid_indices(indices[..., i], n, validate) for i, n in enumerate(sizes))


@rule("gather_nd", kind="move")
def gather_nd(x, indices, batch_dims: Int = 0, validate_indices: Bool = False):
    depth = indices.shape[-1]
    positions = _split_coordinates(indices, x.shape[batch_dims : batch_dims + depth], validate_indices)
    rank = indices.ndim - 1
    batch = [np.arange(n).reshape([-1 if a == i else 1 for a in range(rank)]) for i, n in enumerate(x.shape[:batch_dims])]
    return x[(*batch, *positions)]


# Accumulating scatter modes; repeated indices accumulate all updates.
UFUNC_AT = {
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "div": np.divide.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scatter(data, positions, updates, mode):
    y = data.copy()
    if mode == "update":
        y[positions] = updates
    elif mode in UFUNC_AT:
        UFUNC_AT[mode](y, positions, updates)
    else:
        raise Unsupported(f"mode {mode}")
    return y


@rule("scatter")
def scatter(data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= data.ndim
    return _scatter(data, (slice(None),) * axis + (_valid_indices(indices, data.shape[axis], validate_indices),), updates, mode)


@rule("scatter_along_axis")
def scatter_along_axis(data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= data.ndim
    positions = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    positions[axis] = _valid_indices(indices, data.shape[axis], validate_indices)
    return _scatter(data, tuple(positions), updates, mode)


@rule("scatter_nd")
def scatter_nd(data, indices, updates, mode: Str = "add", validate_indices: Bool = False):
    return _scatter(data, _split_coordinates(indices, data.shape[: indices.shape[-1]], validate_indices), updates, mode)


@rule("non_zero")
def non_zero(x):
    return np.argwhere(x).astype(np.int32)


@rule("one_hot")
def one_hot(indices, one_hot_vector_size: Int, axis: Int = -1, on_value=1, off_value=0.0):
    axis %= indices.ndim + 1
    classes = np.arange(one_hot_vector_size).reshape(-1, *(1 for _ in range(indices.ndim - axis)))
    return np.where(np.expand_dims(indices, axis) == classes, on_value, off_value)


def _order(x, axis, ascending):
    """The stable sort order of the elements along an axis."""
    if ascending:
        return np.argsort(x, axis, kind="stable")
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


@rule("argsort")
def argsort(x, axis: Int = -1, ascending: Bool = False):
    return _order(x, axis, ascending).astype(np.int32)


@rule("topk")
def topk(
    x,
    k: Int = 1,
    axis: Int = -1,
    ascending: Bool = False,
    sort: Bool = True,
    return_indices: Bool = True,
    output_indices_dtype: Str = "int32",
):
    """The k largest (`ascending`: smallest) elements. They are always sorted; without `sort` any order is valid."""
    order = np.take(_order(x, axis, ascending), np.arange(x.shape[axis] if k == -1 else k), axis)
    values = np.take_along_axis(x, order, axis)
    return (values, order.astype(DTYPES[output_indices_dtype])) if return_indices else values


@rule("non_maximum_suppression")
def non_maximum_suppression(
    boxes, scores, iou_threshold: Float, max_boxes: Int, per_class_suppression: Bool = False, score_threshold: Float | None = None
):
    """Before iOS17 (with a score threshold) boxes are rows, and their number is returned too; from then on they are columns.

    A box has the score and label of its best class. Unused entries are zeros, and -1 in the indices. The best box is returned
    even if no box reaches the threshold.
    """
    rows = score_threshold is not None
    if not rows:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    selected_boxes = np.zeros((len(boxes), max_boxes, 4), boxes.dtype)
    selected_scores = np.zeros((len(boxes), max_boxes, scores.shape[2]), scores.dtype)
    indices = np.full((len(boxes), max_boxes), -1, np.int32)
    counts = np.zeros(len(boxes), np.int32)
    for n, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        selected = _nms(box, score, iou_threshold, score_threshold, per_class_suppression)[:max_boxes]
        counts[n] = len(selected)
        selected_boxes[n, : len(selected)], selected_scores[n, : len(selected)] = box[selected], score[selected]
        indices[n, : len(selected)] = selected
    if rows:
        return selected_boxes, selected_scores, indices, counts
    return selected_boxes.swapaxes(1, 2), selected_scores.swapaxes(1, 2), indices


def _nms(boxes, scores, iou_threshold, score_threshold, per_class):
    """Non-maximum suppression of boxes (center x, center y, width, height); returns indices, best first."""
    best, label = scores.max(1), scores.argmax(1)
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    area = boxes[:, 2] * boxes[:, 3]
    remaining = [i for i in _order(best, 0, False) if score_threshold is None or best[i] >= score_threshold]
    selected = []
    while remaining:
        first, remaining = remaining[0], np.array(remaining[1:], int)
        selected.append(first)
        intersection = np.prod(
            np.maximum(np.minimum(high[first], high[remaining]) - np.maximum(low[first], low[remaining]), 0), 1
        )
        union = area[first] + area[remaining] - intersection
        overlaps = np.where(union > 0, intersection / union, 0) > iou_threshold
        remaining = list(remaining[~(overlaps & (label[remaining] == label[first])) if per_class else ~overlaps])
    return selected or [int(best.argmax())]
