"""Optimizer steps: Adagrad, Adam and Momentum."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.decompositions.standard import decompose

_TRAINING = "ai.onnx.preview.training::"


def _for_each_tensor(inputs, groups, step):
    """Applies `step` to every tensor; inputs and results are grouped as all tensors, all gradients, all moments."""
    count = len(inputs) // groups
    results = [step(*inputs[i::count]) for i in range(count)]
    return tuple(r for group in zip(*results, strict=True) for r in group)


def _decayed(op, x, gradient, norm_coefficient):
    return op.Add(op.Mul(x, norm_coefficient), gradient)


@decompose(_TRAINING + "Adagrad")
def adagrad(op, R, T, *inputs, decay_factor=0.0, epsilon=9.999999974752427e-07, norm_coefficient=0.0):
    rate = op.Div(R, op.Add(op.Mul(op.Cast(T, to=R.dtype), decay_factor), 1.0))

    def step(x, gradient, squares):
        g = _decayed(op, x, gradient, norm_coefficient)
        squares = op.Add(squares, op.Mul(g, g))
        change = op.Div(op.Mul(op.Cast(rate, to=x.dtype), g), op.Add(op.Sqrt(squares), epsilon))
        return op.Sub(x, change), squares

    return _for_each_tensor(inputs, 3, step)


@decompose(_TRAINING + "Adam")
def adam(
    op, R, T, *inputs, alpha=0.8999999761581421, beta=0.9990000128746033, epsilon=9.999999974752427e-07,
    norm_coefficient=0.0, norm_coefficient_post=0.0,
):  # fmt: skip
    steps = op.Cast(T, to=R.dtype)
    unbiased = op.Div(
        op.Sqrt(op.Sub(1.0, op.Pow(op.Cast(op.constant(beta), to=R.dtype), steps))),
        op.Sub(1.0, op.Pow(op.Cast(op.constant(alpha), to=R.dtype), steps)),
    )
    rate = op.Where(op.Greater(steps, 0.0), op.Mul(R, unbiased), R)

    def step(x, gradient, mean, squares):
        g = _decayed(op, x, gradient, norm_coefficient)
        mean = op.Add(op.Mul(mean, alpha), op.Mul(g, 1 - alpha))
        squares = op.Add(op.Mul(squares, beta), op.Mul(op.Mul(g, g), 1 - beta))
        change = op.Div(op.Mul(op.Cast(rate, to=x.dtype), mean), op.Add(op.Sqrt(squares), epsilon))
        return op.Mul(op.Sub(x, change), 1 - norm_coefficient_post), mean, squares

    return _for_each_tensor(inputs, 4, step)


@decompose(_TRAINING + "Momentum")
def momentum(op, R, T, *inputs, alpha, beta, mode, norm_coefficient):
    part = op.Where(op.Greater(T, 0), beta, op.Cast(op.constant(1.0), to=ir.DataType.FLOAT))

    def step(x, gradient, velocity):
        g = _decayed(op, x, gradient, norm_coefficient)
        velocity = op.Add(op.Mul(velocity, alpha), op.Mul(op.Cast(part, to=x.dtype), g))
        ahead = velocity if mode == "standard" else op.Add(g, op.Mul(velocity, alpha))
        return op.Sub(x, op.Mul(op.Cast(R, to=x.dtype), ahead)), velocity

    return _for_each_tensor(inputs, 3, step)
