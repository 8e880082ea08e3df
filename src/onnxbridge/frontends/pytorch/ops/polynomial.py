"""Orthogonal polynomials by their recurrence relations; the degree is a number or a tensor."""

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float, result_type
from onnxbridge.frontends.pytorch.ops import rule

D = ir.DataType
UNROLLED = 16
"""Degrees up to this one are unrolled; larger ones and tensors of degrees become a loop."""


def _twice(op, x, k, current, previous):
    return op.Sub(op.Mul(op.Mul(x, 2.0), current), previous)


def _hermite_h(op, x, k, current, previous):
    return op.Mul(op.Sub(op.Mul(x, current), op.Mul(previous, k)), 2.0)


def _hermite_he(op, x, k, current, previous):
    return op.Sub(op.Mul(x, current), op.Mul(previous, k))


def _legendre(op, x, k, current, previous):
    slope = op.Add(op.Mul(k, 2.0), 1.0)
    return op.Div(op.Sub(op.Mul(op.Mul(x, slope), current), op.Mul(previous, k)), op.Add(k, 1.0))


def _laguerre(op, x, k, current, previous):
    slope = op.Sub(op.Add(op.Mul(k, 2.0), 1.0), x)
    return op.Div(op.Sub(op.Mul(slope, current), op.Mul(previous, k)), op.Add(k, 1.0))


# the polynomial of degree 1 as (factor, constant), and the step from degrees k and k - 1 to k + 1
_FAMILIES = {
    "chebyshev_polynomial_t": (1.0, 0.0, _twice), "chebyshev_polynomial_u": (2.0, 0.0, _twice),
    "chebyshev_polynomial_v": (2.0, -1.0, _twice), "chebyshev_polynomial_w": (2.0, 1.0, _twice),
    "hermite_polynomial_h": (2.0, 0.0, _hermite_h), "hermite_polynomial_he": (1.0, 0.0, _hermite_he),
    "legendre_polynomial_p": (1.0, 0.0, _legendre), "laguerre_polynomial_l": (-1.0, 1.0, _laguerre),
}  # fmt: skip


def _constant_degree(op, x, n, first, step):
    """For a constant degree."""
    previous, current = op.Add(op.Mul(x, 0.0), 1.0), first
    if n < 1:
        return previous if n == 0 else op.Mul(x, 0.0)
    for k in range(1, n):
        previous, current = current, step(op, x, op.constant(k, dtype=D.DOUBLE), current, previous)
    return current


def _tensor_degree(op, x, n, first, step):
    """For a tensor of degrees: computes all up to the largest, and selects per element."""
    zero = op.Mul(op.Mul(x, op.Cast(n, to=D.DOUBLE)), 0.0)
    if 0 in zero.shape:
        return zero
    previous, current = op.Add(zero, 1.0), op.Add(first, zero)
    found = op.Where(op.Less(n, 0), op.Mul(current, 0.0), op.Where(op.Equal(n, 0), previous, current))

    def body(iteration, condition, previous, current, found):
        k = op.Add(iteration, 1)
        following = step(op, x, op.Cast(k, to=D.DOUBLE), current, previous)
        return condition, current, following, op.Where(op.Equal(n, op.Add(k, 1)), following, found)

    trip_count = op.Max(op.Sub(op.ReduceMax(n, keepdims=0), 1), 0)
    return op.Loop(trip_count, True, previous, current, found, body=body, outputs=3)[2]


def _rule(factor, constant, step, shifted):
    def lower(op, x, n):
        dtype = result_type(x, n)
        dtype = dtype if is_float(x) and dtype in (D.FLOAT, D.DOUBLE) or dtype == D.DOUBLE else D.FLOAT
        x = cast(op, x, D.DOUBLE)
        x = op.Sub(op.Mul(x, 2.0), 1.0) if shifted else x
        first = op.Mul(x, factor) if factor != 1.0 else x
        first = op.Add(first, constant) if constant else first
        if isinstance(n, (int, float)) and n <= UNROLLED:
            return cast(op, _constant_degree(op, x, int(n), first, step), dtype)
        return cast(op, _tensor_degree(op, x, cast(op, n, D.INT64), first, step), dtype)

    return lower


for _name, (_factor, _constant, _step) in _FAMILIES.items():
    for _prefix in ("", "shifted_") if _name.startswith("chebyshev") else ("",):
        _overloads = [f"aten::special_{_prefix}{_name}{overload}" for overload in ("", ".n_scalar", ".x_scalar")]
        rule(*_overloads)(_rule(_factor, _constant, _step, bool(_prefix)))
