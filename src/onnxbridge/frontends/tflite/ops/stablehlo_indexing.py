"""StableHLO's gather and scatter: windows of an operand at starts that a tensor of indices holds."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.sizes import int64, known_array
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.frontends.tflite.ops.windows import padded
from onnxbridge.hub.ir.values import rank, static_shape, zero

D = ir.DataType
_SCATTERS = {
    "": None, "STABLEHLO_ADD": "add", "STABLEHLO_MULTIPLY": "mul", "STABLEHLO_MAXIMUM": "max", "STABLEHLO_MINIMUM": "min",
}  # fmt: skip


def _vectors(op, indices, index_vector_dim):
    """int64 indices whose vectors lie along the last axis; a scalar index is a vector of one."""
    n = rank(indices)
    if not 0 <= index_vector_dim <= n:
        raise Unsupported(f"index_vector_dim={index_vector_dim} of indices with {n} axes", "get the file again")
    indices = int64(op, indices)
    if index_vector_dim == n:
        return op.Unsqueeze(indices, [n])
    return op.Transpose(indices, perm=[i for i in range(n) if i != index_vector_dim] + [index_vector_dim])


def _each(op, starts, within):
    """The indices of all elements of the windows at `starts`, [..., k]: windows of the sizes `within` along the k axes."""
    if all(size == 1 for size in within):
        return op.Unsqueeze(starts, [rank(starts) - 1 + i for i in range(len(within))])
    grid = np.stack(np.meshgrid(*(np.arange(size) for size in within), indexing="ij"), axis=-1)
    return op.Add(op.Unsqueeze(starts, [rank(starts) - 1 + i for i in range(len(within))]), grid.astype(np.int64))


def _check_axes(n, *lists):
    for axes in lists:
        if len(set(axes)) != len(axes) or any(not 0 <= a < n for a in axes):
            raise Unsupported(f"the axes {list(axes)} of a tensor with {n}", "get the file again")


@rule("STABLEHLO_GATHER", kind="move")
def stablehlo_gather(
    op, operand, start_indices, *, slice_sizes, offset_dims=(), collapsed_slice_dims=(), start_index_map=(), index_vector_dim=0,
    indices_are_sorted=False,
):  # fmt: skip
    """Starts are clamped so that the windows lie within the operand."""
    n = rank(operand)
    _check_axes(n, collapsed_slice_dims, start_index_map)
    if len(slice_sizes) != n or any(slice_sizes[a] != 1 for a in collapsed_slice_dims):
        raise Unsupported(f"slices of the sizes {list(slice_sizes)}", "get the file again")
    starts = _vectors(op, start_indices, index_vector_dim)
    batch = rank(starts) - 1
    mapped = list(start_index_map)
    others = [a for a in range(n) if a not in mapped]
    cut = [a for a in others if operand.shape[a] != slice_sizes[a]]
    if cut:
        operand = op.Slice(operand, [0] * len(cut), [slice_sizes[a] for a in cut], cut)
    within = [slice_sizes[a] for a in mapped]
    if mapped:
        most = op.Sub(op.Gather(op.Shape(operand), np.array(mapped), axis=0), np.array(within, np.int64))
        starts = op.Max(op.Min(starts, most), np.int64(0))
        x = op.GatherND(op.Transpose(operand, perm=mapped + others), _each(op, starts, within))
    else:
        x = op.Expand(operand, op.Concat(op.Shape(starts, end=batch), op.Shape(operand), axis=0))
    order = [f"batch {i}" for i in range(batch)] + mapped + others
    if collapsed_slice_dims:
        x = op.Squeeze(x, sorted(order.index(a) for a in collapsed_slice_dims))
        order = [a for a in order if a not in collapsed_slice_dims]
    offsets = iter([a for a in range(n) if a not in collapsed_slice_dims])
    batches = iter(range(batch))
    _check_axes(len(order), offset_dims)
    wanted = [next(offsets) if i in offset_dims else f"batch {next(batches)}" for i in range(len(order))]
    return op.Transpose(x, perm=[order.index(a) for a in wanted])


@rule("STABLEHLO_SCATTER", kind="bits", limits="updates by one operator")
def stablehlo_scatter(
    op, operand, scatter_indices, updates, *, computation=None, update_window_dims=(), inserted_window_dims=(),
    scatter_dims_to_operand_dims=(), index_vector_dim=0, unique_indices=False, indices_are_sorted=False,
):  # fmt: skip
    """Updates out of range are ignored. `computation` combines an element with its update, "" where the update replaces it."""
    if computation not in _SCATTERS:
        raise Unsupported(f"a scatter by {computation or 'several operators'}")
    n, m = rank(operand), rank(updates)
    mapped = list(scatter_dims_to_operand_dims)
    _check_axes(n, mapped, inserted_window_dims)
    _check_axes(m, update_window_dims)
    window = dict(zip((a for a in range(n) if a not in inserted_window_dims), update_window_dims, strict=True))
    size = {a: static_shape(updates, [d])[0] for a, d in window.items()} | dict.fromkeys(inserted_window_dims, 1)
    indexed = mapped + [a for a in range(n) if a not in mapped and operand.shape[a] != size[a]]
    if not indexed:
        if not n:
            raise Unsupported("a scatter into a scalar")
        indexed = [0]
    others = [a for a in range(n) if a not in indexed]
    starts = _vectors(op, scatter_indices, index_vector_dim)
    if len(indexed) > len(mapped):
        rest = np.zeros((*[1] * (rank(starts) - 1), len(indexed) - len(mapped)), np.int64)
        rest = op.Expand(rest, op.Concat(op.Shape(starts, end=-1), [rest.shape[-1]], axis=0))
        starts = op.Concat(starts, rest, axis=-1)
    at = _each(op, starts, [size[a] for a in indexed])
    x = op.Transpose(operand, perm=indexed + others)
    scattered = [d for d in range(m) if d not in update_window_dims]
    new = op.Transpose(updates, perm=scattered + [window[a] for a in (*indexed, *others) if a in window])
    inserted = [len(scattered) + i for i, a in enumerate((*indexed, *others)) if a not in window]
    new = op.Unsqueeze(new, inserted) if inserted else new
    y = _within_range(op, x, at, new, len(indexed), _SCATTERS[computation])
    order = indexed + others
    return op.Transpose(y, perm=[order.index(a) for a in range(n)])


def _within_range(op, x, at, updates, count, reduction):
    """The scatter of updates along the first `count` axes; one out of range goes to an element that is cut off again."""
    limits = op.Shape(x, end=count)
    known, most = known_array(at), known_array(limits)
    if known is not None and most is not None and (known >= 0).all() and (known < most).all():
        return op.ScatterND(x, at, updates, reduction=reduction)
    inside = op.And(op.GreaterOrEqual(at, np.int64(0)), op.Less(at, limits))
    inside = op.Cast(op.ReduceMin(op.Cast(inside, to=D.INT32), [-1], keepdims=1), to=D.BOOL)
    outside = op.Concat(op.Shape(x, end=1), np.zeros(count - 1, np.int64), axis=0)
    longer = padded(op, x, [(0, 1)] + [(0, 0)] * (rank(x) - 1), zero(x.dtype))
    y = op.ScatterND(longer, op.Where(inside, at, outside), updates, reduction=reduction)
    return op.Slice(y, [0], op.Shape(x, end=1), [0])
