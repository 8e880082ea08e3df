"""Random operators: the same distributions as PyTorch's, with new samples in every run."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import DEFAULT, cast, is_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import sizes

D = ir.DataType


def _sample(op, name, size, dtype, **attrs):
    if dtype not in (D.FLOAT, D.DOUBLE, D.FLOAT16):
        raise Unsupported(f"random numbers of {dtype.name}")
    if all(isinstance(n, int) for n in size):
        return op.call(name, shape=list(size), dtype=dtype, **attrs)
    zeros = op.ConstantOfShape(op.dims(size), value=ir.tensor(np.zeros(1, dtype.numpy())))
    return op.call(f"{name}Like", zeros, **attrs)


@rule("aten::rand")
def rand(op, size, *, dtype=None):
    return _sample(op, "RandomUniform", size, dtype or DEFAULT)


@rule("aten::rand_like")
def rand_like(op, self, *, dtype=None):
    return rand(op, sizes(op, self), dtype=dtype or self.dtype)


@rule("aten::randn")
def randn(op, size, *, dtype=None):
    return _sample(op, "RandomNormal", size, dtype or DEFAULT)


@rule("aten::randn_like")
def randn_like(op, self, *, dtype=None):
    return randn(op, sizes(op, self), dtype=dtype or self.dtype)


def _like(op, x, name="RandomUniform", **attrs):
    """Samples in the shape of a tensor; float32 if its dtype is not floating point."""
    return _sample(op, name, sizes(op, x), x.dtype if x.dtype in (D.FLOAT, D.DOUBLE, D.FLOAT16) else D.FLOAT, **attrs)


def _above_zero(op, x):
    """Uniform in (0, 1], where the logarithm is finite."""
    return op.Sub(1.0, _like(op, x))


@rule("aten::uniform")
def uniform(op, self, from_=0.0, to=1.0):
    return cast(op, _like(op, self, low=float(from_), high=float(to)), self.dtype)


@rule("aten::normal_functional")
def normal_functional(op, self, mean=0.0, std=1.0):
    return cast(op, _like(op, self, "RandomNormal", mean=float(mean), scale=float(std)), self.dtype)


@rule("aten::normal.float_float")
def normal_of_size(op, mean, std, size, *, dtype=None):
    return _sample(op, "RandomNormal", size, dtype or DEFAULT, mean=float(mean), scale=float(std))


@rule("aten::normal.Tensor_Tensor", "aten::normal.Tensor_float", "aten::normal.float_Tensor")
def normal(op, mean, std=1.0):
    shaped = op.Add(op.Mul(mean, 0.0), std) if isinstance(mean, ir.Value) else std
    return op.Add(op.Mul(_like(op, shaped, "RandomNormal"), std), mean)


@rule("aten::exponential")
def exponential(op, self, lambd=1.0):
    return cast(op, op.Div(op.Neg(op.Log(_above_zero(op, self))), float(lambd)), self.dtype)


@rule("aten::cauchy")
def cauchy(op, self, median=0.0, sigma=1.0):
    ratio = op.Tan(op.Mul(op.Sub(_like(op, self), 0.5), math.pi))
    return cast(op, op.Add(op.Mul(ratio, float(sigma)), float(median)), self.dtype)


@rule("aten::log_normal")
def log_normal(op, self, mean=1.0, std=2.0):
    return cast(op, op.Exp(_like(op, self, "RandomNormal", mean=float(mean), scale=float(std))), self.dtype)


@rule("aten::geometric")
def geometric(op, self, p):
    trials = op.Ceil(op.Div(op.Log(_above_zero(op, self)), math.log1p(-p)))
    return cast(op, op.Max(trials, 1.0), self.dtype)


@rule("aten::bernoulli")
def bernoulli(op, self):
    return op.Cast(op.Less(_like(op, self), self), to=self.dtype)


@rule("aten::bernoulli.p")
def bernoulli_of(op, self, p):
    return op.Cast(op.Less(_like(op, self), float(p)), to=self.dtype)


@rule("aten::bernoulli.Tensor")
def bernoulli_by(op, self, p):
    sampled = op.Less(_like(op, self), cast(op, p, self.dtype if is_float(self) else D.FLOAT))
    return op.Cast(sampled, to=self.dtype)


@rule("aten::randint.low")
def randint_low(op, low, high, size, *, dtype=None):
    if not (isinstance(low, int) and isinstance(high, int)):
        raise Unsupported("random integers between dynamic bounds")
    if high - low > 1 << 53:
        raise Unsupported("random integers from a range of more than 2^53")
    return op.Cast(op.Floor(_sample(op, "RandomUniform", size, D.DOUBLE, low=float(low), high=float(high))), to=dtype or D.INT64)


@rule("aten::randint")
def randint(op, high, size, *, dtype=None):
    return randint_low(op, 0, high, size, dtype=dtype)


@rule("aten::randint_like")
def randint_like(op, self, high, *, dtype=None):
    return randint_low(op, 0, high, sizes(op, self), dtype=dtype or self.dtype)


@rule("aten::randint_like.low_dtype")
def randint_like_low(op, self, low, high, *, dtype=None):
    return randint_low(op, low, high, sizes(op, self), dtype=dtype or self.dtype)


@rule("aten::randperm")
def randperm(op, n, *, dtype=None):
    indices = op.TopK(_sample(op, "RandomUniform", [n], D.DOUBLE), op.dims([n]), outputs=2)[1]
    return cast(op, indices, dtype or D.INT64)


@rule("aten::multinomial")
def multinomial(op, self, num_samples, replacement=False):
    """Sample with the Gumbel-max trick: the largest log weights with Gumbel noise."""
    weights = op.Log(op.Cast(self, to=D.DOUBLE))
    if not replacement:
        return op.TopK(op.Sub(weights, op.Log(op.Neg(op.Log(_above_zero(op, weights))))), op.dims([num_samples]), outputs=2)[1]
    weights = op.Unsqueeze(weights, [-2])
    expanded = op.Expand(weights, op.dims([*[1] * (len(self.shape) - 1), num_samples, 1]))
    return op.ArgMax(op.Sub(expanded, op.Log(op.Neg(op.Log(_above_zero(op, expanded))))), axis=-1, keepdims=0)


def apply_dropout(op, x, p):
    """x with random elements set to 0 and the others scaled up, and the mask; also in evaluation mode.

    Expressed with Where: ONNX Runtime 1.31 removes Dropout between other nodes whatever its training_mode.
    """
    if p >= 1:
        zeros = op.Mul(x, 0.0)
        return zeros, op.Cast(zeros, to=D.BOOL)
    is_kept = op.GreaterOrEqual(_like(op, x), float(p))
    return op.Where(is_kept, op.Mul(x, 1 / (1 - p)), 0.0), is_kept


@rule("aten::dropout")
def dropout(op, input, p, train):
    return apply_dropout(op, input, p)[0] if train and p else input


@rule("aten::native_dropout")
def native_dropout(op, input, p, train):
    if train is not False and p:
        return apply_dropout(op, input, p)
    return input, op.Expand(op.constant(np.bool_(True)), op.Shape(input))
