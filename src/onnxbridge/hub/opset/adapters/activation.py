"""Activations: Softmax, LogSoftmax and Hardmax flattened their input to a matrix before opset 13."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of, known, rank_of

_FLATTENING = ("Softmax", "LogSoftmax", "Hardmax")


def _flattened(name):
    """Opset 12: all axes from `axis` on are normalized together."""

    def softmax(op, input, *, axis=1):
        rank = input.shape and len(input.shape)
        if rank and axis in (-1, rank - 1):
            return op.call(name, input, axis=-1)
        if rank and 0 in input.shape:
            return op.Identity(input)  # a Reshape would treat the 0 as an unchanged size
        return op.Reshape(op.call(name, op.Flatten(input, axis=axis), axis=-1), op.Shape(input))

    return softmax


def _along_axis(name):
    """Opset 13: along one axis. The old version does that on the last axis."""

    def softmax(op, input, *, axis=-1):
        rank = rank_of(input)
        axis %= max(rank, 1)
        if axis == rank - 1:
            return op.call(name, input, axis=axis)
        order = [i for i in range(rank) if i != axis] + [axis]
        back = [order.index(i) for i in range(rank)]
        return op.Transpose(op.call(name, op.Transpose(input, perm=order), axis=rank - 1), perm=back)

    return softmax


for _name in _FLATTENING:
    up(_name, to=13)(_flattened(_name))
    down(_name, to=12)(_along_axis(_name))


@up("Clip", to=11)
def clip(op, input, *, min=-3.4028234663852886e38, max=3.4028234663852886e38):
    limits = np.finfo(np.float32)
    dtype = dtype_of(input).numpy()
    low = None if min <= limits.min else np.array(min, dtype)
    high = None if max >= limits.max else np.array(max, dtype)
    return op.Clip(input, low, high)


@down("Clip", to=10)
def clip_bounds(op, input, min=None, max=None):
    """The bounds were float32 attributes; other bounds are written as Max and Min."""
    bounds = [None if v is None else known(v) for v in (min, max)]
    fixed = all(
        v is None or (b is not None and (not np.isfinite(b) or float(np.float32(b)) == float(b)))
        for v, b in zip((min, max), bounds, strict=True)
    )
    # runtimes support float32 only, although the standard allows other floats
    if fixed and dtype_of(input).name == "FLOAT":
        low, high = (None if b is None else float(b.reshape(())) for b in bounds)
        return op.Clip(input, min=low, max=high)
    y = input if min is None else op.Max(input, op.Reshape(min, np.zeros(0, np.int64)))
    y = y if max is None else op.Min(y, op.Reshape(max, np.zeros(0, np.int64)))
    return op.Identity(input) if y is input else y


@up("Selu", to=6)
def selu(op, X, *, alpha=1.6732, gamma=1.0507):
    return op.Selu(X, alpha=alpha, gamma=gamma)


@up("PRelu", to=7)
def prelu(op, X, slope):
    """The slope had one element, or one per channel; from opset 7 on it broadcasts from the right."""
    if slope.shape is None or len(slope.shape) != 1 or slope.shape[0] == 1:
        return op.PRelu(X, slope)
    return op.PRelu(X, op.Reshape(slope, [-1] + [1] * (rank_of(X) - 2)))


# log(erfc(z) exp(z^2) / t) as a polynomial of 3t - 1 where t = 2 / (2 + z), for z from 1 on, to 16 digits: interpolated at
# Chebyshev points. Below 1 the series x (1 - x^2 / 3 + x^4 / 10 - ...) times 2 / sqrt(pi).
_TAIL = [
    4.784933340986544e-10, -8.095293362855662e-10, 6.743337249605225e-11, 5.906938328047619e-09, -2.3165503711848657e-08,
    -1.7427440386346874e-08, 1.9681095150244484e-07, -1.959122741555834e-08, -1.2698570745104325e-06, 6.116761115047271e-07,
    8.044233672550442e-06, -4.724013207295628e-06, -5.495148703655136e-05, 1.927258497344611e-05, 0.00042342101147941876,
    0.0001520639412719939, -0.0037691150391316697, -0.007742687639172314, 0.03773345772675056, 0.4182613562010605,
    -0.8891660234348958,
]  # fmt: skip
_SERIES = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(20, -1, -1)]


@down("Erf", to=8)
def erf_by_polynomials(op, input):
    """In float64, so that the result is accurate to about one unit in the last place of the input's dtype."""
    dtype = dtype_of(input)
    if dtype.name not in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"):
        raise Unsupported("added in opset 9, and there is a decomposition for floats only")
    double = ir.DataType.DOUBLE
    x = op.Cast(input, to=double)
    size, one, zero = op.Abs(x), op.constant(1.0, dtype=double), op.constant(0.0, dtype=double)
    near = op.Min(size, one)
    small = op.Mul(near, _polynomial(op, op.Mul(near, near), _SERIES))
    t = op.Div(op.constant(2.0, dtype=double), op.Add(size, 2.0))
    tail = op.Mul(t, op.Exp(op.Sub(_polynomial(op, op.Sub(op.Mul(t, 3.0), 1.0), _TAIL), op.Mul(size, size))))
    far = op.Cast(op.Greater(size, one), to=double)
    y = op.Add(op.Mul(op.Sub(one, tail), far), op.Mul(small, op.Sub(one, far)))
    sign = op.Sub(op.Cast(op.Greater(x, zero), to=double), op.Cast(op.Less(x, zero), to=double))
    return op.Cast(op.Mul(y, sign), to=dtype)


def _polynomial(op, x, coefficients):
    """Horner's rule, highest power first."""
    table = np.array(coefficients)
    start = op.Add(op.Mul(x, 0.0), float(table[0]))

    def body(step, going, total):
        return [going, op.Add(op.Mul(total, x), op.Gather(table[1:], step, axis=0))]

    return op.Loop(np.array(len(table) - 1, np.int64), True, start, body=body)


@down("Sign", to=8)
def sign(op, input):
    if dtype_of(input).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        raise Unsupported("added in opset 9, and there is a decomposition for floats only")
    dtype = dtype_of(input)
    return op.Sub(op.Cast(op.Greater(input, 0.0), to=dtype), op.Cast(op.Less(input, 0.0), to=dtype))
