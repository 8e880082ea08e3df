"""Functions of complex numbers: logarithms, inverse functions, variance, writes into tensors, and matrices."""

import functools
import inspect
import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.complex_pairs import Complex, on_each_part, to_complex
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import arithmetic, creation, factorization, indexing, masking, rule
from onnxbridge.frontends.pytorch.ops.complex_numbers import abs_, add, angle, div, mul, sub
from onnxbridge.hub.decompositions.complex_numbers.arithmetic import (
    add_pairs,
    divide,
    exponential,
    logarithm,
    multiply_pairs,
    scale,
    square_root,
)
from onnxbridge.hub.decompositions.linalg.factorizations import identity, matrix_transpose

D = ir.DataType

# names that PyTorch's decompositions use for arithmetic
for _name, _function in {"add": add, "sub": sub, "mul": mul, "div": div}.items():
    rule(f"complex::{_name}")(lambda op, self, other, function=_function: function(op, self, other))

rule("complex::log2")(lambda op, self: scale(op, logarithm(op, self), 1 / math.log(2)))
rule("complex::log10")(lambda op, self: scale(op, logarithm(op, self), 1 / math.log(10)))


@rule("complex::log1p")
def log1p(op, self):
    """Computes the magnitude from |1 + z|^2 - 1, without cancellation near 0."""
    square = op.Add(op.Mul(op.Add(self.real, 2.0), self.real), op.Mul(self.imag, self.imag))
    near = op.Mul(arithmetic.log1p_(op, square), 0.5)
    one = Complex(op.Add(self.real, 1.0), self.imag)
    return Complex(op.Where(op.Less(op.Abs(square), 0.5), near, op.Log(abs_(op, one))), angle(op, one))


@rule("complex::expm1")
def expm1(op, self):
    half = op.Sin(op.Mul(self.imag, 0.5))
    less = op.Mul(op.Mul(half, half), -2.0)  # cos - 1
    size = op.Exp(self.real)
    real = op.Add(op.Mul(arithmetic.expm1(op, self.real), op.Cos(self.imag)), less)
    return Complex(real, op.Mul(size, op.Sin(self.imag)))


def _roots(op, z):
    """The square roots of 1 + z and of 1 - z, as in Kahan's formulas for the inverse functions."""
    return square_root(op, Complex(op.Add(z.real, 1.0), z.imag)), square_root(op, Complex(op.Sub(1.0, z.real), op.Neg(z.imag)))


def _cross(op, a, b):
    """The imaginary part of conj(a) * b."""
    return op.Sub(op.Mul(a.real, b.imag), op.Mul(a.imag, b.real))


@rule("complex::asin", "complex::arcsin")
def asin(op, self):
    above, below = _roots(op, self)
    return Complex(arithmetic.atan2(op, self.real, multiply_pairs(op, below, above).real), op.Asinh(_cross(op, below, above)))


@rule("complex::acos", "complex::arccos")
def acos(op, self):
    above, below = _roots(op, self)
    return Complex(op.Mul(arithmetic.atan2(op, below.real, above.real), 2.0), op.Asinh(_cross(op, above, below)))


@rule("complex::acosh", "complex::arccosh")
def acosh(op, self):
    above = square_root(op, Complex(op.Add(self.real, 1.0), self.imag))
    below = square_root(op, Complex(op.Sub(self.real, 1.0), self.imag))
    real = op.Add(op.Mul(below.real, above.real), op.Mul(below.imag, above.imag))
    return Complex(op.Asinh(real), op.Mul(arithmetic.atan2(op, below.imag, above.real), 2.0))


@rule("complex::atanh", "complex::arctanh")
def atanh(op, self):
    return scale(op, _difference(op, log1p(op, self), log1p(op, Complex(op.Neg(self.real), op.Neg(self.imag)))), 0.5)


def _difference(op, a, b):
    return Complex(op.Sub(a.real, b.real), op.Sub(a.imag, b.imag))


def _rotated(function):
    """f(z) computed as -i g(iz)."""

    def lower(op, self):
        y = function(op, Complex(op.Neg(self.imag), self.real))
        return Complex(y.imag, op.Neg(y.real))

    return lower


rule("complex::asinh", "complex::arcsinh")(_rotated(asin))
rule("complex::atan", "complex::arctan")(_rotated(atanh))


@rule("complex::sigmoid", "complex::special_expit")
def sigmoid(op, self):
    """Computed with the exponential that is smaller than 1."""
    is_negative = op.Less(self.real, 0.0)
    small = exponential(op, Complex(op.Neg(op.Abs(self.real)), op.Where(is_negative, self.imag, op.Neg(self.imag))))
    one = to_complex(op, 1, self.real.dtype)
    top = Complex(op.Where(is_negative, small.real, 1.0), op.Where(is_negative, small.imag, 0.0))
    return divide(op, top, add_pairs(op, one, small))


@rule("complex::silu")
def silu(op, self):
    return multiply_pairs(op, self, sigmoid(op, self))


def _to_bool(op, x):
    return op.Or(cast(op, x.real, D.BOOL), cast(op, x.imag, D.BOOL)) if isinstance(x, Complex) else cast(op, x, D.BOOL)


rule("complex::logical_not")(lambda op, self: op.Not(_to_bool(op, self)))
for _name, _onnx in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    rule(f"complex::logical_{_name}")(lambda op, self, other, onnx=_onnx: op.call(onnx, _to_bool(op, self), _to_bool(op, other)))


def _moment(name, with_sqrt):
    """Register a rule for the variance of complex numbers: the sum of the variances of the parts."""
    lower = rule[f"aten::{name.replace('std', 'var')}"].lower

    @functools.wraps(lower)
    def on_complex(op, self, *args, **attrs):
        real, imag = lower(op, self.real, *args, **attrs), lower(op, self.imag, *args, **attrs)
        with_mean = isinstance(real, tuple)
        variance = op.Add(real[0], imag[0]) if with_mean else op.Add(real, imag)
        variance = op.Sqrt(variance) if with_sqrt else variance
        return (variance, Complex(real[1], imag[1])) if with_mean else variance

    on_complex.__signature__ = inspect.signature(lower)
    rule(f"complex::{name}")(on_complex)


for _name in ("var", "std", "var_mean", "std_mean"):
    for _overload in ("", ".dim", ".correction"):
        _moment(_name + _overload, _name.startswith("std"))


def _write_rule(lower, parameter):
    """A rule that writes one tensor into another, for both parts; either tensor may be real."""
    signature = inspect.signature(lower)
    parts = on_each_part(lower)

    @functools.wraps(lower)
    def on_complex(op, self, *args, **attrs):
        bound = signature.bind(op, self, *args, **attrs)
        part = next(x for x in (self, bound.arguments[parameter]) if isinstance(x, Complex)).real.dtype
        bound.arguments["self"], bound.arguments[parameter] = (
            to_complex(op, self, part),
            to_complex(op, bound.arguments[parameter], part),
        )
        return parts(*bound.args, **bound.kwargs)

    on_complex.__signature__ = signature
    return on_complex


for _module, _names in {
    indexing: {
        "index_put": "values", "scatter.src": "src", "scatter_add": "src", "scatter.value": "value", "index_add": "source",
        "index_copy": "source", "index_fill.int_Scalar": "value", "index_fill.int_Tensor": "value", "select_scatter": "src",
        "slice_scatter": "src", "masked_scatter": "source",
    },
    masking: {"diagonal_scatter": "src", "_unsafe_masked_index_put_accumulate": "values"},
    creation: {"copy": "src"},
}.items():  # fmt: skip
    for _name, _parameter in _names.items():
        rule(f"complex::{_name}")(_write_rule(rule[f"aten::{_name}"].lower, _parameter))


def _real(op, a):
    """A complex matrix as a real block matrix [[real, -imag], [imag, real]], which preserves products and inverses."""
    top = op.Concat(a.real, op.Neg(a.imag), axis=-1)
    return op.Concat(top, op.Concat(a.imag, a.real, axis=-1), axis=-2)


def _halves(op, x, axis):
    """Split an axis into halves."""
    half = op.size(x, axis) // 2 if isinstance(op.size(x, axis), int) else op.Div(op.size(x, axis), 2)
    middle = op.dims([half])
    return op.Slice(x, [0], middle, [axis]), op.Slice(x, middle, [2**63 - 1], [axis])


def _matrix(op, x):
    """The complex matrix of a real block matrix: the inverse of `_real`."""
    left, _ = _halves(op, x, -1)
    return Complex(*_halves(op, left, -2))


def _solve(op, a, b):
    """x with a @ x = b, and a status: 0 if a is not singular."""
    part = (a if isinstance(a, Complex) else b).real.dtype
    a, b = to_complex(op, a, part), to_complex(op, b, part)
    x, _, _, info = factorization.linalg_solve_ex(op, _real(op, a), op.Concat(b.real, b.imag, axis=-2))
    return Complex(*_halves(op, x, -2)), info


def _transpose_if(op, x, transpose):
    return (
        on_each_part(lambda op, x: matrix_transpose(op, x))(op, x)
        if transpose and isinstance(x, Complex)
        else matrix_transpose(op, x)
        if transpose
        else x
    )


@rule("complex::_linalg_solve_ex")
def linalg_solve_ex(op, A, B, *, left=True, check_errors=False):
    vector = factorization.is_vector(A, B)
    b = on_each_part(lambda op, x: op.Unsqueeze(x, [-1]))(op, to_complex(op, B, A.real.dtype)) if vector else B
    transpose = not (left or vector)
    x, info = _solve(op, _transpose_if(op, A, not left), _transpose_if(op, b, transpose))
    x = on_each_part(lambda op, x: op.Squeeze(x, [-1]))(op, x) if vector else _transpose_if(op, x, transpose)
    return x, None, None, info


@rule("complex::linalg_inv_ex")
def linalg_inv_ex(op, A, *, check_errors=False):
    inverse, info = factorization.linalg_inv_ex(op, _real(op, A))
    return _matrix(op, inverse), info


@rule("complex::linalg_solve_triangular")
def linalg_solve_triangular(op, self, B, *, upper, left=True, unitriangular=False):
    """Ignores the other triangle, which need not be 0."""
    part = (self if isinstance(self, Complex) else B).real.dtype
    a = on_each_part(lambda op, x: op.Trilu(x, np.int64(0), upper=int(upper)))(op, to_complex(op, self, part))
    if unitriangular:
        eye = identity(op, op.size(a.real, -1), a.real)
        a = Complex(op.Where(op.Equal(eye, 1.0), 1.0, a.real), op.Where(op.Equal(eye, 1.0), 0.0, a.imag))
    return _transpose_if(op, _solve(op, _transpose_if(op, a, not left), _transpose_if(op, B, not left))[0], not left)


@rule("complex::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(op, self, *, atol=None, rtol=None, hermitian=False):
    if rtol is None:  # PyTorch's default, for the size of the complex matrix
        m, n = op.size(self.real, -2), op.size(self.real, -1)
        largest_dim = op.Cast(op.Max(op.constant(np.asarray(m)) if isinstance(m, int) else m, n), to=self.real.dtype)
        default = op.Mul(largest_dim, op.constant(np.finfo(self.real.dtype.numpy()).eps))
        rtol = default if atol is None else op.Where(op.Greater(atol, 0.0), 0.0, default)
    return _matrix(op, factorization.linalg_pinv(op, _real(op, self), atol=atol, rtol=rtol, hermitian=hermitian))


@rule("complex::linalg_matrix_exp", "complex::matrix_exp")
def matrix_exp(op, self):
    return _matrix(op, factorization.matrix_exp(op, _real(op, self)))
