"""Pooling windows, in PyTorch's reading of ceil_mode: a last window must begin inside the input or its left padding."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.conv import batched, per_axis
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.linalg.factorizations import upright


def _windows(x, rank, kernel, stride, padding, dilation, ceil_mode):
    """ONNX's strides, kernel and pads, the end pads such that rounding down gives PyTorch's sizes; and those sizes."""
    kernel = per_axis(kernel, rank)
    stride = per_axis(stride, rank) if stride != () else kernel
    padding, dilation = per_axis(padding, rank), per_axis(dilation, rank)
    ends, sizes = list(padding), []
    for i, n in enumerate(list(x.shape)[-rank:]):
        reach = dilation[i] * (kernel[i] - 1) + 1
        if not isinstance(n, int):
            if ceil_mode and reach < padding[i] + stride[i]:
                raise Unsupported("ceil_mode on a dynamic size", "fix the spatial sizes or use ceil_mode=False")
            # so long a window never begins behind the input, whatever its size
            ends[i] += stride[i] - 1 if ceil_mode else 0
            sizes.append(None)
            continue
        room = n + 2 * padding[i] - reach
        size = (-(-room // stride[i]) if ceil_mode else room // stride[i]) + 1
        if ceil_mode and (size - 1) * stride[i] >= n + padding[i]:
            size -= 1
        ends[i] = max(padding[i], (size - 1) * stride[i] + reach - n - padding[i])
        sizes.append(size)
    return kernel, stride, padding, dilation, ends, sizes


def max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode, outputs=1):
    kernel, stride, padding, dilation, ends, _ = _windows(x, rank, kernel_size, stride, padding, dilation, ceil_mode)
    return op.MaxPool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *ends], dilations=dilation, outputs=outputs)


def _max_pool_rule(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        pool = lambda x: max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode)  # noqa: E731
        return batched(op, self, rank, pool)

    return lower


def _max_pool_with_indices(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        x = op.Unsqueeze(self, [0]) if len(self.shape) == rank + 1 else self
        y, indices = max_pool(op, x, rank, kernel_size, stride, padding, dilation, ceil_mode, outputs=2)
        plane = op.constant(np.int64(1))
        for axis in range(-rank, 0):
            plane = op.Mul(plane, op.size(x, axis))
        indices = op.Mod(indices, plane)  # ONNX counts through batch and channels
        return (op.Squeeze(y, [0]), op.Squeeze(indices, [0])) if x is not self else (y, indices)

    return lower


for _rank in (1, 2, 3):
    rule(f"aten::max_pool{_rank}d")(_max_pool_rule(_rank))
    rule(f"aten::max_pool{_rank}d_with_indices")(_max_pool_with_indices(_rank))


def average(op, x, rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    kernel, stride, padding, _, ends, sizes = _windows(x, rank, kernel_size, stride, padding, 1, ceil_mode)
    include = bool(count_include_pad and any(padding) or divisor_override)
    y = op.AveragePool(x, kernel_shape=kernel, strides=stride, pads=[*padding, *ends], count_include_pad=int(include))
    if divisor_override:
        return op.Mul(y, float(np.prod(kernel)) / divisor_override)
    if not include or tuple(ends) == tuple(padding):
        return y
    if None in sizes:
        raise Unsupported("ceil_mode with counted padding on a dynamic size", "fix the spatial sizes")
    # what lies beyond the padding is counted by ONNX's window, not by PyTorch's
    for i, axis in enumerate(range(len(x.shape) - rank, len(x.shape))):
        starts = np.arange(sizes[i]) * stride[i] - padding[i]
        counted = np.minimum(starts + kernel[i], x.shape[axis] + padding[i]) - starts
        factor = (kernel[i] / counted).reshape([-1] + [1] * (len(x.shape) - 1 - axis))
        y = op.Mul(y, factor.astype(x.dtype.numpy()))
    return y


def _avg_pool_rule(rank):
    def lower(op, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        return batched(op, self, rank, lambda x: average(
            op, x, rank, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        ))  # fmt: skip

    return lower


@rule("aten::avg_pool1d")
def avg_pool1d(op, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    pool = lambda x: average(op, x, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)  # noqa: E731
    return batched(op, self, 1, pool)


for _rank in (2, 3):
    rule(f"aten::avg_pool{_rank}d")(_avg_pool_rule(_rank))


def _parts(size, count):
    """The windows of adaptive pooling along one axis."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(x, rank, output_size):
    """Input and output sizes of the pooled axes; an output size that is not given stays as it is."""
    sizes = list(x.shape)[-rank:]
    return sizes, [n if o is None else o for n, o in zip(sizes, per_axis(output_size, rank), strict=True)]


def _divides(sizes, wanted):
    """Whether all parts are equally long, as those of ordinary windows."""
    known = all(isinstance(n, int) and isinstance(w, int) for n, w in zip(sizes, wanted, strict=True))
    return known and all(w and n % w == 0 for n, w in zip(sizes, wanted, strict=True))


def _adaptive_avg(rank):
    def lower(op, self, output_size):
        sizes, wanted = _adaptive(self, rank, output_size)
        if 0 in self.shape:  # of nothing; ONNX Runtime's product of matrices cannot take an empty batch
            return op.reshape(self, [*(op.size(self, i) for i in range(len(self.shape) - rank)), *wanted])
        if all(isinstance(w, int) and w == 1 for w in wanted):
            if len(self.shape) == rank + 2:
                return op.GlobalAveragePool(self)
            return op.ReduceMean(self, list(range(-rank, 0)), keepdims=1)
        if _divides(sizes, wanted):
            kernel = [n // w for n, w in zip(sizes, wanted, strict=True)]
            return batched(op, self, rank, lambda x: op.AveragePool(x, kernel_shape=kernel, strides=kernel))
        y = self
        for axis, n, w in zip(range(-rank, 0), sizes, wanted, strict=True):
            if isinstance(w, ir.Value):
                y = _mean_of_open_parts(op, y, axis, w)
            elif isinstance(w, int) and n != w:
                y = _mean_of_parts(op, y, axis, n, w)
        return y

    return lower


def _mean_of_parts(op, x, axis, size, count):
    """The means over the parts of one axis, as a product with a matrix."""
    if not isinstance(size, int):
        return op.ReduceMean(x, [axis], keepdims=1) if count == 1 else _mean_of_open_parts(op, x, axis, count)
    matrix = np.zeros((size, count), x.dtype.numpy())
    for i, (start, end) in enumerate(_parts(size, count)):
        matrix[start:end, i] = 1 / (end - start)
    if axis == -1:
        return op.MatMul(x, matrix)
    behind = list(x.shape)[axis + 1 :]
    lead = [op.size(x, i) for i in range(len(x.shape) + axis)]
    if len(behind) == 1:
        return op.MatMul(np.ascontiguousarray(matrix.T), x)
    flat = op.reshape(x, [*lead, size, behind[0] * behind[1]])
    return op.reshape(op.MatMul(np.ascontiguousarray(matrix.T), flat), [*lead, count, *behind])


def _mean_of_open_parts(op, x, axis, count):
    """The means over the parts of an axis whose size is not known."""
    member = op.Cast(_inside(op, op.size(x, axis), count), to=x.dtype)
    share = op.Div(member, op.ReduceSum(member, [1], keepdims=1))
    order = list(range(len(x.shape)))
    order[axis], order[-1] = order[-1], order[axis]
    flipped = op.MatMul(op.Transpose(x, perm=order), op.Transpose(share, perm=[1, 0]))
    return op.Transpose(flipped, perm=order)


def _inside(op, size, count):
    """Which elements of an axis, given as its size, each of so many parts has: [parts, elements]."""
    parts = upright(op, factorizations.count(op, count))
    places = op.Unsqueeze(op.Range(np.int64(0), size, np.int64(1)), [0])
    start = op.Div(op.Mul(size, parts), count)
    end = op.Div(op.Add(op.Mul(size, op.Add(parts, 1)), op.Sub(count, 1) if isinstance(count, ir.Value) else count - 1), count)
    return op.And(op.GreaterOrEqual(places, start), op.Less(places, end))


def _adaptive_max(rank):
    def lower(op, self, output_size):
        sizes, wanted = _adaptive(self, rank, output_size)
        if not _divides(sizes, wanted):
            return _max_of_parts(op, self, rank, sizes, wanted)
        kernel = tuple(n // w for n, w in zip(sizes, wanted, strict=True))
        return _max_pool_with_indices(rank)(op, self, kernel, kernel)

    return lower


def _max_of_parts(op, x, rank, sizes, wanted):
    """Maxima and their places in the plane, window by window."""
    if not all(isinstance(n, int) for n in (*sizes, *wanted)):
        counts = [w if isinstance(w, (int, ir.Value)) else op.size(x, i - rank) for i, w in enumerate(wanted)]
        return _max_of_open_parts(op, x, rank, counts)
    windows = [[]]
    for n, w in zip(sizes, wanted, strict=True):
        windows = [[*front, part] for front in windows for part in _parts(n, w)]
    plane = np.arange(int(np.prod(sizes)), dtype=np.int64).reshape(sizes)
    lead = list(x.shape)[:-rank]
    values, places = [], []
    for window in windows:
        starts, ends = zip(*window, strict=True)
        cut = op.Slice(x, list(starts), list(ends), list(range(len(lead), len(lead) + rank)))
        count = int(np.prod([e - s for s, e in window]))
        flat = op.reshape(cut, [*(op.size(x, i) for i in range(len(lead))), count])
        best, index = op.TopK(flat, [1], axis=-1, outputs=2)
        inside = plane[tuple(slice(s, e) for s, e in window)].reshape(-1)
        values.append(best)
        places.append(op.Gather(op.constant(np.ascontiguousarray(inside)), index))
    shape = [*(op.size(x, i) for i in range(len(lead))), *wanted]
    return op.reshape(op.Concat(*values, axis=-1), shape), op.reshape(op.Concat(*places, axis=-1), shape)


def _max_of_open_parts(op, x, rank, wanted):
    """The same where sizes are not known, axis by axis from the last: of each part over all of the axis, of equals the first."""
    width = len(x.shape)
    places = None  # in the plane of the axes dealt with, those behind being the faster ones
    behind = op.constant(np.int64(1))
    for axis in range(width - 1, width - rank - 1, -1):
        size, count = op.size(x, axis), wanted[axis - width]
        size = op.constant(np.int64(size)) if isinstance(size, int) else size
        # [..., parts, elements, ...], all but the axis as they are
        member = op.reshape(_inside(op, size, count), [count, -1, *[1] * (width - 1 - axis)])
        spread = op.Where(member, op.Unsqueeze(x, [axis]), -math.inf)
        spread = op.Where(op.And(member, op.IsNaN(op.Unsqueeze(x, [axis]))), math.inf, spread)
        own = op.ArgMax(spread, axis=axis + 1, keepdims=1)
        x = op.Squeeze(op.GatherElements(op.Expand(op.Unsqueeze(x, [axis]), op.Shape(spread)), own, axis=axis + 1), [axis + 1])
        before = op.Squeeze(own, [axis + 1])
        if places is not None:
            open_ = op.Expand(op.Unsqueeze(places, [axis]), op.Shape(spread))
            before = op.Add(op.Mul(before, behind), op.Squeeze(op.GatherElements(open_, own, axis=axis + 1), [axis + 1]))
        places, behind = before, op.Mul(behind, size)
    return x, places


for _rank in (1, 2, 3):
    rule(f"aten::adaptive_avg_pool{_rank}d")(_adaptive_avg(_rank))
    if _rank > 1:
        rule(f"aten::_adaptive_avg_pool{_rank}d")(_adaptive_avg(_rank))
    rule(f"aten::adaptive_max_pool{_rank}d")(_adaptive_max(_rank))


def _fractional(rank):
    """Windows that begin at places drawn at random, as the samples say: the same way in which PyTorch places them."""

    def lower(op, self, kernel_size, output_size, random_samples):
        kernel, wanted = per_axis(kernel_size, rank), per_axis(output_size, rank)
        sizes = list(self.shape)[-rank:]
        if not all(isinstance(n, int) for n in sizes):
            raise Unsupported("fractional pooling of a dynamic size", "fix the spatial sizes")
        x = self if len(self.shape) == rank + 2 else op.Unsqueeze(self, [0])
        places = None
        for axis in range(rank):
            # the samples of two axes come last axis first, those of three in their order
            sample = op.Gather(random_samples, np.int64(rank - 1 - axis if rank == 2 else axis), axis=2)
            sample = op.Unsqueeze(cast(op, sample, x.dtype), [-1])
            starts = _starts(op, sample, sizes[axis], kernel[axis], wanted[axis])
            reach = op.Add(op.Unsqueeze(starts, [-1]), np.arange(kernel[axis], dtype=np.int64))
            # [n, c, windows, inside], each axis of the pair beside those before it
            shape = [op.size(x, 0), op.size(x, 1)]
            beside = [1] * rank
            beside[axis] = wanted[axis]
            within = [1] * rank
            within[axis] = kernel[axis]
            reach = op.reshape(reach, [*shape, *beside, *within])
            places = reach if places is None else op.Add(op.Mul(places, sizes[axis]), reach)
        count = int(np.prod(kernel))
        lead = [op.size(x, 0), op.size(x, 1)]
        places = op.reshape(places, [*lead, int(np.prod(wanted)) * count])
        values = op.GatherElements(op.reshape(x, [*lead, int(np.prod(sizes))]), places, axis=2)
        values = op.reshape(values, [*lead, int(np.prod(wanted)), count])
        best = op.ArgMax(values, axis=-1, keepdims=1)
        chosen = op.GatherElements(op.reshape(places, [*lead, int(np.prod(wanted)), count]), best, axis=-1)
        shape = [*lead, *wanted]
        y, indices = op.reshape(op.ReduceMax(values, [-1], keepdims=0), shape), op.reshape(chosen, shape)
        return (y, indices) if x is self else (op.Squeeze(y, [0]), op.Squeeze(indices, [0]))

    return lower


def _starts(op, sample, size, kernel, count):
    """Where the windows of one axis begin: [n, c, count]."""
    if count == 1:
        return op.Add(op.Cast(op.Mul(sample, 0.0), to=ir.DataType.INT64), size - kernel)
    alpha = op.CastLike(np.float32(size - kernel) / np.float32(count - 1), sample)
    steps = np.arange(count - 1).astype(sample.dtype.numpy())
    places = op.Sub(op.Floor(op.Mul(op.Add(sample, steps), alpha)), op.Floor(op.Mul(sample, alpha)))
    last = op.Add(op.Mul(sample, 0.0), float(size - kernel))
    return op.Cast(op.Concat(places, last, axis=-1), to=ir.DataType.INT64)


for _rank in (2, 3):
    rule(f"aten::fractional_max_pool{_rank}d")(_fractional(_rank))
