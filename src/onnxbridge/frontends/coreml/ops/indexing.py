"""Slicing, gathering, scattering, sorting and selecting."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.dtypes import named
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, fixed, rank
from onnxbridge.rules import Array, Bool, Float, Int, Ints, Str

INT64 = ir.DataType.INT64
LAST = np.iinfo(np.int64).max


def _sliced(op, x, begin, end, stride, begin_mask, end_mask, squeeze_mask):
    """`x` cut as slice_by_index cuts it, before axes are squeezed away."""
    none = (False,) * rank(x)
    steps = np.array(stride or (1,) * rank(x))
    squeezed = np.array(squeeze_mask or none, bool)
    first, last = np.array(begin_mask or none, bool), np.array(end_mask or none, bool)
    begin, end = (cast(op, v, INT64) for v in (begin, end))
    begin = op.Where(first, np.where(steps > 0, 0, LAST), begin) if first.any() else begin
    end = op.Where(last, np.where(steps > 0, LAST, -LAST), end) if last.any() else end
    if squeezed.any():  # one element, of which -1 is the last
        steps = np.where(squeezed, 1, steps)
        begin = op.Where(squeezed & first, np.where(np.array(stride or none) < 0, -1, 0), begin)
        after = op.Where(op.Equal(begin, -1), LAST, op.Add(begin, 1))
        end = op.Where(squeezed, after, end)
    return op.Slice(x, begin, end, list(range(rank(x))), steps)


@rule("slice_by_index")
def slice_by_index(
    op, x, begin, end, stride: Ints | None = None, begin_mask: Ints | None = None, end_mask: Ints | None = None,
    squeeze_mask: Ints | None = None,
):  # fmt: skip
    y = _sliced(op, x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    gone = [axis for axis, squeezed in enumerate(squeeze_mask or ()) if squeezed]
    return op.Squeeze(y, gone) if gone else y


@rule("slice_update")
def slice_update(
    op, x, update, begin, end, stride: Ints | None = None, begin_mask: Ints | None = None, end_mask: Ints | None = None,
    squeeze_mask: Ints | None = None,
):  # fmt: skip
    """The numbers of the places that the slice takes are cut out in the same way, and the update is scattered there."""
    count = op.ReduceProd(op.Shape(x), keepdims=0)
    numbers = op.Reshape(op.Range(np.int64(0), count, np.int64(1)), op.Shape(x))
    places = _sliced(op, numbers, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    gone = [axis for axis, squeezed in enumerate(squeeze_mask or ()) if squeezed]
    update = op.Expand(op.Unsqueeze(update, gone) if gone else update, op.Shape(places))
    flat = op.ScatterElements(op.Reshape(x, [-1]), op.Reshape(places, [-1]), op.Reshape(update, [-1]), axis=0)
    return op.Reshape(flat, op.Shape(x))


@rule("slice_by_size")
def slice_by_size(op, x, begin, size):
    begin, size = cast(op, begin, INT64), cast(op, size, INT64)
    begin = op.Where(op.Less(begin, 0), op.Add(begin, op.Shape(x)), begin)
    end = op.Where(op.Equal(size, -1), LAST, op.Add(begin, size))
    return op.Slice(x, begin, end, list(range(rank(x))))


@rule("gather")
def gather(op, x, indices, axis: Int = 0, batch_dims: Int = 0, validate_indices: Bool = False):
    indices, axis = cast(op, indices, INT64), axis % rank(x)
    batch_dims = batch_dims % rank(x) if batch_dims < 0 else batch_dims
    if not batch_dims:
        return op.Gather(x, indices, axis=axis)
    between = list(range(batch_dims, axis))
    order = [*range(batch_dims), axis, *between, *range(axis + 1, rank(x))]
    found = op.GatherND(op.Transpose(x, perm=order), op.Unsqueeze(indices, [-1]), batch_dims=batch_dims)
    many = rank(indices) - batch_dims
    places = list(range(batch_dims, batch_dims + many))
    behind = [batch_dims + many + i for i in range(len(between))]
    return op.Transpose(found, perm=[*range(batch_dims), *behind, *places, *range(axis + many, rank(found))])


@rule("gather_along_axis")
def gather_along_axis(op, x, indices, axis: Int = 0, validate_indices: Bool = False):
    return op.GatherElements(x, cast(op, indices, INT64), axis=axis)


@rule("gather_nd")
def gather_nd(op, x, indices, batch_dims: Int = 0, validate_indices: Bool = False):
    return op.GatherND(x, cast(op, indices, INT64), batch_dims=batch_dims)


REDUCTIONS = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "div": "mul", "max": "max", "min": "min"}


def _scattered(op, onnx, data, indices, updates, mode, **attrs):
    """ONNX's scattering operator; float16 meets in float32, since few runtimes reduce in float16."""
    if mode not in REDUCTIONS:
        raise Unsupported(f"mode {mode}")
    if mode == "div" and updates.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise Unsupported("mode div of integers")
    half = data.dtype == ir.DataType.FLOAT16 and mode != "update"
    kept, wide = data, ir.DataType.FLOAT if half else data.dtype
    data, updates = cast(op, data, wide), cast(op, updates, wide)
    updates = op.Neg(updates) if mode == "sub" else op.Reciprocal(updates) if mode == "div" else updates
    found = op.call(onnx, data, cast(op, indices, INT64), updates, reduction=REDUCTIONS[mode], **attrs)
    return cast(op, found, kept.dtype)


@rule("scatter")
def scatter(op, data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= rank(data)
    front = [axis, *(a for a in range(rank(data)) if a != axis)]
    many = rank(indices)
    moved = [*range(axis, axis + many), *range(axis), *range(axis + many, rank(updates))]
    data, updates = op.Transpose(data, perm=front), op.Transpose(updates, perm=moved)
    found = _scattered(op, "ScatterND", data, op.Unsqueeze(indices, [-1]), updates, mode)
    return op.Transpose(found, perm=np.argsort(front).tolist())


@rule("scatter_along_axis")
def scatter_along_axis(op, data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    return _scattered(op, "ScatterElements", data, indices, updates, mode, axis=axis)


@rule("scatter_nd")
def scatter_nd(op, data, indices, updates, mode: Str = "add", validate_indices: Bool = False):
    return _scattered(op, "ScatterND", data, indices, updates, mode)


@rule("non_zero")
def non_zero(op, x):
    return op.Cast(op.Transpose(op.NonZero(x), perm=[1, 0]), to=ir.DataType.INT32)


@rule("one_hot")
def one_hot(op, indices, one_hot_vector_size: Int, axis: Int = -1, on_value=1, off_value=0):
    """An index outside of the vector gives no `on_value`; in ONNX's own operator a negative one counts from the end."""
    axis %= rank(indices) + 1
    classes = np.arange(one_hot_vector_size).reshape(-1, *(1 for _ in range(rank(indices) - axis)))
    hot = op.Equal(op.Unsqueeze(cast(op, indices, INT64), [axis]), classes)
    on_value, off_value = (op.constant(np.int32(v)) if isinstance(v, int) else v for v in (on_value, off_value))
    if on_value.dtype != off_value.dtype:
        raise Unsupported("on_value and off_value of two types")
    return op.Where(hot, on_value, off_value)


def _topk(op, x, k, axis, largest):
    return op.TopK(x, op.Reshape(k, [1]), axis=axis, largest=int(largest), outputs=2)


@rule("argsort")
def argsort(op, x, axis: Int = -1, ascending: Bool = False):
    order = _topk(op, x, op.Shape(x, start=axis % rank(x), end=axis % rank(x) + 1), axis, not ascending)[1]
    return op.Cast(order, to=ir.DataType.INT32)


@rule("topk")
def topk(
    op, x, k=None, axis: Int = -1, ascending: Bool = False, sort: Bool = True, return_indices: Bool = True,
    output_indices_dtype: Str = "int32",
):  # fmt: skip
    """The k largest (`ascending`: smallest) elements, -1 for all; always sorted: without `sort` any order is right."""
    count = op.constant(np.int64(1)) if k is None else op.Reshape(cast(op, k, INT64), [])
    size = op.Squeeze(op.Shape(x, start=axis % rank(x), end=axis % rank(x) + 1), [0])
    values, order = _topk(op, x, op.Where(op.Equal(count, -1), size, count), axis, not ascending)
    return (values, cast(op, order, named(output_indices_dtype))) if return_indices else values


@rule("non_maximum_suppression")
def non_maximum_suppression(
    op, boxes, scores, iou_threshold: Float, max_boxes: Int, per_class_suppression: Bool = False,
    score_threshold: Array | None = None,
):  # fmt: skip
    """Before iOS17 (with a score threshold) the boxes are rows and their number is given too; from then on they are columns.

    A box has the score and the class of its best class. Places that stay empty are zeros, and -1 among the indices; the best
    box is given even where no box reaches the threshold.
    """
    rows = score_threshold is not None
    if not rows:
        boxes, scores = (op.Transpose(v, perm=[0, 2, 1]) for v in (boxes, scores))
    batch, count, classes = fixed(scores)
    best = op.ReduceMax(scores, [2], keepdims=0)
    ranked = op.Unsqueeze(best, [1])
    if per_class_suppression:  # each box counts for its own class only
        label = op.ArgMax(scores, axis=2, keepdims=0)
        own = op.Equal(op.Unsqueeze(label, [1]), np.arange(classes)[None, :, None])
        ranked = op.Where(own, ranked, -np.inf)
    chosen = op.NonMaxSuppression(
        *(cast(op, v, ir.DataType.FLOAT) for v in (boxes, ranked)), np.array([count]), np.float32([iou_threshold]),
        center_point_box=1,
    )  # fmt: skip
    places = op.Gather(chosen, [0, 1, 2], axis=1)
    taken = op.ScatterND(np.zeros((batch, classes if per_class_suppression else 1, count), np.float32), places,
                         op.Expand(op.constant(np.float32(1)), op.Shape(chosen, start=0, end=1)))  # fmt: skip
    if per_class_suppression:
        taken = op.Mul(taken, op.Cast(own, to=ir.DataType.FLOAT))
    kept = op.Greater(op.ReduceMax(taken, [1], keepdims=0), 0.0)
    if rows:
        kept = op.And(kept, op.GreaterOrEqual(best, score_threshold.astype(best.dtype.numpy()).reshape(())))
    top = op.Equal(op.Unsqueeze(op.ArgMax(best, axis=1, keepdims=0), [1]), np.arange(count))
    kept = op.Or(kept, top)
    some = min(max_boxes, count)
    order = op.TopK(op.Where(kept, best, -np.inf), [some], axis=1, outputs=2)[1]
    full = op.GatherElements(op.Cast(kept, to=ir.DataType.INT32), order, axis=1)
    shown = op.Cast(full, to=ir.DataType.BOOL)
    pad = [0, 0, 0, max_boxes - some]
    results = [
        op.Pad(op.Where(op.Unsqueeze(shown, [2]), op.GatherND(v, op.Unsqueeze(order, [2]), batch_dims=1), 0), [*pad, 0][:2] + [0]
               + [0, max_boxes - some, 0])
        for v in (boxes, scores)
    ]  # fmt: skip
    indices = op.Pad(op.Where(shown, op.Cast(order, to=ir.DataType.INT32), -1), pad, op.constant(np.int32(-1)))
    if rows:
        return *results, indices, op.ReduceSum(full, [1], keepdims=0)
    return *(op.Transpose(v, perm=[0, 2, 1]) for v in results), indices
