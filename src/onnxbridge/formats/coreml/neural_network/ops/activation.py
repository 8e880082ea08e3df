"""Activation layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32

# Activations without parameters, or with those of MIL by the same names.
MIL_NAMES = {
    "linear": "linear_activation", "ReLU": "relu", "leakyReLU": "leaky_relu", "thresholdedReLU": "thresholded_relu",
    "tanh": "tanh", "scaledTanh": "scaled_tanh", "sigmoid": "sigmoid", "sigmoidHard": "sigmoid_hard", "ELU": "elu",
    "softsign": "softsign", "softplus": "softplus",
}  # fmt: skip
PARAMETERS = {
    "linear": ("alpha", "beta"), "leakyReLU": ("alpha",), "thresholdedReLU": ("alpha",), "scaledTanh": ("alpha", "beta"),
    "sigmoidHard": ("alpha", "beta"), "ELU": ("alpha",),
}  # fmt: skip


@rule("activation")
def activation(mil, x, **kind):
    """`kind` is exactly one activation and its parameters."""
    ((name, params),) = kind.items()
    if name in MIL_NAMES:
        return mil.emit(MIL_NAMES[name], x=x, **{p: float32(getattr(params, p)) for p in PARAMETERS.get(name, ())})
    if name == "PReLU":
        return _per_channel(mil, "prelu", x, alpha=params.alpha)
    if name == "parametricSoftplus":
        return _per_channel(mil, "softplus_parametric", x, alpha=params.alpha, beta=params.beta)
    raise Unsupported(f"the activation {name}")


def _per_channel(mil, op, x, **params):
    """An activation whose parameters are per channel, or one number for all channels."""
    values = {name: np.array(v.floatValue, np.float32) for name, v in params.items()}
    if not all(v.size for v in values.values()):
        raise Unsupported("parameters that are not stored as float32")
    if all(v.size > 1 for v in values.values()):
        return mil.emit(op, x=x, **{name: mil.weight(v, name) for name, v in values.items()})
    alpha = float32(values["alpha"][0])
    if op == "prelu":
        return mil.leaky_relu(x=x, alpha=alpha)
    return mil.mul(x=mil.softplus(x=mil.mul(x=x, y=float32(values["beta"][0]))), y=alpha)


@rule("gelu")
def gelu(mil, x, *, mode="EXACT"):
    return mil.gelu(x=x, mode=mode)


@rule("clampedReLU")
def clamped_relu(mil, x, *, alpha=0.0, beta=0.0):
    return mil.clamped_relu(x=x, alpha=float32(alpha), beta=float32(beta))


@rule("softmax")
def softmax(mil, x):
    return mil.softmax(x=x, axis=-3)


@rule("softmaxND")
def softmax_nd(mil, x, *, axis=0):
    return mil.softmax(x=x, axis=axis)
