"""Reductions and cumulative sums."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.arithmetic import log1p
from onnxbridge.frontends.tensorflow.sizes import LEAST, MOST, int64, known_ints, scalar, set_rank, vector
from onnxbridge.hub.decompositions.standard.dynamic_axis import along
from onnxbridge.hub.ir.values import cast, rank


def _reduce(op, kind, x, axes, keep_dims):
    """No axes reduce nothing; negative axes count from the end."""
    known = known_ints(axes)
    if known is None:
        y = op.call(kind, x, op.Reshape(int64(op, axes), [-1]), keepdims=int(keep_dims), noop_with_empty_axes=1)
        return set_rank(y, _reduced_rank(x, axes, keep_dims))
    if x.shape is not None:  # runtimes give wrong shapes for negative axes of empty tensors
        known = [a % len(x.shape) for a in known]
    return op.call(kind, x, known, keepdims=int(keep_dims)) if known else x


def _reduced_rank(x, axes, keep_dims):
    if x.shape is None or axes.shape is None or (len(axes.shape) and not isinstance(axes.shape[0], int)):
        return None
    return len(x.shape) - (0 if keep_dims else axes.shape[0] if len(axes.shape) else 1)


def _reduction(name, onnx):
    @rule(name)
    def reduction(op, input, reduction_indices, *, keep_dims=False):
        if input.dtype == D.UINT64 and onnx in ("ReduceMax", "ReduceMin"):
            return _unsigned(op, _reduce(op, onnx, _signed(op, input), reduction_indices, keep_dims))
        narrow = input.dtype in _NARROW
        x = op.Cast(input, to=_NARROW[input.dtype]) if narrow else input  # runtimes have no kernel for others
        return cast(op, _reduce(op, onnx, x, reduction_indices, keep_dims), input.dtype)


D = ir.DataType
_NARROW = {
    D.INT8: D.INT32, D.INT16: D.INT32, D.UINT8: D.INT32, D.UINT16: D.INT32, D.UINT32: D.INT64, D.UINT64: D.INT64,
}  # fmt: skip
_HIGHEST_BIT = np.uint64(1 << 63)


def _signed(op, x):
    """A uint64 value as int64, in the same order."""
    return op.BitCast(op.BitwiseXor(x, _HIGHEST_BIT), to=D.INT64)


def _unsigned(op, x):
    return op.BitwiseXor(op.BitCast(x, to=D.UINT64), _HIGHEST_BIT)


for _name, _onnx in {"Sum": "ReduceSum", "Prod": "ReduceProd", "Max": "ReduceMax", "Min": "ReduceMin"}.items():
    _reduction(_name, _onnx)


@rule("Mean")
def mean(op, input, reduction_indices, *, keep_dims=False):
    axes = known_ints(reduction_indices)
    ones = [None if input.shape is None else input.shape[a] for a in axes] if axes is not None else [None]
    if input.dtype.is_floating_point() and 0 not in ones:
        return _reduce(op, "ReduceMean", input, reduction_indices, keep_dims)
    x = cast(op, input, _NARROW.get(input.dtype, input.dtype))
    total = _reduce(op, "ReduceSum", x, reduction_indices, keep_dims)
    if all(isinstance(o, int) for o in ones):
        count = int(np.prod(ones))  # of integers without elements, the mean is 0
        count = np.array(count if input.dtype.is_floating_point() else max(count, 1), x.dtype.numpy())
    else:
        at = int64(op, reduction_indices) if axes is None else axes
        count = op.Cast(op.ReduceProd(op.Gather(op.Shape(input), at), keepdims=0), to=x.dtype)
    return cast(op, op.Div(total, count), input.dtype)


@rule("EuclideanNorm")
def euclidean_norm(op, input, reduction_indices, *, keep_dims=False):
    axes = known_ints(reduction_indices)
    if axes == []:
        return op.Abs(input)
    if input.dtype.is_floating_point():
        return _reduce(op, "ReduceL2", input, reduction_indices, keep_dims)
    squares = _reduce(op, "ReduceSum", cast(op, op.Mul(input, input), D.INT64), reduction_indices, keep_dims)
    wrapped = cast(op, cast(op, squares, input.dtype), D.DOUBLE)  # as a sum of the integers' own dtype
    return cast(op, op.Sqrt(wrapped), input.dtype)


def _logical(op, kind, x, axes, keep_dims):
    return op.Cast(_reduce(op, kind, op.Cast(x, to=D.INT32), axes, keep_dims), to=D.BOOL) if known_ints(axes) != [] else x


@rule("All")
def all_(op, input, reduction_indices, *, keep_dims=False):
    return _logical(op, "ReduceProd", input, reduction_indices, keep_dims)  # 1 for no elements


@rule("Any")
def any_(op, input, reduction_indices, *, keep_dims=False):
    return _logical(op, "ReduceSum", input, reduction_indices, keep_dims)  # 0 for no elements


_ORDERED = (D.FLOAT, D.DOUBLE, D.INT8, D.UINT8, D.INT32, D.INT64)


def _arg(op, kind, x, axis, to):
    if x.dtype not in _ORDERED:
        x = op.Cast(x, to=D.FLOAT if x.dtype.is_floating_point() else D.INT64 if x.dtype.bitwidth > 16 else D.INT32)
    if x.dtype.is_floating_point():  # NaN is never chosen, which ONNX leaves open
        worst = np.array(-np.inf if kind == "ArgMax" else np.inf, x.dtype.numpy())
        x = op.Where(op.IsNaN(x), worst, x)
    known = known_ints(axis)
    if known is not None and x.shape is None:
        return cast(op, op.call(kind, x, axis=known[0], keepdims=0), to)
    return along(op, axis, rank(x), lambda a: cast(op, op.call(kind, x, axis=a, keepdims=0), to))


@rule("ArgMax")
def arg_max(op, input, dimension, *, output_type=D.INT64):
    return _arg(op, "ArgMax", input, dimension, output_type)


@rule("ArgMin")
def arg_min(op, input, dimension, *, output_type=D.INT64):
    return _arg(op, "ArgMin", input, dimension, output_type)


def _cumulative(op, kind, x, axis, exclusive, reverse):
    narrow = _NARROW.get(x.dtype, x.dtype)
    y = op.call(kind, cast(op, x, narrow), op.Reshape(axis, []), exclusive=int(exclusive), reverse=int(reverse))
    return cast(op, y, x.dtype)


@rule("Cumsum")
def cumsum(op, x, axis, *, exclusive=False, reverse=False):
    return _cumulative(op, "CumSum", x, axis, exclusive, reverse)


@rule("Cumprod")
def cumprod(op, x, axis, *, exclusive=False, reverse=False):
    return _cumulative(op, "CumProd", x, axis, exclusive, reverse)


@rule("CumulativeLogsumexp")
def cumulative_logsumexp(op, x, axis, *, exclusive=False, reverse=False):
    """Sums of twice as many elements in each iteration; -inf stands for no element."""
    lowest = np.array(-np.inf, x.dtype.numpy())

    def write(a):
        n, size = rank(x), op.size(x, a)
        y = op.Slice(x, [MOST], [LEAST], [a], [-1]) if reverse else x

        def shifted(v, by):
            """v moved up by a number of elements."""
            filler = op.Expand(lowest, op.dims([by if i == a else op.size(x, i) for i in range(n)]))
            return op.Slice(op.Concat(filler, v, axis=a), [0], vector(op, size), [a])

        def body(iteration, condition, total, step):
            other = shifted(total, step)
            high, low = op.Max(total, other), op.Min(total, other)
            infinite = op.IsInf(high)
            more = op.Exp(op.Where(infinite, lowest, op.Sub(low, op.Where(infinite, np.zeros((), x.dtype.numpy()), high))))
            sum_ = op.Where(infinite, high, op.Add(high, log1p(op, more)))
            step = op.Mul(step, 2)
            return op.Less(step, scalar(op, size)), sum_, step

        y = shifted(y, 1) if exclusive else y
        y, _ = op.Loop(None, op.Greater(scalar(op, size), 1), y, op.constant(np.int64(1)), body=body, outputs=2)
        return op.Slice(y, [MOST], [LEAST], [a], [-1]) if reverse else y

    return along(op, axis, rank(x), write)


@rule("TopKV2")
def top_k_v2(op, input, k, *, sorted=True, index_type=ir.DataType.INT32):
    keys = op.Cast(input, to=D.INT64) if input.dtype in (D.UINT16, D.UINT32) else input
    keys = _signed(op, input) if input.dtype == D.UINT64 else keys
    axis = -1 if input.shape is None else rank(input) - 1
    values, indices = op.TopK(keys, op.Reshape(int64(op, k), [1]), axis=axis, sorted=1, outputs=2)
    values = _unsigned(op, values) if input.dtype == D.UINT64 else cast(op, values, input.dtype)
    return values, cast(op, indices, index_type)
