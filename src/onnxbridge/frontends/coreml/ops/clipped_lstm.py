"""LSTM with a clipped cell state, which ONNX's LSTM does not support, as a loop over the steps."""

import numpy as np

from onnxbridge.frontends.coreml.ops.shape import reverse_axes

FUNCTIONS = {
    "tanh": lambda op, x: op.Tanh(x), "scaled_tanh": lambda op, x: op.Tanh(x), "sigmoid": lambda op, x: op.Sigmoid(x),
    "relu": lambda op, x: op.Relu(x), "hard_sigmoid": lambda op, x: op.HardSigmoid(x, alpha=0.2, beta=0.5),
    "sigmoid_hard": lambda op, x: op.HardSigmoid(x, alpha=0.2, beta=0.5), "linear": lambda op, x: x,
}  # fmt: skip


def clipped_lstm(op, x, h, c, directions, activations, clip, *, reverse, sequence):
    """MIL's results of an LSTM with one or two directions.

    Args:
        ways: (weight_ih, weight_hh, bias, peephole) of each direction, with MIL's order of gates.
        activations: of the gates, the cell input and the output.
    """
    results = []
    for index, weights in enumerate(directions):
        size = weights[1].shape[1]
        initial = [op.Slice(v, [index * size], [(index + 1) * size], [1]) if len(directions) > 1 else v for v in (h, c)]
        reverse_direction = reverse or index == 1
        y, *last = _direction(op, x, *initial, weights, [FUNCTIONS[a] for a in activations], clip, reverse_direction)
        # in a bidirectional layer the backward sequence is in the order of the input steps
        results.append((reverse_axes(op, y, [0]) if index == 1 else y, *last))
    y, h, c = results[0] if len(directions) == 1 else (op.Concat(*parts, axis=-1) for parts in zip(*results, strict=True))
    return (y if sequence else op.Unsqueeze(h, [0])), h, c


def _direction(op, x, h, c, weights, functions, clip, reverse_direction):
    weight, recurrent, bias, peephole = weights
    inner, cell, outer = functions
    projected = op.MatMul(x, op.constant(weight.T.copy()))
    projected = projected if bias is None else op.Add(projected, op.constant(bias))
    recurrent_t = op.constant(recurrent.T.copy())
    peepholes = None if peephole is None else [op.constant(p) for p in np.split(peephole, 3)]
    steps = op.size(x, 0)
    steps = op.constant(np.int64(steps)) if isinstance(steps, int) else op.Reshape(steps, [])
    last = op.Sub(steps, np.int64(1))

    def body(step, condition, h, c):
        row = op.Gather(projected, op.Sub(last, step) if reverse_direction else step, axis=0)
        total = op.Add(row, op.MatMul(h, recurrent_t))
        i, f, o, new = op.Split(total, axis=1, num_outputs=4, outputs=4)
        if peepholes is not None:
            i, f = op.Add(i, op.Mul(peepholes[0], c)), op.Add(f, op.Mul(peepholes[1], c))
        c = op.Clip(op.Add(op.Mul(inner(op, f), c), op.Mul(inner(op, i), cell(op, new))), -clip, clip)
        o = o if peepholes is None else op.Add(o, op.Mul(peepholes[2], c))
        h = op.Mul(inner(op, o), outer(op, c))
        return [condition, h, c, h]

    h, c, y = op.Loop(steps, True, h, c, body=body, outputs=3)
    return y, h, c
