"""Reductions along axes: sums, means, extremes, norms; and cumulative ones."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float, promote_to_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.comparison import to_bool
from onnxbridge.frontends.pytorch.ops.creation import fill
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, sizes

D = ir.DataType


def axes_of(x, dim):
    """The axes to reduce: all for None and (); none for a zero-dimensional tensor."""
    if dim is None or dim == ():
        return list(range(len(x.shape)))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted(d % len(x.shape) for d in dims) if len(x.shape) else []


_EMPTY_RESULT = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMean": math.nan, "ReduceL2": 0}


def reduce(op, name, x, dim, keepdim=False):
    axes = axes_of(x, dim)
    if name in _EMPTY_RESULT and any(x.shape[a] == 0 for a in axes):  # runtimes disagree on empty axes
        shape = [1 if i in axes else s for i, s in enumerate(sizes(op, x)) if keepdim or i not in axes]
        return fill(op, shape, _EMPTY_RESULT[name], x.dtype)
    return op.call(name, x, axes, keepdims=int(keepdim)) if axes else x


def cast_for_sum(op, x, dtype):
    """x in the dtype in which PyTorch sums it: int64 for integers and bool."""
    return cast(op, x, dtype or (x.dtype if is_float(x) or x.dtype in (D.COMPLEX64, D.COMPLEX128) else D.INT64))


@rule("aten::sum")
def sum_all(op, self, *, dtype=None):
    return reduce(op, "ReduceSum", cast_for_sum(op, self, dtype), None)


@rule("aten::sum.dim_IntList")
def sum_(op, self, dim, keepdim=False, *, dtype=None):
    return reduce(op, "ReduceSum", cast_for_sum(op, self, dtype), dim, keepdim)


@rule("aten::mean")
def mean_all(op, self, *, dtype=None):
    return reduce(op, "ReduceMean", cast(op, self, dtype or self.dtype), None)


@rule("aten::mean.dim")
def mean(op, self, dim, keepdim=False, *, dtype=None):
    return reduce(op, "ReduceMean", cast(op, self, dtype or self.dtype), dim, keepdim)


@rule("aten::nansum")
def nansum(op, self, dim=None, keepdim=False, *, dtype=None):
    x = op.Where(op.IsNaN(self), 0.0, self) if is_float(self) else self
    return reduce(op, "ReduceSum", cast_for_sum(op, x, dtype), dim, keepdim)


@rule("aten::nanmean")
def nanmean(op, self, dim=None, keepdim=False, *, dtype=None):
    x = cast(op, self, dtype or self.dtype)
    missing = op.IsNaN(x)
    total = reduce(op, "ReduceSum", op.Where(missing, 0.0, x), dim, keepdim)
    count = reduce(op, "ReduceSum", op.Cast(op.Not(missing), to=x.dtype), dim, keepdim)
    return op.Div(total, count)


@rule("aten::prod")
def prod(op, self, *, dtype=None):
    return reduce(op, "ReduceProd", cast_for_sum(op, self, dtype), None)


@rule("aten::prod.dim_int")
def prod_dim(op, self, dim, keepdim=False, *, dtype=None):
    return reduce(op, "ReduceProd", cast_for_sum(op, self, dtype), dim, keepdim)


def _bool_reduction(name):
    """any (all): the maximum (minimum) of 0 and 1; if the axes may be empty, via a count."""

    def over(op, x, dim, keepdim):
        axes = axes_of(x, dim)
        if all(isinstance(x.shape[a], int) and x.shape[a] for a in axes):
            y = op.Cast(reduce(op, name, op.Cast(to_bool(op, x), to=D.INT32), dim, keepdim), to=D.BOOL)
        else:
            counted = to_bool(op, x) if name == "ReduceMax" else op.Not(to_bool(op, x))
            count = op.Cast(reduce(op, "ReduceSum", op.Cast(counted, to=D.INT64), dim, keepdim), to=D.BOOL)
            y = count if name == "ReduceMax" else op.Not(count)
        return op.Cast(y, to=x.dtype) if x.dtype == D.UINT8 else y

    return over


any_true, all_true = _bool_reduction("ReduceMax"), _bool_reduction("ReduceMin")


@rule("aten::any")
def any_(op, self):
    return any_true(op, self, None, False)


@rule("aten::any.dim", "aten::any.dims")
def any_dim(op, self, dim, keepdim=False):
    return any_true(op, self, dim, keepdim) if dim != () else to_bool(op, self)


@rule("aten::all")
def all_(op, self):
    return all_true(op, self, None, False)


@rule("aten::all.dim", "aten::all.dims")
def all_dim(op, self, dim, keepdim=False):
    return all_true(op, self, dim, keepdim) if dim != () else to_bool(op, self)


def reduce_extreme(op, name, x, dim, keepdim=False):
    """The largest or smallest element; NaN propagates, bool is reduced as integers."""
    if x.dtype in (D.BOOL, D.INT16, D.UINT16):  # not supported by ONNX reductions
        return op.Cast(reduce(op, name, op.Cast(x, to=D.INT32), dim, keepdim), to=x.dtype)
    return reduce(op, name, x, dim, keepdim)


@rule("aten::max")
def max_all(op, self):
    return reduce_extreme(op, "ReduceMax", self, None)


@rule("aten::min")
def min_all(op, self):
    return reduce_extreme(op, "ReduceMin", self, None)


@rule("aten::amax")
def amax(op, self, dim=(), keepdim=False):
    return reduce_extreme(op, "ReduceMax", self, dim, keepdim)


@rule("aten::amin")
def amin(op, self, dim=(), keepdim=False):
    return reduce_extreme(op, "ReduceMin", self, dim, keepdim)


@rule("aten::aminmax")
def aminmax(op, *, self, dim=None, keepdim=False):
    return reduce_extreme(op, "ReduceMin", self, dim, keepdim), reduce_extreme(op, "ReduceMax", self, dim, keepdim)


@rule("aten::max.dim")
def max_dim(op, self, dim, keepdim=False):
    return reduce_extreme(op, "ReduceMax", self, dim, keepdim), index_of_extreme(op, self, dim, keepdim, largest=True)


@rule("aten::min.dim")
def min_dim(op, self, dim, keepdim=False):
    return reduce_extreme(op, "ReduceMin", self, dim, keepdim), index_of_extreme(op, self, dim, keepdim, largest=False)


def index_of_extreme(op, x, dim, keepdim, largest):
    """The index of the first extreme element along an axis."""
    if len(x.shape) == 0:
        return op.constant(np.int64(0))
    x = op.Cast(x, to=D.INT32) if x.dtype in (D.BOOL, D.INT8, D.UINT8, D.INT16, D.UINT16) else x
    if x.dtype in (D.FLOAT, D.DOUBLE, D.INT32):
        return op.call("ArgMax" if largest else "ArgMin", x, axis=dim, keepdims=int(keepdim))
    _, index = op.TopK(x, [1], axis=dim, largest=int(largest), outputs=2)
    return index if keepdim else op.Squeeze(index, [dim])


def _arg(largest):
    def lower(op, self, dim=None, keepdim=False):
        if dim is not None:
            return index_of_extreme(op, self, dim, keepdim, largest)
        index = index_of_extreme(op, op.reshape(self, [-1]), 0, False, largest)
        return op.reshape(index, [1] * len(self.shape)) if keepdim else index

    return lower


rule("aten::argmax")(_arg(True))
rule("aten::argmin")(_arg(False))


def variance(op, x, dim, correction, keepdim):
    axes = axes_of(x, dim)
    mean = reduce(op, "ReduceMean", x, axes or None, True)
    centered = op.Sub(x, mean)
    total = reduce(op, "ReduceSum", op.Mul(centered, centered), axes or None, keepdim)
    correction = 1 if correction is None else correction
    count = 1
    for axis in axes:
        size = op.size(x, axis)
        count = op.Mul(count, size) if isinstance(size, ir.Value) or isinstance(count, ir.Value) else count * size
    if isinstance(count, ir.Value):
        degrees_of_freedom = op.Max(op.Sub(op.Cast(count, to=x.dtype), float(correction)), 0.0)
    else:
        degrees_of_freedom = np.asarray(max(0.0, count - correction), x.dtype.numpy())
    return op.Div(total, degrees_of_freedom), mean


def _moments(transform, with_mean):
    def finish(op, x, dim, correction, keepdim):
        result, mean = variance(op, x, dim, correction, keepdim)
        result = transform(op, result)
        if not with_mean:
            return result
        axes = axes_of(x, dim)
        return result, mean if keepdim or not axes else op.Squeeze(mean, axes)

    name = f"{'std' if transform is _root else 'var'}{'_mean' if with_mean else ''}"

    @rule(f"aten::{name}")
    def whole(op, self, unbiased=True):
        return finish(op, self, None, int(unbiased), False)

    @rule(f"aten::{name}.dim")
    def along(op, self, dim, unbiased=True, keepdim=False):
        return finish(op, self, dim, int(unbiased), keepdim)

    @rule(f"aten::{name}.correction")
    def corrected(op, self, dim=None, *, correction=None, keepdim=False):
        return finish(op, self, dim, correction, keepdim)


def _root(op, x):
    return op.Sqrt(x)


def _itself(op, x):
    return x


for _take in (_root, _itself):
    for _with_mean in (False, True):
        _moments(_take, _with_mean)


def norm_of(op, x, p, dim, keepdim):
    """The vector norm of order p."""
    if not axes_of(x, dim):
        return op.Abs(x) if p != 0 else op.Cast(op.Not(op.Equal(x, 0.0)), to=x.dtype)
    if p == 2:
        return reduce(op, "ReduceL2", x, dim, keepdim)
    size = op.Abs(x)
    if p == 1:
        return reduce(op, "ReduceSum", size, dim, keepdim)
    if p == math.inf:
        return reduce(op, "ReduceMax", size, dim, keepdim)
    if p == -math.inf:
        return reduce(op, "ReduceMin", size, dim, keepdim)
    if p == 0:
        return reduce(op, "ReduceSum", op.Cast(op.Not(op.Equal(x, 0.0)), to=x.dtype), dim, keepdim)
    return op.Pow(reduce(op, "ReduceSum", op.Pow(size, float(p)), dim, keepdim), 1.0 / p)


@rule("aten::linalg_vector_norm")
def vector_norm(op, self, ord=2, dim=None, keepdim=False, *, dtype=None):
    return norm_of(op, cast(op, self, dtype or self.dtype), ord, dim, keepdim)


@rule("aten::norm.Scalar")
def norm_scalar(op, self, p=2):
    return norm_of(op, self, p, None, False)


@rule("aten::norm.ScalarOpt_dim")
def norm(op, self, p, dim, keepdim=False):
    return norm_of(op, self, 2 if p is None else p, dim, keepdim)


@rule("aten::norm.ScalarOpt_dim_dtype")
def norm_dtype(op, self, p, dim, keepdim=False, *, dtype=None):
    return norm_of(op, cast(op, self, dtype or self.dtype), 2 if p is None else p, dim, keepdim)


@rule("aten::logsumexp")
def logsumexp(op, self, dim, keepdim=False):
    [x] = promote_to_float(op, self)
    axes = axes_of(x, dim)
    if not axes:
        return x
    top = op.ReduceMax(x, axes, keepdims=1)
    shift = op.Where(op.Equal(op.Abs(top), math.inf), 0.0, top)
    y = op.Add(op.Log(op.ReduceSum(op.Exp(op.Sub(x, shift)), axes, keepdims=1)), shift)
    return y if keepdim else op.Squeeze(y, axes)


@rule("aten::cumsum")
def cumsum(op, self, dim, *, dtype=None):
    x = cast_for_sum(op, self, dtype)
    if len(x.shape) == 0:
        return x
    if x.dtype in (D.INT8, D.UINT8, D.INT16):
        return op.Cast(op.CumSum(op.Cast(x, to=D.INT32), np.int64(dim)), to=x.dtype)
    return op.CumSum(x, np.int64(dim))


@rule("aten::count_nonzero.dim_IntList")
def count_nonzero_dims(op, self, dim):
    return reduce(op, "ReduceSum", op.Cast(to_bool(op, self), to=D.INT64), dim)


@rule("aten::count_nonzero")
def count_nonzero(op, self, dim=None):
    return reduce(op, "ReduceSum", op.Cast(to_bool(op, self), to=D.INT64), dim)


@rule("aten::diff")
def diff(op, self, n=1, dim=-1, prepend=None, append=None):
    parts = [x for x in (prepend, self, append) if x is not None]
    x = op.Concat(*parts, axis=dim) if len(parts) > 1 else self
    for _ in range(n):
        high, low = op.Slice(x, [1], [2**63 - 1], [dim]), op.Slice(x, [0], [-1], [dim])
        x = op.Xor(high, low) if x.dtype == D.BOOL else op.Sub(high, low)
    return x


def shape_value(op, x):
    """The shape as one value."""
    return op.dims(sizes(op, x))


@rule("aten::cumprod")
def cumprod(op, self, dim, *, dtype=None):
    x = cast_for_sum(op, self, dtype)
    return _scan(op, x, dim, op.Mul) if len(x.shape) else x


def _scan(op, x, dim, combine):
    """Inclusive scan with `combine` in log2(n) steps, each combining with the element twice as far back (Hillis-Steele)."""
    size = x.shape[dim]
    if not isinstance(size, int):
        return _dynamic_scan(op, x, dim, combine)
    step = 1
    while step < size:
        head = op.Slice(x, [0], [step], [dim])
        rest = combine(op.Slice(x, [step], [size], [dim]), op.Slice(x, [0], [size - step], [dim]))
        x = op.Concat(head, rest, axis=dim)
        step *= 2
    return x


def _dynamic_scan(op, x, dim, combine):
    """The same over a dynamic size."""

    def step_function(values, step, size):
        head = op.Slice(values[0], [0], step, [dim])
        rest = combine(op.Slice(values[0], step, [INT64_MAX], [dim]), op.Slice(values[0], [0], op.Sub(size, step), [dim]))
        return (op.Concat(head, rest, axis=dim),)

    return doubling_loop(op, op.reshape(op.size(x, dim), [1]), step_function, x)


def doubling_loop(op, size, step_function, *start):
    """Apply `step_function` with steps of 1, 2, 4 and so on below a size; size and step are 1-D values of one element."""

    def body(i, more, step, *values):
        updated = step_function(values, step, size)
        next_step = op.Mul(step, 2)
        return op.Squeeze(op.Less(next_step, size), [0]), next_step, *updated

    one = op.constant(np.ones(1, np.int64))
    more = op.Squeeze(op.Less(one, size), [0])
    _, *found = op.Loop(None, more, one, *start, body=body, outputs=1 + len(start))
    return found[0] if len(found) == 1 else tuple(found)


@rule("aten::logcumsumexp")
def logcumsumexp(op, self, dim):
    if len(self.shape) == 0:
        return self

    def log_add_exp(a, b):
        top = op.Max(a, b)
        shift = op.Where(op.Equal(op.Abs(top), math.inf), 0.0, top)
        return op.Add(op.Log(op.Add(op.Exp(op.Sub(a, shift)), op.Exp(op.Sub(b, shift)))), shift)

    return _scan(op, self, dim, log_add_exp)
