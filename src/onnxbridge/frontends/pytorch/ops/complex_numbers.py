"""Arithmetic of complex numbers, on pairs of real tensors."""

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx import complex_pairs as pairs
from onnxbridge.frontends.pytorch.fx.complex_pairs import PART_DTYPE, Complex, on_each_part, part_dtype, promote, to_complex
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import arithmetic, creation, image, indexing, linalg, masking, reduction, rule, shape
from onnxbridge.hub.decompositions.complex_numbers.arithmetic import (
    add_pairs,
    cosine,
    divide,
    exponential,
    logarithm,
    multiply_pairs,
    scale,
    sine,
    square_root,
    subtract_pairs,
)

D = ir.DataType
# operators that move elements or are linear: they apply to each part separately
_APPLIED_TO_PARTS = {
    shape: (
        "view _unsafe_view view_copy reshape _reshape_copy flatten.using_ints unflatten.int permute transpose.int swapaxes "
        "swapdims t numpy_T mT movedim.intlist movedim.int moveaxis.intlist moveaxis.int expand broadcast_to repeat tile "
        "unsqueeze squeeze squeeze.dim squeeze.dims cat concat concatenate stack split.Tensor split_with_sizes split.sizes chunk "
        "tensor_split.sections tensor_split.indices unbind.int roll flip fliplr flipud atleast_1d atleast_2d atleast_3d"
    ),
    indexing: "slice.Tensor narrow select.int index_select gather take take_along_dim index.Tensor masked_select",
    masking: "diagonal",
    reduction: "sum sum.dim_IntList mean mean.dim cumsum",
    creation: "clone contiguous detach alias lift_fresh lift_fresh_copy positive resolve_neg resolve_conj zeros_like empty_like",
    arithmetic: "neg negative",
    image: "unfold constant_pad_nd",
    linalg: "tril triu",
}
for _names in _APPLIED_TO_PARTS.values():
    for _name in _names.split():
        rule(f"complex::{_name}")(on_each_part(rule[f"aten::{_name}"].lower))


def _operands(op, alpha, other, self):
    """The operands in their common dtype, the second times alpha."""
    a, b = promote(op, self, other)
    return a, b if isinstance(alpha, (int, float)) and alpha == 1 else multiply_pairs(
        op, b, to_complex(op, alpha, part_dtype(self, other))
    )


@rule("complex::add.Tensor", "complex::add.Scalar")
def add(op, self, other, *, alpha=1):
    return add_pairs(op, *_operands(op, alpha, other, self))


@rule("complex::sub.Tensor", "complex::sub.Scalar")
def sub(op, self, other, *, alpha=1):
    return subtract_pairs(op, *_operands(op, alpha, other, self))


@rule("complex::rsub.Tensor", "complex::rsub.Scalar")
def rsub(op, self, other, alpha=1):
    return subtract_pairs(op, *_operands(op, alpha, self, other))


@rule("complex::mul.Tensor", "complex::mul.Scalar")
def mul(op, self, other):
    for x, factor in ((self, other), (other, self)):
        if isinstance(x, Complex) and isinstance(factor, (int, float, ir.Value)):
            part = part_dtype(self, other)
            return scale(op, to_complex(op, x, part), cast(op, factor, part))
    return multiply_pairs(op, *promote(op, self, other))


@rule("complex::div.Tensor", "complex::div.Scalar", "complex::true_divide.Tensor")
def div(op, self, other):
    if isinstance(other, (int, float, ir.Value)):
        part = part_dtype(self, other)
        x, divisor = to_complex(op, self, part), cast(op, other, part)
        return Complex(op.Div(x.real, divisor), op.Div(x.imag, divisor))
    return divide(op, *promote(op, self, other))


@rule("complex::reciprocal")
def reciprocal(op, self):
    return divide(op, *promote(op, 1, self))


@rule("complex::square")
def square(op, self):
    return multiply_pairs(op, self, self)


@rule("complex::sym_size.int")
def sym_size(op, self, dim):
    return shape.sym_size(op, self.real, dim)


@rule("complex::sym_numel", "complex::numel")
def sym_numel(op, self):
    return shape.sym_numel(op, self.real)


@rule("complex::conj", "complex::_conj", "complex::conj_physical", "complex::_conj_physical")
def conj(op, self):
    return Complex(self.real, op.Neg(self.imag))


@rule("complex::adjoint", "complex::mH", "complex::matrix_H")
def adjoint(op, self):
    return Complex(shape.mT(op, self.real), op.Neg(shape.mT(op, self.imag)))


@rule("complex::real")
def real(op, self):
    return self.real


@rule("complex::imag")
def imag(op, self):
    return self.imag


@rule("complex::abs", "complex::absolute")
def abs_(op, self):
    return arithmetic.hypot(op, self.real, self.imag)


@rule("complex::angle")
def angle(op, self):
    return arithmetic.atan2(op, self.imag, self.real)


@rule("complex::sgn")
def sgn(op, self):
    size = abs_(op, self)
    size = op.Where(op.Equal(size, 0.0), 1.0, size)
    return Complex(op.Div(self.real, size), op.Div(self.imag, size))


@rule("complex::complex")
def complex_(op, real, imag):
    common_shape = op.Shape(op.Add(real, imag))
    return Complex(op.Expand(real, common_shape), op.Expand(imag, common_shape))


@rule("complex::polar")
def polar(op, abs, angle):
    return Complex(op.Mul(abs, op.Cos(angle)), op.Mul(abs, op.Sin(angle)))


@rule("complex::view_as_complex", "complex::view_as_complex_copy")
def view_as_complex(op, self):
    return pairs.split(op, self)


@rule("complex::view_as_real", "complex::view_as_real_copy")
def view_as_real(op, self):
    return pairs.join(op, self)


rule("complex::exp")(lambda op, self: exponential(op, self))
rule("complex::log")(lambda op, self: logarithm(op, self))
rule("complex::sqrt")(lambda op, self: square_root(op, self))
rule("complex::rsqrt")(lambda op, self: divide(op, to_complex(op, 1, self.real.dtype), square_root(op, self)))
rule("complex::sin")(lambda op, self: sine(op, self, hyperbolic=False))
rule("complex::sinh")(lambda op, self: sine(op, self, hyperbolic=True))
rule("complex::cos")(lambda op, self: cosine(op, self, hyperbolic=False))
rule("complex::cosh")(lambda op, self: cosine(op, self, hyperbolic=True))
rule("complex::tan")(lambda op, self: divide(op, sine(op, self, hyperbolic=False), cosine(op, self, hyperbolic=False)))
rule("complex::tanh")(lambda op, self: divide(op, sine(op, self, hyperbolic=True), cosine(op, self, hyperbolic=True)))


@rule("complex::pow.Tensor_Scalar", "complex::pow.Tensor_Tensor", "complex::pow.Scalar")
def pow_(op, self, exponent):
    if isinstance(exponent, (int, float)) and exponent in (0.5, 1, 2):
        return {0.5: square_root, 1: lambda op, x: x, 2: square}[exponent](op, self)
    a, b = promote(op, self, exponent)
    base_is_zero = op.And(op.Equal(a.real, 0.0), op.Equal(a.imag, 0.0))
    y = exponential(op, multiply_pairs(op, b, logarithm(op, Complex(op.Where(base_is_zero, 1.0, a.real), a.imag))))
    exponent_is_zero = op.And(op.Equal(b.real, 0.0), op.Equal(b.imag, 0.0))
    at_zero = op.Where(exponent_is_zero, op.CastLike(1.0, y.real), 0.0)
    return Complex(op.Where(base_is_zero, at_zero, y.real), op.Where(base_is_zero, 0.0, y.imag))


@rule("complex::eq.Tensor", "complex::eq.Scalar")
def eq(op, self, other):
    a, b = promote(op, self, other)
    return op.And(op.Equal(a.real, b.real), op.Equal(a.imag, b.imag))


@rule("complex::ne.Tensor", "complex::ne.Scalar")
def ne(op, self, other):
    return op.Not(eq(op, self, other))


@rule("complex::isnan")
def isnan(op, self):
    return op.Or(op.IsNaN(self.real), op.IsNaN(self.imag))


@rule("complex::isinf")
def isinf(op, self):
    return op.Or(op.IsInf(self.real), op.IsInf(self.imag))


@rule("complex::isfinite")
def isfinite(op, self):
    return op.Less(op.Add(op.Abs(op.Mul(self.real, 0.0)), op.Abs(op.Mul(self.imag, 0.0))), 1.0)


@rule("complex::where.self", "complex::where.ScalarSelf", "complex::where.ScalarOther")
def where(op, condition, self, other):
    a, b = promote(op, self, other)
    condition = cast(op, condition, D.BOOL)
    return Complex(op.Where(condition, a.real, b.real), op.Where(condition, a.imag, b.imag))


@rule("complex::masked_fill.Scalar", "complex::masked_fill.Tensor")
def masked_fill(op, self, mask, value):
    v = to_complex(op, value, self.real.dtype)
    return Complex(op.Where(mask, v.real, self.real), op.Where(mask, v.imag, self.imag))


def matrix_product(op, a, b):
    """a @ b with four real matrix products, or two if one operand is real."""
    if isinstance(a, ir.Value) or isinstance(b, ir.Value):
        part = part_dtype(a, b)
        if isinstance(a, ir.Value):
            a, b = cast(op, a, part), to_complex(op, b, part)
            return Complex(op.MatMul(a, b.real), op.MatMul(a, b.imag))
        a, b = to_complex(op, a, part), cast(op, b, part)
        return Complex(op.MatMul(a.real, b), op.MatMul(a.imag, b))
    a, b = promote(op, a, b)
    real = op.Sub(op.MatMul(a.real, b.real), op.MatMul(a.imag, b.imag))
    return Complex(real, op.Add(op.MatMul(a.real, b.imag), op.MatMul(a.imag, b.real)))


@rule("complex::matmul", "complex::linalg_matmul")
def matmul(op, self, other):
    return matrix_product(op, self, other)


@rule("complex::mm", "complex::bmm")
def mm(op, self, mat2):
    return matrix_product(op, self, mat2)


@rule("complex::mv")
def mv(op, self, vec):
    return matrix_product(op, self, vec)


@rule("complex::dot")
def dot(op, self, tensor):
    return matrix_product(op, self, tensor)


@rule("complex::vdot")
def vdot(op, self, other):
    return matrix_product(op, conj(op, self), other)


@rule("complex::to.dtype", "complex::_to_copy", "complex::to.dtype_layout")
def to_dtype(op, self, dtype=None, *, copy=False):
    if dtype is None:
        return self
    if dtype in PART_DTYPE:
        return to_complex(op, self, PART_DTYPE[dtype])
    if isinstance(self, Complex) and dtype == D.BOOL:
        return op.Or(cast(op, self.real, D.BOOL), cast(op, self.imag, D.BOOL))
    return cast(op, self.real, dtype)  # drops the imaginary part, as PyTorch does with a warning


@rule("complex::full")
def full(op, size, fill_value, *, dtype=None):
    part = PART_DTYPE[dtype] if dtype is not None else D.FLOAT
    value = to_complex(op, fill_value, part)
    return Complex(creation.fill(op, size, value.real, part), creation.fill(op, size, value.imag, part))


@rule("complex::zeros", "complex::empty.memory_format")
def zeros(op, size, *, dtype=None):
    return full(op, size, 0, dtype=dtype)


@rule("complex::ones")
def ones(op, size, *, dtype=None):
    return full(op, size, 1, dtype=dtype)


@rule("complex::full_like", "complex::fill.Scalar")
def full_like(op, self, fill_value, *, dtype=None):
    return full(op, shape.sizes(op, self.real if isinstance(self, Complex) else self), fill_value, dtype=dtype or self.dtype)


@rule("complex::ones_like")
def ones_like(op, self, *, dtype=None):
    return full_like(op, self, 1, dtype=dtype)


@rule("complex::scalar_tensor")
def scalar_tensor(op, s, *, dtype=None):
    return to_complex(op, s, PART_DTYPE[dtype or D.COMPLEX64])
