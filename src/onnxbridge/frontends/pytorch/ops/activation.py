"""Activation functions."""

import math

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, category, is_float, promote, promote_to_float
from onnxbridge.frontends.pytorch.ops import rule


@rule("aten::relu")
def relu(op, self):
    return op.Relu(self) if is_float(self) else op.Max(self, 0)


@rule("aten::relu6")
def relu6(op, self):
    return op.Clip(self, 0, 6)


@rule("aten::leaky_relu")
def leaky_relu(op, self, negative_slope=0.01):
    return op.LeakyRelu(self, alpha=negative_slope)


@rule("aten::rrelu")
def rrelu(op, self, lower=0.125, upper=1 / 3):
    return op.LeakyRelu(self, alpha=(lower + upper) / 2)


@rule("aten::elu")
def elu(op, self, alpha=1, scale=1, input_scale=1):
    if input_scale == 1:
        y = op.Elu(self, alpha=alpha)
    else:
        y = op.Where(op.Greater(self, 0), self, op.Mul(expm1(op, op.Mul(self, input_scale)), alpha))
    return y if scale == 1 else op.Mul(y, scale)


@rule("aten::selu")
def selu(op, self):
    exact = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805} if self.dtype == ir.DataType.DOUBLE else {}
    return op.Selu(self, **exact)


@rule("aten::celu")
def celu(op, self, alpha=1.0):
    return (
        op.Celu(self, alpha=alpha)
        if alpha > 0
        else op.Where(op.Greater(self, 0), self, op.Min(op.Mul(expm1(op, op.Div(self, alpha)), alpha), 0))
    )


@rule("aten::gelu")
def gelu(op, self, *, approximate="none"):
    if approximate == "tanh" and self.dtype == ir.DataType.DOUBLE:  # ONNX Runtime has its constants in float32 only
        inner = op.Mul(op.Add(self, op.Mul(op.Mul(op.Mul(self, self), self), 0.044715)), math.sqrt(2 / math.pi))
        return op.Mul(op.Mul(self, 0.5), op.Add(op.Tanh(inner), 1.0))
    return op.Gelu(self, approximate=approximate)


@rule("aten::silu")
def silu(op, self):
    return op.Mul(self, op.Sigmoid(self))


@rule("aten::mish")
def mish(op, self):
    return op.Mish(self)


@rule("aten::hardswish")
def hardswish(op, self):
    if self.dtype == ir.DataType.DOUBLE:  # ONNX Runtime has 1/6 in float32 only
        return op.Mul(self, op.HardSigmoid(self, alpha=1 / 6, beta=0.5))
    return op.HardSwish(self)


@rule("aten::hardsigmoid")
def hardsigmoid(op, self):
    return op.HardSigmoid(self, alpha=1 / 6, beta=0.5)


@rule("aten::hardtanh")
def hardtanh(op, self, min_val=-1, max_val=1):
    return op.Clip(self, min_val, max_val)


@rule("aten::softplus")
def softplus(op, self, beta=1, threshold=20):
    scaled = self if beta == 1 else op.Mul(self, beta)
    y = op.Softplus(scaled)
    y = y if beta == 1 else op.Div(y, beta)
    return op.Where(op.Greater(scaled, threshold), self, y)


@rule("aten::log_sigmoid", "aten::log_sigmoid_forward")
def log_sigmoid(op, self):
    return op.Sub(op.Min(self, 0.0), log1p(op, op.Exp(op.Neg(op.Abs(self)))))


@rule("aten::hardshrink")
def hardshrink(op, self, lambd=0.5):
    within_threshold = op.LessOrEqual(op.Abs(self), lambd)
    return op.Where(within_threshold, 0.0, self)


@rule("aten::softshrink")
def softshrink(op, self, lambd=0.5):
    # NaN is preserved: it is neither above nor below
    low = op.Where(op.Less(self, -lambd), op.Add(self, lambd), op.Mul(self, 0.0))
    return op.Where(op.Greater(self, lambd), op.Sub(self, lambd), low)


@rule("aten::threshold")
def threshold(op, self, threshold, value):
    return op.Where(op.LessOrEqual(self, threshold), cast(op, value, self.dtype), self)


@rule("aten::prelu", "aten::_prelu_kernel")
def prelu(op, self, weight):
    rank = len(self.shape)
    if len(weight.shape) == 1 and rank > 2:
        weight = op.reshape(weight, [-1] + [1] * (rank - 2))
    weight = weight if rank else op.reshape(weight, [])
    return op.PRelu(self, weight)


@rule("aten::glu")
def glu(op, self, dim=-1):
    a, b = op.Split(self, axis=dim, num_outputs=2, outputs=2)
    return op.Mul(a, op.Sigmoid(b))


@rule("aten::softmax.int", "aten::special_softmax")
def softmax(op, self, dim, dtype=None):
    x = cast(op, self, dtype) if dtype is not None else promote_to_float(op, self)[0]
    return op.Softmax(x, axis=dim) if len(x.shape) else op.reshape(op.Softmax(op.reshape(x, [1])), [])


@rule("aten::_softmax")
def _softmax(op, self, dim, half_to_float):
    return softmax(op, self, dim)


@rule("aten::_safe_softmax")
def safe_softmax(op, self, dim, dtype=None):
    x = self if dtype is None else cast(op, self, dtype)
    masked = op.Equal(op.ReduceMax(x, [dim], keepdims=1), float("-inf"))
    return op.Where(masked, 0.0, op.Softmax(x, axis=dim))


@rule("aten::log_softmax.int", "aten::special_log_softmax")
def log_softmax(op, self, dim, *, dtype=None):
    x = cast(op, self, dtype) if dtype is not None else promote_to_float(op, self)[0]
    return op.LogSoftmax(x, axis=dim) if len(x.shape) else op.reshape(op.LogSoftmax(op.reshape(x, [1])), [])


@rule("aten::_log_softmax")
def _log_softmax(op, self, dim, half_to_float):
    return log_softmax(op, self, dim)


def expm1(op, x):
    """exp(x) - 1 without cancellation near 0."""
    t = op.Tanh(op.Mul(x, 0.5))
    near_zero = op.Div(op.Mul(t, 2.0), op.Sub(1.0, t))
    return op.Where(op.Less(op.Abs(x), 1.0), near_zero, op.Sub(op.Exp(x), 1.0))


def log1p(op, x):
    """log(1 + x) without loss of precision for small x."""
    u = op.Add(x, 1.0)
    remainder = op.Sub(u, 1.0)
    near_zero = op.Where(op.Equal(remainder, 0.0), x, op.Mul(op.Log(u), op.Div(x, remainder)))
    return op.Where(op.Less(op.Abs(x), 0.5), near_zero, op.Log(u))


@rule("aten::sigmoid", "aten::special_expit")
def sigmoid(op, self):
    return op.Sigmoid(*promote_to_float(op, self))


@rule("aten::tanh")
def tanh(op, self):
    return op.Tanh(*promote_to_float(op, self))


@rule("aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")
def dropout(op, input, p, train):
    if train and p > 0:
        raise Unsupported("feature dropout or alpha dropout is active", "export it with training=False")
    return input


def clip(op, x, low, high):
    """Clip x to bounds that are numbers, values or None; if they cross, the upper bound wins."""
    x, low, high = promote(op, x, low, high)
    if category(x.dtype) == 0:
        raise TypeError("clamp does not support bool")
    if low is not None:
        x = op.Max(x, low)
    return x if high is None else op.Min(x, high)
