"""Tensor creation, copies and dtype conversion."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import DEFAULT, cast, category, result_type
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import sizes

D = ir.DataType
LARGEST_CONSTANT = 1 << 16


def fill(op, size, value, dtype):
    """A tensor of the given sizes (numbers or values), filled with a number or scalar value."""
    if isinstance(value, ir.Value):
        return op.Expand(cast(op, op.reshape(value, []), dtype), op.dims(size))
    with np.errstate(over="ignore", invalid="ignore"):
        scalar = np.asarray(value).astype(dtype.numpy())
    if all(isinstance(s, int) for s in size) and math.prod(size) <= LARGEST_CONSTANT:
        return op.constant(np.full(size, scalar))
    return op.ConstantOfShape(op.dims(size), value=ir.tensor(scalar.reshape(1), dtype=dtype))


def default_dtype(value):
    """The default dtype of a Python number in PyTorch."""
    return result_type(value)


@rule("aten::full")
def full(op, size, fill_value, *, dtype=None):
    return fill(op, size, fill_value, dtype or default_dtype(fill_value))


@rule("aten::zeros")
def zeros(op, size, *, dtype=None):
    return fill(op, size, 0, dtype or DEFAULT)


@rule("aten::ones")
def ones(op, size, *, dtype=None):
    return fill(op, size, 1, dtype or DEFAULT)


@rule("aten::new_zeros")
def new_zeros(op, self, size, *, dtype=None):
    return fill(op, size, 0, dtype or self.dtype)


@rule("aten::new_ones")
def new_ones(op, self, size, *, dtype=None):
    return fill(op, size, 1, dtype or self.dtype)


@rule("aten::new_full")
def new_full(op, self, size, fill_value, *, dtype=None):
    return fill(op, size, fill_value, dtype or self.dtype)


# uninitialized memory may hold any value: zeros
rule("aten::empty.memory_format")(zeros)
rule("aten::new_empty")(new_zeros)


@rule("aten::empty_strided")
def empty_strided(op, size, stride, *, dtype=None):
    return fill(op, size, 0, dtype or DEFAULT)


@rule("aten::new_empty_strided")
def new_empty_strided(op, self, size, stride, *, dtype=None):
    return fill(op, size, 0, dtype or self.dtype)


@rule("aten::zeros_like", "aten::empty_like")
def zeros_like(op, self, *, dtype=None):
    return fill(op, sizes(op, self), 0, dtype or self.dtype)


@rule("aten::ones_like")
def ones_like(op, self, *, dtype=None):
    return fill(op, sizes(op, self), 1, dtype or self.dtype)


@rule("aten::full_like")
def full_like(op, self, fill_value, *, dtype=None):
    return fill(op, sizes(op, self), fill_value, dtype or self.dtype)


@rule("aten::fill.Scalar", "aten::fill.Tensor")
def fill_(op, self, value):
    return fill(op, sizes(op, self), value, self.dtype)


@rule("aten::zero")
def zero(op, self):
    return fill(op, sizes(op, self), 0, self.dtype)


@rule("aten::scalar_tensor")
def scalar_tensor(op, s, *, dtype=None):
    return cast(op, s, dtype or DEFAULT)


@rule("aten::eye")
def eye(op, n, *, dtype=None):
    return eye_m(op, n, n, dtype=dtype)


@rule("aten::eye.m")
def eye_m(op, n, m, *, dtype=None):
    dtype = dtype or DEFAULT
    if isinstance(n, int) and isinstance(m, int) and n * m <= LARGEST_CONSTANT:
        return op.constant(np.eye(n, m).astype(dtype.numpy()))
    return op.EyeLike(fill(op, [n, m], 0, dtype), dtype=dtype)


@rule("aten::arange")
def arange(op, end, *, dtype=None):
    return arange_step(op, 0, end, 1, dtype=dtype)


@rule("aten::arange.start")
def arange_start(op, start, end, *, dtype=None):
    return arange_step(op, start, end, 1, dtype=dtype)


@rule("aten::arange.start_step")
def arange_step(op, start, end, step=1, *, dtype=None):
    dtype = dtype or result_type(start, end, step)
    if not any(isinstance(v, ir.Value) for v in (start, end, step)):
        count = max(0, math.ceil((end - start) / step))
        if count <= LARGEST_CONSTANT:
            np_dtype = np.float64 if isinstance(start, float) or isinstance(step, float) else np.int64
            return op.constant((start + np.arange(count).astype(np_dtype) * step).astype(dtype.numpy()))
    all_integers = all(
        not isinstance(v, float) and (not isinstance(v, ir.Value) or v.dtype == D.INT64) for v in (start, end, step)
    )
    if all_integers:
        return cast(op, op.Range(*(cast(op, v, D.INT64) for v in (start, end, step))), dtype)
    # the count is computed in double, as PyTorch does
    start, end, step = (cast(op, v, D.DOUBLE) for v in (start, end, step))
    count = op.Cast(op.Ceil(op.Div(op.Sub(end, start), step)), to=D.INT64)
    positions = op.Range(np.int64(0), op.Max(count, 0), np.int64(1))
    return cast(op, op.Add(start, op.Mul(op.Cast(positions, to=D.DOUBLE), step)), dtype)


@rule("aten::linspace")
def linspace(op, start, end, steps, *, dtype=None):
    dtype = dtype or DEFAULT
    if not any(isinstance(v, ir.Value) for v in (start, end, steps)):
        return op.constant(_linspace(float(start), float(end), steps, dtype))
    exact = D.DOUBLE
    start, end = (cast(op, v, exact) for v in (start, end))
    count = cast(op, steps, D.INT64)
    positions = op.Cast(op.Range(np.int64(0), count, np.int64(1)), to=exact)
    step = op.Div(op.Sub(end, start), op.Max(op.Cast(op.Sub(count, 1), to=exact), 1.0))
    return cast(op, op.Add(start, op.Mul(positions, step)), dtype)


def _linspace(start, end, steps, dtype):
    """Equidistant points; the second half is computed from the end, as PyTorch does."""
    if steps == 1:
        return np.asarray([start]).astype(dtype.numpy())
    step = (end - start) / max(steps - 1, 1)
    i = np.arange(steps)
    return np.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i)).astype(dtype.numpy())


@rule("aten::logspace")
def logspace(op, start, end, steps, base=10.0, *, dtype=None):
    points = _linspace(float(start), float(end), steps, D.DOUBLE)
    return op.constant(np.power(float(base), points).astype((dtype or DEFAULT).numpy()))


@rule("aten::tril_indices")
def tril_indices(op, row, col, offset=0, *, dtype=None):
    return op.constant(np.stack(np.tril_indices(row, offset, col)).astype((dtype or D.INT64).numpy()))


@rule("aten::triu_indices")
def triu_indices(op, row, col, offset=0, *, dtype=None):
    return op.constant(np.stack(np.triu_indices(row, offset, col)).astype((dtype or D.INT64).numpy()))


@rule("aten::clone", "aten::contiguous", "aten::detach", "aten::alias", "aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift",
      "aten::positive", "aten::resolve_neg", "aten::detach_copy", "aten::alias_copy")  # fmt: skip
def identity(op, self):
    return self


@rule("aten::conj", "aten::resolve_conj", "aten::_conj", "aten::conj_physical", "aten::real")
def conj(op, self):
    if category(self.dtype) == 3:
        raise Unsupported("complex numbers")
    return self


@rule("aten::to.dtype", "aten::to.dtype_layout")
def to_dtype(op, self, dtype=None, *, copy=False):
    return self if dtype is None else cast(op, self, dtype)


@rule("aten::_to_copy")
def to_copy(op, self, *, dtype=None):
    return self if dtype is None else cast(op, self, dtype)


@rule("aten::to.device")
def to_device(op, self, device=None, dtype=None, *, copy=False):
    return self if dtype is None else cast(op, self, dtype)


@rule("aten::to.other")
def to_other(op, self, other, *, copy=False):
    return cast(op, self, other.dtype)


@rule("aten::type_as")
def type_as(op, self, other):
    return cast(op, self, other.dtype)


@rule("aten::copy")
def copy(op, self, src):
    return op.Expand(cast(op, src, self.dtype), op.dims(sizes(op, self)))
