"""LSTMs whose cell is bounded, which ONNX's operator cannot say: a loop over the steps."""

import numpy as np

from onnxbridge.frontends.coreml.ops.shape import flipped

FUNCTIONS = {
    "tanh": lambda op, x: op.Tanh(x), "scaled_tanh": lambda op, x: op.Tanh(x), "sigmoid": lambda op, x: op.Sigmoid(x),
    "relu": lambda op, x: op.Relu(x), "hard_sigmoid": lambda op, x: op.HardSigmoid(x, alpha=0.2, beta=0.5),
    "sigmoid_hard": lambda op, x: op.HardSigmoid(x, alpha=0.2, beta=0.5), "linear": lambda op, x: x,
}  # fmt: skip


def clipped(op, x, h, c, ways, activations, clip, *, reverse, sequence):
    """MIL's results of a layer of one or two directions. A way is (weight_ih, weight_hh, bias, peephole), as MIL stacks them;
    `activations` are those of the gates, the new values and the cell."""
    found = []
    for number, way in enumerate(ways):
        size = way[1].shape[1]
        first = [op.Slice(v, [number * size], [(number + 1) * size], [1]) if len(ways) > 1 else v for v in (h, c)]
        back = reverse or number == 1
        y, *last = _direction(op, x, *first, way, [FUNCTIONS[a] for a in activations], clip, back)
        # of both directions the backward one is given at the positions of its steps
        found.append((flipped(op, y, [0]) if number == 1 else y, *last))
    y, h, c = found[0] if len(ways) == 1 else (op.Concat(*parts, axis=-1) for parts in zip(*found, strict=True))
    return (y if sequence else op.Unsqueeze(h, [0])), h, c


def _direction(op, x, h, c, way, functions, clip, back):
    weight, recurrent, bias, peephole = way
    inner, cell, outer = functions
    rows = op.MatMul(x, op.constant(weight.T.copy()))
    rows = rows if bias is None else op.Add(rows, op.constant(bias))
    turned = op.constant(recurrent.T.copy())
    holes = None if peephole is None else [op.constant(p) for p in np.split(peephole, 3)]
    steps = op.size(x, 0)
    steps = op.constant(np.int64(steps)) if isinstance(steps, int) else op.Reshape(steps, [])
    last = op.Sub(steps, np.int64(1))

    def body(trip, going, h, c):
        row = op.Gather(rows, op.Sub(last, trip) if back else trip, axis=0)
        total = op.Add(row, op.MatMul(h, turned))
        i, f, o, new = op.Split(total, axis=1, num_outputs=4, outputs=4)
        if holes is not None:
            i, f = op.Add(i, op.Mul(holes[0], c)), op.Add(f, op.Mul(holes[1], c))
        c = op.Clip(op.Add(op.Mul(inner(op, f), c), op.Mul(inner(op, i), cell(op, new))), -clip, clip)
        o = o if holes is None else op.Add(o, op.Mul(holes[2], c))
        h = op.Mul(inner(op, o), outer(op, c))
        return [going, h, c, h]

    h, c, y = op.Loop(steps, True, h, c, body=body, outputs=3)
    return y, h, c
