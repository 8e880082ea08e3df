"""Slicing, gathering, scattering, sorting and selecting."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Float, Int, Ints, Str
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


def _slices(x, begin, end, stride, begin_mask, end_mask, squeeze_mask):
    """What slice_by_index takes of each axis: a slice or, where it is squeezed, an index."""
    none = (False,) * x.ndim
    found = []
    for axis in range(x.ndim):
        step = stride[axis] if stride else 1
        first = None if (begin_mask or none)[axis] else begin[axis]
        last = None if (end_mask or none)[axis] else end[axis]
        if (squeeze_mask or none)[axis]:
            found.append((0 if step > 0 else -1) if first is None else first)
        else:
            found.append(slice(first, last, step))
    return tuple(found)


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


def _checked(indices, size, validate):
    """The indices as integers that NumPy takes. Out of range is an error if the program asks for it, else the nearest place:
    MIL leaves the result open."""
    indices = np.asarray(indices).astype(np.int64)
    if validate and indices.size and (indices.min() < 0 or indices.max() >= size):
        raise IndexError(f"an index is outside [0, {size})")
    return np.clip(np.where(indices < 0, indices + size, indices), 0, max(0, size - 1))


@rule("gather", kind="move")
def gather(x, indices, axis: Int = 0, batch_dims: Int = 0, validate_indices: Bool = False):
    axis %= x.ndim
    batch_dims = batch_dims % x.ndim if batch_dims < 0 else batch_dims
    indices = _checked(indices, x.shape[axis], validate_indices)
    if not batch_dims:
        return np.take(x, indices, axis)
    lead = x.shape[:batch_dims]
    flat, rows = x.reshape(-1, *x.shape[batch_dims:]), indices.reshape(-1, *indices.shape[batch_dims:])
    found = [np.take(row, index, axis - batch_dims) for row, index in zip(flat, rows, strict=True)]
    return np.stack(found).reshape(*lead, *found[0].shape)


@rule("gather_along_axis", kind="move")
def gather_along_axis(x, indices, axis: Int = 0, validate_indices: Bool = False):
    return np.take_along_axis(x, _checked(indices, x.shape[axis], validate_indices), axis)


def _places(indices, sizes, validate=False):
    """The last axis of indices as one index array for each dimension."""
    return tuple(_checked(indices[..., i], n, validate) for i, n in enumerate(sizes))


@rule("gather_nd", kind="move")
def gather_nd(x, indices, batch_dims: Int = 0, validate_indices: Bool = False):
    depth = indices.shape[-1]
    places = _places(indices, x.shape[batch_dims : batch_dims + depth], validate_indices)
    rank = indices.ndim - 1
    batch = [np.arange(n).reshape([-1 if a == i else 1 for a in range(rank)]) for i, n in enumerate(x.shape[:batch_dims])]
    return x[(*batch, *places)]


# how a scattered update meets what is there, with every update of a place counting
MEET = {
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "div": np.divide.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scattered(data, places, updates, mode):
    y = data.copy()
    if mode == "update":
        y[places] = updates
    elif mode in MEET:
        MEET[mode](y, places, updates)
    else:
        raise Unsupported(f"mode {mode}")
    return y


@rule("scatter")
def scatter(data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= data.ndim
    return _scattered(data, (slice(None),) * axis + (_checked(indices, data.shape[axis], validate_indices),), updates, mode)


@rule("scatter_along_axis")
def scatter_along_axis(data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= data.ndim
    places = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    places[axis] = _checked(indices, data.shape[axis], validate_indices)
    return _scattered(data, tuple(places), updates, mode)


@rule("scatter_nd")
def scatter_nd(data, indices, updates, mode: Str = "add", validate_indices: Bool = False):
    return _scattered(data, _places(indices, data.shape[: indices.shape[-1]], validate_indices), updates, mode)


@rule("non_zero")
def non_zero(x):
    return np.argwhere(x).astype(np.int32)


@rule("one_hot")
def one_hot(indices, one_hot_vector_size: Int, axis: Int = -1, on_value=1, off_value=0.0):
    axis %= indices.ndim + 1
    classes = np.arange(one_hot_vector_size).reshape(-1, *(1 for _ in range(indices.ndim - axis)))
    return np.where(np.expand_dims(indices, axis) == classes, on_value, off_value)


def _order(x, axis, ascending):
    """The order of the elements along an axis; of equal ones the first comes first."""
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
    """The k largest (`ascending`: smallest) elements, always sorted: without `sort` any order is right."""
    order = np.take(_order(x, axis, ascending), np.arange(x.shape[axis] if k == -1 else k), axis)
    values = np.take_along_axis(x, order, axis)
    return (values, order.astype(DTYPES[output_indices_dtype])) if return_indices else values


@rule("non_maximum_suppression")
def non_maximum_suppression(
    boxes, scores, iou_threshold: Float, max_boxes: Int, per_class_suppression: Bool = False, score_threshold: Float | None = None
):
    """Before iOS17 (with a score threshold) the boxes are rows and their number is given too; from then on they are columns.

    A box has the score and the class of its best class. Places that stay empty are zeros, and -1 among the indices; the
    best box is given even where no box reaches the threshold.
    """
    rows = score_threshold is not None
    if not rows:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    kept_boxes = np.zeros((len(boxes), max_boxes, 4), boxes.dtype)
    kept_scores = np.zeros((len(boxes), max_boxes, scores.shape[2]), scores.dtype)
    indices = np.full((len(boxes), max_boxes), -1, np.int32)
    counts = np.zeros(len(boxes), np.int32)
    for n, (box, score) in enumerate(zip(boxes, scores, strict=True)):
        chosen = _survivors(box, score, iou_threshold, score_threshold, per_class_suppression)[:max_boxes]
        counts[n] = len(chosen)
        kept_boxes[n, : len(chosen)], kept_scores[n, : len(chosen)] = box[chosen], score[chosen]
        indices[n, : len(chosen)] = chosen
    if rows:
        return kept_boxes, kept_scores, indices, counts
    return kept_boxes.swapaxes(1, 2), kept_scores.swapaxes(1, 2), indices


def _survivors(boxes, scores, iou_threshold, score_threshold, per_class):
    """The boxes (x, y, width, height about the centre) that none of the better ones overlaps too much, best first."""
    best, label = scores.max(1), scores.argmax(1)
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    area = boxes[:, 2] * boxes[:, 3]
    left = [i for i in _order(best, 0, False) if score_threshold is None or best[i] >= score_threshold]
    chosen = []
    while left:
        first, left = left[0], np.array(left[1:], int)
        chosen.append(first)
        shared = np.prod(np.maximum(np.minimum(high[first], high[left]) - np.maximum(low[first], low[left]), 0), 1)
        union = area[first] + area[left] - shared
        over = np.where(union > 0, shared / union, 0) > iou_threshold
        left = list(left[~(over & (label[left] == label[first])) if per_class else ~over])
    return chosen or [int(best.argmax())]
