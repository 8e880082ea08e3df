"""Slice, gather, scatter, sort and non-maximum suppression operators."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.dtypes import onnx_dtype
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, rank, static_shape
from onnxbridge.rules import Array, Bool, Float, Int, Ints, Str

INT64 = ir.DataType.INT64
LAST = np.iinfo(np.int64).max


def _slice(op, x, begin, end, stride, begin_mask, end_mask, squeeze_mask):
    """The slice of slice_by_index, before axes are squeezed."""
    none = (False,) * rank(x)
    steps = np.array(stride or (1,) * rank(x))
    squeezed = np.array(squeeze_mask or none, bool)
    first, last = np.array(begin_mask or none, bool), np.array(end_mask or none, bool)
    begin, end = (cast(op, v, INT64) for v in (begin, end))
    begin = op.Where(first, np.where(steps > 0, 0, LAST), begin) if first.any() else begin
    end = op.Where(last, np.where(steps > 0, LAST, -LAST), end) if last.any() else end
    if squeezed.any():  # a single element; -1 is the last
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
    y = _slice(op, x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    squeezed_axes = [axis for axis, squeezed in enumerate(squeeze_mask or ()) if squeezed]
    return op.Squeeze(y, squeezed_axes) if squeezed_axes else y


@rule("slice_update")
def slice_update(
    op, x, update, begin, end, stride: Ints | None = None, begin_mask: Ints | None = None, end_mask: Ints | None = None,
    squeeze_mask: Ints | None = None,
):  # fmt: skip
    """Slices the flat indices of x in the same way, and scatters the update to them."""
    count = op.ReduceProd(op.Shape(x), keepdims=0)
    flat_indices = op.Reshape(op.Range(np.int64(0), count, np.int64(1)), op.Shape(x))
    selected = _slice(op, flat_indices, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    squeezed_axes = [axis for axis, squeezed in enumerate(squeeze_mask or ()) if squeezed]
    update = op.Expand(op.Unsqueeze(update, squeezed_axes) if squeezed_axes else update, op.Shape(selected))
    flat = op.ScatterElements(op.Reshape(x, [-1]), op.Reshape(selected, [-1]), op.Reshape(update, [-1]), axis=0)
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
    result = op.GatherND(op.Transpose(x, perm=order), op.Unsqueeze(indices, [-1]), batch_dims=batch_dims)
    index_rank = rank(indices) - batch_dims
    selected = list(range(batch_dims, batch_dims + index_rank))
    between_axes = [batch_dims + index_rank + i for i in range(len(between))]
    return op.Transpose(result, perm=[*range(batch_dims), *between_axes, *selected, *range(axis + index_rank, rank(result))])


@rule("gather_along_axis")
def gather_along_axis(op, x, indices, axis: Int = 0, validate_indices: Bool = False):
    return op.GatherElements(x, cast(op, indices, INT64), axis=axis)


@rule("gather_nd")
def gather_nd(op, x, indices, batch_dims: Int = 0, validate_indices: Bool = False):
    return op.GatherND(x, cast(op, indices, INT64), batch_dims=batch_dims)


REDUCTIONS = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "div": "mul", "max": "max", "min": "min"}


def _scatter(op, onnx, data, indices, updates, mode, **attrs):
    """ONNX's scatter operator; float16 is accumulated in float32, since few runtimes support a reduction in float16."""
    if mode not in REDUCTIONS:
        raise Unsupported(f"mode {mode}")
    if mode == "div" and updates.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise Unsupported("mode div of integers")
    is_fp16 = data.dtype == ir.DataType.FLOAT16 and mode != "update"
    original, compute_dtype = data, ir.DataType.FLOAT if is_fp16 else data.dtype
    data, updates = cast(op, data, compute_dtype), cast(op, updates, compute_dtype)
    updates = op.Neg(updates) if mode == "sub" else op.Reciprocal(updates) if mode == "div" else updates
    result = op.call(onnx, data, cast(op, indices, INT64), updates, reduction=REDUCTIONS[mode], **attrs)
    return cast(op, result, original.dtype)


@rule("scatter")
def scatter(op, data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    axis %= rank(data)
    perm = [axis, *(a for a in range(rank(data)) if a != axis)]
    index_rank = rank(indices)
    updates_perm = [*range(axis, axis + index_rank), *range(axis), *range(axis + index_rank, rank(updates))]
    data, updates = op.Transpose(data, perm=perm), op.Transpose(updates, perm=updates_perm)
    result = _scatter(op, "ScatterND", data, op.Unsqueeze(indices, [-1]), updates, mode)
    return op.Transpose(result, perm=np.argsort(perm).tolist())


@rule("scatter_along_axis")
def scatter_along_axis(op, data, indices, updates, axis: Int = 0, mode: Str = "add", validate_indices: Bool = False):
    return _scatter(op, "ScatterElements", data, indices, updates, mode, axis=axis)


@rule("scatter_nd")
def scatter_nd(op, data, indices, updates, mode: Str = "add", validate_indices: Bool = False):
    return _scatter(op, "ScatterND", data, indices, updates, mode)


@rule("non_zero")
def non_zero(op, x):
    return op.Cast(op.Transpose(op.NonZero(x), perm=[1, 0]), to=ir.DataType.INT32)


@rule("one_hot")
def one_hot(op, indices, one_hot_vector_size: Int, axis: Int = -1, on_value=1, off_value=0):
    """An index out of range gives no `on_value`; in ONNX's OneHot negative indices count from the end."""
    axis %= rank(indices) + 1
    classes = np.arange(one_hot_vector_size).reshape(-1, *(1 for _ in range(rank(indices) - axis)))
    hot = op.Equal(op.Unsqueeze(cast(op, indices, INT64), [axis]), classes)
    on_value, off_value = (op.constant(np.int32(v)) if isinstance(v, int) else v for v in (on_value, off_value))
    if on_value.dtype != off_value.dtype:
        raise Unsupported("on_value and off_value of different dtypes")
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
    """The k largest (`ascending`: smallest) elements, -1 for all. They are always sorted; without `sort` any order is valid."""
    count = op.constant(np.int64(1)) if k is None else op.Reshape(cast(op, k, INT64), [])
    size = op.Squeeze(op.Shape(x, start=axis % rank(x), end=axis % rank(x) + 1), [0])
    values, order = _topk(op, x, op.Where(op.Equal(count, -1), size, count), axis, not ascending)
    return (values, cast(op, order, onnx_dtype(output_indices_dtype))) if return_indices else values


@rule("non_maximum_suppression")
def non_maximum_suppression(
    op, boxes, scores, iou_threshold: Float, max_boxes: Int, per_class_suppression: Bool = False,
    score_threshold: Array | None = None,
):  # fmt: skip
    """Before iOS17 (with a score threshold) boxes are rows, and their number is returned too; from then on they are columns.

    A box has the score and label of its best class. Unused entries are zeros, and -1 in the indices. The best box is returned
    even if no box reaches the threshold.
    """
    rows = score_threshold is not None
    if not rows:
        boxes, scores = (op.Transpose(v, perm=[0, 2, 1]) for v in (boxes, scores))
    batch, count, classes = static_shape(scores)
    best = op.ReduceMax(scores, [2], keepdims=0)
    ranked = op.Unsqueeze(best, [1])
    if per_class_suppression:  # each box competes in its own class only
        label = op.ArgMax(scores, axis=2, keepdims=0)
        own_class = op.Equal(op.Unsqueeze(label, [1]), np.arange(classes)[None, :, None])
        ranked = op.Where(own_class, ranked, -np.inf)
    selected_indices = op.NonMaxSuppression(
        *(cast(op, v, ir.DataType.FLOAT) for v in (boxes, ranked)), np.array([count]), np.float32([iou_threshold]),
        center_point_box=1,
    )  # fmt: skip
    selected = op.Gather(selected_indices, [0, 1, 2], axis=1)
    is_selected = op.ScatterND(np.zeros((batch, classes if per_class_suppression else 1, count), np.float32), selected,
                         op.Expand(op.constant(np.float32(1)), op.Shape(selected_indices, start=0, end=1)))  # fmt: skip
    if per_class_suppression:
        is_selected = op.Mul(is_selected, op.Cast(own_class, to=ir.DataType.FLOAT))
    original = op.Greater(op.ReduceMax(is_selected, [1], keepdims=0), 0.0)
    if rows:
        original = op.And(original, op.GreaterOrEqual(best, score_threshold.astype(best.dtype.numpy()).reshape(())))
    top = op.Equal(op.Unsqueeze(op.ArgMax(best, axis=1, keepdims=0), [1]), np.arange(count))
    original = op.Or(original, top)
    count_kept = min(max_boxes, count)
    order = op.TopK(op.Where(original, best, -np.inf), [count_kept], axis=1, outputs=2)[1]
    is_valid = op.GatherElements(op.Cast(original, to=ir.DataType.INT32), order, axis=1)
    valid_mask = op.Cast(is_valid, to=ir.DataType.BOOL)
    pad = [0, 0, 0, max_boxes - count_kept]
    results = [
        op.Pad(op.Where(op.Unsqueeze(valid_mask, [2]), op.GatherND(v, op.Unsqueeze(order, [2]), batch_dims=1), 0),
               [0, 0, 0, 0, max_boxes - count_kept, 0])
        for v in (boxes, scores)
    ]  # fmt: skip
    indices = op.Pad(op.Where(valid_mask, op.Cast(order, to=ir.DataType.INT32), -1), pad, op.constant(np.int32(-1)))
    if rows:
        return *results, indices, op.ReduceSum(is_valid, [1], keepdims=0)
    return *(op.Transpose(v, perm=[0, 2, 1]) for v in results), indices
