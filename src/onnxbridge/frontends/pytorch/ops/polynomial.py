"""Orthogonal polynomials by their recurrences, the degree a number or a tensor of degrees."""

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, common, is_float
from onnxbridge.frontends.pytorch.ops import rule

D = ir.DataType
UNROLLED = 16
"""Degrees up to this one are written out, larger ones and tensors of degrees are a loop."""


def _twice(op, x, k, now, before):
    return op.Sub(op.Mul(op.Mul(x, 2.0), now), before)


def _hermite_h(op, x, k, now, before):
    return op.Mul(op.Sub(op.Mul(x, now), op.Mul(before, k)), 2.0)


def _hermite_he(op, x, k, now, before):
    return op.Sub(op.Mul(x, now), op.Mul(before, k))


def _legendre(op, x, k, now, before):
    rise = op.Add(op.Mul(k, 2.0), 1.0)
    return op.Div(op.Sub(op.Mul(op.Mul(x, rise), now), op.Mul(before, k)), op.Add(k, 1.0))


def _laguerre(op, x, k, now, before):
    rise = op.Sub(op.Add(op.Mul(k, 2.0), 1.0), x)
    return op.Div(op.Sub(op.Mul(rise, now), op.Mul(before, k)), op.Add(k, 1.0))


# the polynomial of degree 1 as (factor, constant), and the one of degree k + 1 from those of k and k - 1
_FAMILIES = {
    "chebyshev_polynomial_t": (1.0, 0.0, _twice), "chebyshev_polynomial_u": (2.0, 0.0, _twice),
    "chebyshev_polynomial_v": (2.0, -1.0, _twice), "chebyshev_polynomial_w": (2.0, 1.0, _twice),
    "hermite_polynomial_h": (2.0, 0.0, _hermite_h), "hermite_polynomial_he": (1.0, 0.0, _hermite_he),
    "legendre_polynomial_p": (1.0, 0.0, _legendre), "laguerre_polynomial_l": (-1.0, 1.0, _laguerre),
}  # fmt: skip


def _of_degree(op, x, n, first, step):
    """For one known degree."""
    before, now = op.Add(op.Mul(x, 0.0), 1.0), first
    if n < 1:
        return before if n == 0 else op.Mul(x, 0.0)
    for k in range(1, n):
        before, now = now, step(op, x, op.constant(k, dtype=D.DOUBLE), now, before)
    return now


def _of_degrees(op, x, n, first, step):
    """For a tensor of degrees: all of them up to the largest, each kept where it is asked for."""
    zero = op.Mul(op.Mul(x, op.Cast(n, to=D.DOUBLE)), 0.0)
    if 0 in zero.shape:
        return zero
    before, now = op.Add(zero, 1.0), op.Add(first, zero)
    found = op.Where(op.Less(n, 0), op.Mul(now, 0.0), op.Where(op.Equal(n, 0), before, now))

    def turn(iteration, condition, before, now, found):
        k = op.Add(iteration, 1)
        after = step(op, x, op.Cast(k, to=D.DOUBLE), now, before)
        return condition, now, after, op.Where(op.Equal(n, op.Add(k, 1)), after, found)

    turns = op.Max(op.Sub(op.ReduceMax(n, keepdims=0), 1), 0)
    return op.Loop(turns, True, before, now, found, body=turn, outputs=3)[2]


def _rule(factor, constant, step, shifted):
    def lower(op, x, n):
        dtype = common(x, n)
        dtype = dtype if is_float(x) and dtype in (D.FLOAT, D.DOUBLE) or dtype == D.DOUBLE else D.FLOAT
        x = cast(op, x, D.DOUBLE)
        x = op.Sub(op.Mul(x, 2.0), 1.0) if shifted else x
        first = op.Mul(x, factor) if factor != 1.0 else x
        first = op.Add(first, constant) if constant else first
        if isinstance(n, (int, float)) and n <= UNROLLED:
            return cast(op, _of_degree(op, x, int(n), first, step), dtype)
        return cast(op, _of_degrees(op, x, cast(op, n, D.INT64), first, step), dtype)

    return lower


for _name, (_factor, _constant, _step) in _FAMILIES.items():
    for _prefix in ("", "shifted_") if _name.startswith("chebyshev") else ("",):
        _overloads = [f"aten::special_{_prefix}{_name}{overload}" for overload in ("", ".n_scalar", ".x_scalar")]
        rule(*_overloads)(_rule(_factor, _constant, _step, bool(_prefix)))
