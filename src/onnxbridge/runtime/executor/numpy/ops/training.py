"""Optimizers of ai.onnx.preview.training: one update of any number of tensors, in order.

Inputs are grouped by role: all tensors first, then all gradients, then each kind of accumulated value.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.executor.numpy.dtypes import wide
from onnxbridge.runtime.executor.numpy.ops import rule


def _each(step, inputs, roles):
    """The results of `step` for every tensor, all new tensors first, in the tensors' own types."""
    count = len(inputs) // roles
    results = [step(*map(wide, inputs[i::count])) for i in range(count)]
    return tuple(np.asarray(new, inputs[0].dtype) for role in zip(*results, strict=True) for new in role)


@rule("ai.onnx.preview.training::Adagrad")
def adagrad(R, T, *inputs, decay_factor=0.0, epsilon=9.999999974752427e-07, norm_coefficient=0.0):
    rate = wide(R) / (1 + T * wide(R).dtype.type(decay_factor))

    def step(x, g, h):
        g = norm_coefficient * x + g
        h = h + g * g
        return x - rate * g / (np.sqrt(h) + epsilon), h

    return _each(step, inputs, 3)


@rule("ai.onnx.preview.training::Adam")
def adam(
    R, T, *inputs, alpha=0.8999999761581421, beta=0.9990000128746033, epsilon=9.999999974752427e-07, norm_coefficient=0.0,
    norm_coefficient_post=0.0,
):  # fmt: skip
    rate = wide(R) * np.sqrt(1 - beta ** float(T)) / (1 - alpha ** float(T)) if T > 0 else wide(R)

    def step(x, g, v, h):
        g = norm_coefficient * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        return (1 - norm_coefficient_post) * (x - rate * v / (np.sqrt(h) + epsilon)), v, h

    return _each(step, inputs, 4)


@rule("ai.onnx.preview.training::Momentum")
def momentum(R, T, *inputs, alpha, beta, mode, norm_coefficient):
    if mode not in ("standard", "nesterov"):
        raise Unsupported(f"mode {mode!r}")
    rate = wide(R)

    def step(x, g, v):
        g = norm_coefficient * x + g
        v = alpha * v + (beta if T > 0 else 1) * g
        return x - rate * (g + alpha * v if mode == "nesterov" else v), v

    return _each(step, inputs, 3)
