"""Activations."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import number

# what has no parameters, or those of MIL by the same names
PLAIN = {
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
    """Exactly one kind of activation, with its own parameters."""
    ((name, params),) = kind.items()
    if name in PLAIN:
        return mil.emit(PLAIN[name], x=x, **{p: number(getattr(params, p)) for p in PARAMETERS.get(name, ())})
    if name == "PReLU":
        return _channels(mil, "prelu", x, alpha=params.alpha)
    if name == "parametricSoftplus":
        return _channels(mil, "softplus_parametric", x, alpha=params.alpha, beta=params.beta)
    raise Unsupported(f"the activation {name}")


def _channels(mil, op, x, **params):
    """An activation with one parameter for each channel, or one for all."""
    values = {name: np.array(v.floatValue, np.float32) for name, v in params.items()}
    if not all(v.size for v in values.values()):
        raise Unsupported("parameters that are not stored as float32")
    if all(v.size > 1 for v in values.values()):
        return mil.emit(op, x=x, **{name: mil.weight(v, name) for name, v in values.items()})
    alpha = number(values["alpha"][0])
    if op == "prelu":
        return mil.leaky_relu(x=x, alpha=alpha)
    return mil.mul(x=mil.softplus(x=mil.mul(x=x, y=number(values["beta"][0]))), y=alpha)


@rule("gelu")
def gelu(mil, x, *, mode="EXACT"):
    return mil.gelu(x=x, mode=mode)


@rule("clampedReLU")
def clamped_relu(mil, x, *, alpha=0.0, beta=0.0):
    return mil.clamped_relu(x=x, alpha=number(alpha), beta=number(beta))


@rule("softmax")
def softmax(mil, x):
    return mil.softmax(x=x, axis=-3)


@rule("softmaxND")
def softmax_nd(mil, x, *, axis=0):
    return mil.softmax(x=x, axis=axis)
