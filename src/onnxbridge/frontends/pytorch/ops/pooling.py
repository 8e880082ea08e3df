"""Pooling, with PyTorch's ceil_mode: the last window must begin inside the input or its left padding."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.conv import per_axis, with_batch_axis
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.linalg.factorizations import as_columns


def _windows(x, rank, kernel, stride, padding, dilation, ceil_mode):
    """ONNX's kernel, strides and pads, with end pads such that floor division gives PyTorch's output sizes; and these sizes."""
    kernel = per_axis(kernel, rank)
    stride = per_axis(stride, rank) if stride != () else kernel
    padding, dilation = per_axis(padding, rank), per_axis(dilation, rank)
    ends, sizes = list(padding), []
    for i, n in enumerate(list(x.shape)[-rank:]):
        extent = dilation[i] * (kernel[i] - 1) + 1
        if not isinstance(n, int):
            if ceil_mode and extent < padding[i] + stride[i]:
                raise Unsupported("ceil_mode on a dynamic size", "fix the spatial sizes or use ceil_mode=False")
            # such a long window never begins beyond the input, whatever its size
            ends[i] += stride[i] - 1 if ceil_mode else 0
            sizes.append(None)
            continue
        span = n + 2 * padding[i] - extent
        size = (-(-span // stride[i]) if ceil_mode else span // stride[i]) + 1
        if ceil_mode and (size - 1) * stride[i] >= n + padding[i]:
            size -= 1
        ends[i] = max(padding[i], (size - 1) * stride[i] + extent - n - padding[i])
        sizes.append(size)
    return kernel, stride, padding, dilation, ends, sizes


def max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode, outputs=1):
    kernel, stride, padding, dilation, ends, _ = _windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
    return op.MaxPool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *ends], dilations=dilation, outputs=outputs)


def _max_pool_rule(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        pool = lambda x: max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode)  # noqa: E731
        return with_batch_axis(op, self, rank, pool)

    return lower


def _max_pool_with_indices(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        x = op.Unsqueeze(self, [0]) if len(self.shape) == rank + 1 else self
        y, indices = max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode, outputs=2)
        plane = op.constant(np.int64(1))
        for axis in range(-rank, 0):
            plane = op.Mul(plane, op.size(x, axis))
        indices = op.Mod(indices, plane)  # ONNX indices include batch and channels
        return (op.Squeeze(y, [0]), op.Squeeze(indices, [0])) if x is not self else (y, indices)

    return lower


for _rank in (1, 2, 3):
    rule(f"aten::max_pool{_rank}d")(_max_pool_rule(_rank))
    rule(f"aten::max_pool{_rank}d_with_indices")(_max_pool_with_indices(_rank))


def average_pool(op, x, rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    kernel, stride, padding, _, ends, sizes = _windows(x, rank, kernel_size, stride, padding, 1, ceil_mode)
    include = bool(count_include_pad and any(padding) or divisor_override)
    y = op.AveragePool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *ends], count_include_pad=int(include))
    if divisor_override:
        return op.Mul(y, float(np.prod(kernel)) / divisor_override)
    if not include or tuple(ends) == tuple(padding):
        return y
    if None in sizes:
        raise Unsupported("ceil_mode with counted padding on a dynamic size", "fix the spatial sizes")
    # ONNX counts elements beyond the padding, PyTorch does not
    for i, axis in enumerate(range(len(x.shape) - rank, len(x.shape))):
        starts = np.arange(sizes[i]) * stride[i] - padding[i]
        counted = np.minimum(starts + kernel[i], x.shape[axis] + padding[i]) - starts
        factor = (kernel[i] / counted).reshape([-1] + [1] * (len(x.shape) - 1 - axis))
        y = op.Mul(y, factor.astype(x.dtype.numpy()))
    return y


def _avg_pool_rule(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return with_batch_axis(op, self, rank, lambda x: average_pool(
            op, x, rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        ))  # fmt: skip

    return lower


@rule("aten::avg_pool1d")
def avg_pool1d(op, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    pool = lambda x: average_pool(op, x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)  # noqa: E731
    return with_batch_axis(op, self, 1, pool)


for _rank in (2, 3):
    rule(f"aten::avg_pool{_rank}d")(_avg_pool_rule(_rank))


def _adaptive_windows(size, count):
    """The windows of adaptive pooling along one axis, as (start, end)."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive_sizes(x, rank, output_size):
    """Input and output sizes of the pooled axes; an output size of None keeps the size."""
    sizes = list(x.shape)[-rank:]
    return sizes, [n if o is None else o for n, o in zip(sizes, per_axis(output_size, rank), strict=True)]


def _divides(sizes, target):
    """Whether all windows have the same length, so that ordinary pooling applies."""
    known = all(isinstance(n, int) and isinstance(w, int) for n, w in zip(sizes, target, strict=True))
    return known and all(w and n % w == 0 for n, w in zip(sizes, target, strict=True))


def _adaptive_avg(rank):
    def lower(op, self, output_size):
        sizes, target = _adaptive_sizes(self, rank, output_size)
        if 0 in self.shape:  # ONNX Runtime's MatMul does not support an empty batch
            return op.reshape(self, [*(op.size(self, i) for i in range(len(self.shape) - rank)), *target])
        if all(isinstance(w, int) and w == 1 for w in target):
            if len(self.shape) == rank + 2:
                return op.GlobalAveragePool(self)
            return op.ReduceMean(self, list(range(-rank, 0)), keepdims=1)
        if _divides(sizes, target):
            kernel = [n // w for n, w in zip(sizes, target, strict=True)]
            return with_batch_axis(op, self, rank, lambda x: op.AveragePool(x, kernel_shape=kernel, strides=kernel))
        y = self
        for axis, n, w in zip(range(-rank, 0), sizes, target, strict=True):
            if isinstance(w, ir.Value):
                y = _mean_of_dynamic_windows(op, y, axis, w)
            elif isinstance(w, int) and n != w:
                y = _mean_of_windows(op, y, axis, n, w)
        return y

    return lower


def _mean_of_windows(op, x, axis, size, count):
    """The means of the windows of one axis, as a matrix product."""
    if not isinstance(size, int):
        return op.ReduceMean(x, [axis], keepdims=1) if count == 1 else _mean_of_dynamic_windows(op, x, axis, count)
    matrix = np.zeros((size, count), x.dtype.numpy())
    for i, (start, end) in enumerate(_adaptive_windows(size, count)):
        matrix[start:end, i] = 1 / (end - start)
    if axis == -1:
        return op.MatMul(x, matrix)
    trailing = list(x.shape)[axis + 1 :]
    lead = [op.size(x, i) for i in range(len(x.shape) + axis)]
    if len(trailing) == 1:
        return op.MatMul(np.ascontiguousarray(matrix.T), x)
    flat = op.reshape(x, [*lead, size, trailing[0] * trailing[1]])
    return op.reshape(op.MatMul(np.ascontiguousarray(matrix.T), flat), [*lead, count, *trailing])


def _mean_of_dynamic_windows(op, x, axis, count):
    """The means of the windows of an axis with a dynamic size."""
    mask = op.Cast(_window_mask(op, op.size(x, axis), count), to=x.dtype)
    share = op.Div(mask, op.ReduceSum(mask, [1], keepdims=1))
    order = list(range(len(x.shape)))
    order[axis], order[-1] = order[-1], order[axis]
    flipped = op.MatMul(op.Transpose(x, perm=order), op.Transpose(share, perm=[1, 0]))
    return op.Transpose(flipped, perm=order)


def _window_mask(op, size, count):
    """Which elements of an axis of this size are in each of `count` windows: [windows, elements]."""
    parts = as_columns(op, factorizations.arange(op, count))
    positions = op.Unsqueeze(op.Range(np.int64(0), size, np.int64(1)), [0])
    start = op.Div(op.Mul(size, parts), count)
    end = op.Div(op.Add(op.Mul(size, op.Add(parts, 1)), op.Sub(count, 1) if isinstance(count, ir.Value) else count - 1), count)
    return op.And(op.GreaterOrEqual(positions, start), op.Less(positions, end))


def _adaptive_max(rank):
    def lower(op, self, output_size):
        sizes, target = _adaptive_sizes(self, rank, output_size)
        if not _divides(sizes, target):
            return _max_of_windows(op, self, rank, sizes, target)
        kernel = tuple(n // w for n, w in zip(sizes, target, strict=True))
        return _max_pool_with_indices(rank)(op, self, kernel, kernel)

    return lower


def _max_of_windows(op, x, rank, sizes, target):
    """Maxima and their flat indices in the plane, window by window."""
    if not all(isinstance(n, int) for n in (*sizes, *target)):
        counts = [w if isinstance(w, (int, ir.Value)) else op.size(x, i - rank) for i, w in enumerate(target)]
        return _max_of_dynamic_windows(op, x, rank, counts)
    windows = [[]]
    for n, w in zip(sizes, target, strict=True):
        windows = [[*front, part] for front in windows for part in _adaptive_windows(n, w)]
    plane = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    lead = list(x.shape)[:-rank]
    values, positions = [], []
    for window in windows:
        starts, ends = zip(*window, strict=True)
        cut = op.Slice(x, list(starts), list(ends), list(range(len(lead), len(lead) + rank)))
        count = int(np.prod([e - s for s, e in window]))
        flat = op.reshape(cut, [*(op.size(x, i) for i in range(len(lead))), count])
        best, index = op.TopK(flat, [1], axis=-1, outputs=2)
        inside = plane[tuple(slice(s, e) for s, e in window)].reshape(-1)
        values.append(best)
        positions.append(op.Gather(op.constant(np.ascontiguousarray(inside)), index))
    shape = [*(op.size(x, i) for i in range(len(lead))), *target]
    return op.reshape(op.Concat(*values, axis=-1), shape), op.reshape(op.Concat(*positions, axis=-1), shape)


def _max_of_dynamic_windows(op, x, rank, target):
    """The same with dynamic sizes, axis by axis from the last: each window masks the whole axis; the first of equal maxima."""
    width = len(x.shape)
    positions = None  # flat index in the pooled axes so far, the last axis varying fastest
    trailing = op.constant(np.int64(1))
    for axis in range(width - 1, width - rank - 1, -1):
        size, count = op.size(x, axis), target[axis - width]
        size = op.constant(np.int64(size)) if isinstance(size, int) else size
        # [..., windows, elements, ...]: the other axes unchanged
        mask = op.reshape(_window_mask(op, size, count), [count, -1, *[1] * (width - 1 - axis)])
        masked = op.Where(mask, op.Unsqueeze(x, [axis]), -math.inf)
        masked = op.Where(op.And(mask, op.IsNaN(op.Unsqueeze(x, [axis]))), math.inf, masked)
        best = op.ArgMax(masked, axis=axis + 1, keepdims=1)
        x = op.Squeeze(op.GatherElements(op.Expand(op.Unsqueeze(x, [axis]), op.Shape(masked)), best, axis=axis + 1), [axis + 1])
        index = op.Squeeze(best, [axis + 1])
        if positions is not None:
            expanded = op.Expand(op.Unsqueeze(positions, [axis]), op.Shape(masked))
            index = op.Add(op.Mul(index, trailing), op.Squeeze(op.GatherElements(expanded, best, axis=axis + 1), [axis + 1]))
        positions, trailing = index, op.Mul(trailing, size)
    return x, positions


for _rank in (1, 2, 3):
    rule(f"aten::adaptive_avg_pool{_rank}d")(_adaptive_avg(_rank))
    if _rank > 1:
        rule(f"aten::_adaptive_avg_pool{_rank}d")(_adaptive_avg(_rank))
    rule(f"aten::adaptive_max_pool{_rank}d")(_adaptive_max(_rank))


def _fractional(rank):
    """Windows at random positions, computed from the samples exactly as PyTorch does."""

    def lower(op, self, kernel_size, output_size, random_samples):
        kernel, target = per_axis(kernel_size, rank), per_axis(output_size, rank)
        sizes = list(self.shape)[-rank:]
        if not all(isinstance(n, int) for n in sizes):
            raise Unsupported("fractional pooling of a dynamic size", "fix the spatial sizes")
        x = self if len(self.shape) == rank + 2 else op.Unsqueeze(self, [0])
        positions = None
        for axis in range(rank):
            # the samples for two axes are in reverse axis order, those for three in axis order
            sample = op.Gather(random_samples, np.int64(rank - 1 - axis if rank == 2 else axis), axis=2)
            sample = op.Unsqueeze(cast(op, sample, x.dtype), [-1])
            starts = _starts(op, sample, sizes[axis], kernel[axis], target[axis])
            extent = op.Add(op.Unsqueeze(starts, [-1]), np.arange(kernel[axis], dtype=np.int64))
            # [n, c, windows, elements], with each axis of the pair split by spatial axis
            shape = [op.size(x, 0), op.size(x, 1)]
            window_shape = [1] * rank
            window_shape[axis] = target[axis]
            element_shape = [1] * rank
            element_shape[axis] = kernel[axis]
            extent = op.reshape(extent, [*shape, *window_shape, *element_shape])
            positions = extent if positions is None else op.Add(op.Mul(positions, sizes[axis]), extent)
        count = int(np.prod(kernel))
        lead = [op.size(x, 0), op.size(x, 1)]
        positions = op.reshape(positions, [*lead, int(np.prod(target)) * count])
        values = op.GatherElements(op.reshape(x, [*lead, int(np.prod(sizes))]), positions, axis=2)
        values = op.reshape(values, [*lead, int(np.prod(target)), count])
        best = op.ArgMax(values, axis=-1, keepdims=1)
        chosen = op.GatherElements(op.reshape(positions, [*lead, int(np.prod(target)), count]), best, axis=-1)
        shape = [*lead, *target]
        y, indices = op.reshape(op.ReduceMax(values, [-1], keepdims=0), shape), op.reshape(chosen, shape)
        return (y, indices) if x is self else (op.Squeeze(y, [0]), op.Squeeze(indices, [0]))

    return lower


def _starts(op, sample, size, kernel, count):
    """The start of each window of one axis: [n, c, count]."""
    if count == 1:
        return op.Add(op.Cast(op.Mul(sample, 0.0), to=ir.DataType.INT64), size - kernel)
    alpha = op.CastLike(np.float32(size - kernel) / np.float32(count - 1), sample)
    steps = np.arange(count - 1).astype(sample.dtype.numpy())
    positions = op.Sub(op.Floor(op.Mul(op.Add(sample, steps), alpha)), op.Floor(op.Mul(sample, alpha)))
    last = op.Add(op.Mul(sample, 0.0), float(size - kernel))
    return op.Cast(op.Concat(positions, last, axis=-1), to=ir.DataType.INT64)


for _rank in (2, 3):
    rule(f"aten::fractional_max_pool{_rank}d")(_fractional(_rank))
