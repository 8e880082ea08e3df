"""Activation functions."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import like, rank
from onnxbridge.rules import Float, Int, Str


def per_channel(op, values, x):
    """Reshape a per-channel vector to (C, 1, ...) in the dtype of `x`, so that it broadcasts along the second axis of `x`."""
    return op.Reshape(like(op, values, x), [-1, *(1 for _ in range(rank(x) - 2))])


def _unary(name, onnx):
    @rule(name)
    def unary(op, x):
        return op.call(onnx, x)


for _name, _onnx in {"relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign"}.items():
    _unary(_name, _onnx)


@rule("relu6")
def relu6(op, x):
    return op.Clip(x, 0, 6)


@rule("clamped_relu")
def clamped_relu(op, x, alpha: Float, beta: Float):
    return op.Min(op.LeakyRelu(x, alpha=alpha), beta)


@rule("leaky_relu")
def leaky_relu(op, x, alpha: Float):
    return op.LeakyRelu(x, alpha=alpha)


@rule("prelu")
def prelu(op, x, alpha):
    return op.PRelu(x, per_channel(op, alpha, x))


@rule("thresholded_relu")
def thresholded_relu(op, x, alpha: Float):
    """ONNX's ThresholdedRelu gives 0 at the threshold, MIL's x."""
    return op.Where(op.GreaterOrEqual(x, alpha), x, 0)


@rule("elu")
def elu(op, x, alpha: Float):
    return op.Elu(x, alpha=alpha)


@rule("gelu")
def gelu(op, x, mode: Str = "EXACT"):
    if mode == "SIGMOID_APPROXIMATION":
        return op.Mul(x, op.Sigmoid(op.Mul(x, 1.702)))
    approximations = {"EXACT": "none", "TANH_APPROXIMATION": "tanh"}
    if mode not in approximations:
        raise Unsupported(f"mode {mode}")
    return op.Gelu(x, approximate=approximations[mode])


@rule("sigmoid_hard")
def sigmoid_hard(op, x, alpha: Float, beta: Float):
    return op.HardSigmoid(x, alpha=alpha, beta=beta)


@rule("silu")
def silu(op, x):
    return op.Mul(x, op.Sigmoid(x))


@rule("softplus_parametric")
def softplus_parametric(op, x, alpha, beta):
    return op.Mul(per_channel(op, alpha, x), op.Softplus(op.Mul(per_channel(op, beta, x), x)))


@rule("softmax")
def softmax(op, x, axis: Int = -1):
    return op.Softmax(x, axis=axis)


@rule("scaled_tanh")
def scaled_tanh(op, x, alpha: Float, beta: Float):
    return op.Mul(op.Tanh(op.Mul(x, beta)), alpha)


@rule("linear_activation")
def linear_activation(op, x, alpha: Float, beta: Float):
    return op.Add(op.Mul(x, alpha), beta)
