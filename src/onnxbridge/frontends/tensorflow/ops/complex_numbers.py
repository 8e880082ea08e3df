"""Complex numbers, on pairs of real tensors. Operators with a complex operand or result are named "complex::"."""

import functools

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import arithmetic, indexing, linalg, rearrange, reduction, rule, segments, shape
from onnxbridge.hub.decompositions.complex_numbers import arithmetic as functions
from onnxbridge.hub.decompositions.complex_numbers.each_part import of_real_part, on_each_part
from onnxbridge.hub.decompositions.complex_numbers.pairs import PART_DTYPE, Complex
from onnxbridge.hub.decompositions.linalg import einsum as einsums
from onnxbridge.hub.ir.values import cast

D = ir.DataType

# operators that move elements or are linear: they apply to each part separately
_APPLIED_TO_PARTS = {
    shape: "Reshape Squeeze ExpandDims Transpose ConcatV2 Pack Unpack Split SplitV Tile Fill BroadcastTo ZerosLike",
    rearrange: "Pad PadV2 Roll ReverseV2 MirrorPad",
    indexing: "Gather GatherV2 GatherNd ScatterNd TensorScatterUpdate TensorScatterAdd Slice StridedSlice",
    arithmetic: "Identity IdentityN StopGradient EnsureShape Add AddV2 Sub AddN Neg BiasAdd Select SelectV2",
    reduction: "Sum Mean Cumsum",
    segments: "UnsortedSegmentSum",
}

for _names in _APPLIED_TO_PARTS.values():
    for _name in _names.split():
        rule(f"complex::{_name}")(on_each_part(rule[_name].lower))
for _name in ("Size", "Rank", "Shape"):
    rule(f"complex::{_name}")(of_real_part(rule[_name].lower))


@rule("complex::OnesLike")
def ones_like(op, x):
    return Complex(shape.ones_like(op, x.real), shape.zeros_like(op, x.real))


@rule("complex::Complex")
def complex_(op, real, imag, *, Tout=D.COMPLEX64):
    common = op.Shape(op.Add(real, imag))
    return Complex(op.Expand(real, common), op.Expand(imag, common))


@rule("complex::Real")
def real(op, input, *, Tout=D.FLOAT):
    return input.real


@rule("complex::Imag")
def imag(op, input, *, Tout=D.FLOAT):
    return input.imag


@rule("complex::ComplexAbs")
def complex_abs(op, x, *, Tout=D.FLOAT):
    return functions.magnitude(op, x)


@rule("complex::Angle")
def angle(op, input, *, Tout=D.FLOAT):
    return functions.phase(op, input)


@rule("complex::Conj")
def conj(op, input):
    return Complex(input.real, op.Neg(input.imag))


@rule("complex::ConjugateTranspose")
def conjugate_transpose(op, x, perm):
    return conj(op, rule["complex::Transpose"].lower(op, x, perm))


@rule("ConjugateTranspose")
def transpose(op, x, perm):
    return shape.transpose(op, x, perm)


@rule("complex::Cast")
def cast_(op, x, *, DstT, Truncate=False):
    if isinstance(x, Complex):
        if DstT in PART_DTYPE:
            return Complex(cast(op, x.real, PART_DTYPE[DstT]), cast(op, x.imag, PART_DTYPE[DstT]))
        return arithmetic.cast(op, x.real, DstT=DstT)
    part = cast(op, x, PART_DTYPE[DstT])
    return Complex(part, op.Mul(op.Where(op.IsNaN(part), 0.0, op.Where(op.IsInf(part), 0.0, part)), 0.0))


@rule("complex::Mul")
def mul(op, x, y):
    return functions.multiply_pairs(op, x, y)


@rule("complex::RealDiv", "complex::Div")
def div(op, x, y):
    return functions.divide(op, x, y)


def _is_zero(op, x):
    return op.And(op.Equal(x.real, 0.0), op.Equal(x.imag, 0.0))


@rule("complex::DivNoNan")
def div_no_nan(op, x, y):
    zero = _is_zero(op, y)
    quotient = functions.divide(op, x, Complex(op.Where(zero, 1.0, y.real), y.imag))
    return Complex(op.Where(zero, 0.0, quotient.real), op.Where(zero, 0.0, quotient.imag))


@rule("complex::Square")
def square(op, x):
    return functions.multiply_pairs(op, x, x)


@rule("complex::SquaredDifference")
def squared_difference(op, x, y):
    d = functions.subtract_pairs(op, x, y)
    size = op.Add(op.Mul(d.real, d.real), op.Mul(d.imag, d.imag))
    return Complex(size, op.Mul(size, 0.0))


def _one(x):
    return Complex(np.array(1, x.real.dtype.numpy()), np.array(0, x.real.dtype.numpy()))


@rule("complex::Reciprocal", "complex::Inv")
def reciprocal(op, x):
    return functions.divide(op, Complex(*map(op.constant, (_one(x).real, _one(x).imag))), x)


for _name, _function in {"Exp": functions.exponential, "Log": functions.logarithm, "Sqrt": functions.square_root}.items():
    rule(f"complex::{_name}")(lambda op, x, function=_function: function(op, x))
rule("complex::Rsqrt")(lambda op, x: reciprocal(op, functions.square_root(op, x)))
for _suffix, _hyperbolic in (("", False), ("h", True)):
    _sin, _cos = (functools.partial(f, hyperbolic=_hyperbolic) for f in (functions.sine, functions.cosine))
    rule(f"complex::Sin{_suffix}")(lambda op, x, sin=_sin: sin(op, x))
    rule(f"complex::Cos{_suffix}")(lambda op, x, cos=_cos: cos(op, x))
    rule(f"complex::Tan{_suffix}")(lambda op, x, sin=_sin, cos=_cos: functions.divide(op, sin(op, x), cos(op, x)))


@rule("complex::Pow")
def pow_(op, x, y):
    """exp(y log(x)); 0 to the power of 0 is 1."""
    zero = _is_zero(op, x)
    base = Complex(op.Where(zero, 1.0, x.real), x.imag)
    power = functions.exponential(op, functions.multiply_pairs(op, y, functions.logarithm(op, base)))
    at_zero = op.Where(_is_zero(op, y), op.CastLike(1.0, power.real), 0.0)
    return Complex(op.Where(zero, at_zero, power.real), op.Where(zero, 0.0, power.imag))


@rule("complex::Sigmoid")
def sigmoid(op, x):
    decay = functions.exponential(op, Complex(op.Neg(x.real), op.Neg(x.imag)))
    return reciprocal(op, Complex(op.Add(decay.real, 1.0), decay.imag))


@rule("complex::Prod")
def prod(op, input, reduction_indices, *, keep_dims=False):
    """The magnitudes multiply, the angles add."""
    attrs = {"reduction_indices": reduction_indices, "keep_dims": keep_dims}
    size = rule["Prod"].lower(op, functions.magnitude(op, input), **attrs)
    angle = rule["Sum"].lower(op, functions.phase(op, input), **attrs)
    return Complex(op.Mul(size, op.Cos(angle)), op.Mul(size, op.Sin(angle)))


@rule("complex::Einsum")
def einsum(op, inputs, *, equation):
    """A product of sums of real and imaginary parts: one real product for each choice of parts."""
    terms = [((), 0)]
    for x in inputs:
        terms = [((*parts, part), turns + turn) for parts, turns in terms for part, turn in ((x.real, 0), (x.imag, 1))]
    sums = [None, None]
    for parts, turns in terms:  # i to the power of turns
        product = einsums.einsum(op, parts, equation)
        product = op.Neg(product) if turns % 4 >= 2 else product
        sums[turns % 2] = product if sums[turns % 2] is None else op.Add(sums[turns % 2], product)
    return Complex(*sums)


@rule("complex::Equal")
def equal(op, x, y):
    return op.And(op.Equal(x.real, y.real), op.Equal(x.imag, y.imag))


@rule("complex::NotEqual")
def not_equal(op, x, y):
    return op.Not(equal(op, x, y))


def _product(op, a, b):
    """a @ b with four real matrix products."""
    real = op.Sub(op.MatMul(a.real, b.real), op.MatMul(a.imag, b.imag))
    return Complex(real, op.Add(op.MatMul(a.real, b.imag), op.MatMul(a.imag, b.real)))


def _turned(op, x, transpose, adjoint=False):
    y = Complex(*(linalg.transposed(op, p, transpose) for p in (x.real, x.imag)))
    return conj(op, y) if adjoint and transpose else y


@rule("complex::MatMul")
def mat_mul(op, a, b, *, transpose_a=False, transpose_b=False):
    return _product(op, _turned(op, a, transpose_a), _turned(op, b, transpose_b))


@rule("complex::BatchMatMul", "complex::BatchMatMulV2", "complex::BatchMatMulV3")
def batch_mat_mul(op, x, y, *, adj_x=False, adj_y=False, Tout=None):
    if Tout is not None and Tout != x.dtype:
        raise Unsupported("a product with another output type")
    return _product(op, _turned(op, x, adj_x, True), _turned(op, y, adj_y, True))
