"""Recurrent layers as a loop over their steps: any weights, activations, directions and lengths."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import reversed_along_first

# Name: the function of (op, x, alpha, beta), and the defaults of alpha and beta where it takes them.
_ACTIVATIONS = {
    "relu": (lambda op, x: op.Relu(x), ()),
    "tanh": (lambda op, x: op.Tanh(x), ()),
    "sigmoid": (lambda op, x: op.Sigmoid(x), ()),
    "softsign": (lambda op, x: op.Softsign(x), ()),
    "softplus": (lambda op, x: op.Softplus(x), ()),
    "affine": (lambda op, x, a, b: op.Add(op.Mul(x, a), b), (1.0, 0.0)),
    "leakyrelu": (lambda op, x, a: op.LeakyRelu(x, alpha=a), (0.01,)),
    "thresholdedrelu": (lambda op, x, a: op.ThresholdedRelu(x, alpha=a), (1.0,)),
    "scaledtanh": (lambda op, x, a, b: op.Mul(op.Tanh(op.Mul(x, b)), a), (1.0, 1.0)),
    "hardsigmoid": (lambda op, x, a, b: op.HardSigmoid(x, alpha=a, beta=b), (0.2, 0.5)),
    "elu": (lambda op, x, a: op.Elu(x, alpha=a), (1.0,)),
}


def _activations(names, alphas, betas, clip):
    """The functions of (op, x), each on its input bounded by `clip`; those with alpha and beta use up the next ones given."""
    alphas, betas = iter(alphas or ()), iter(betas or ())
    return [_activation(name.lower(), alphas, betas, clip) for name in names]


def _activation(name, alphas, betas, clip):
    if name not in _ACTIVATIONS:
        raise Unsupported(f"activation {name!r}")
    function, defaults = _ACTIVATIONS[name]
    given = [next(source, default) for source, default in zip((alphas, betas), defaults, strict=False)]

    def run(op, x):
        return function(op, x if clip is None else op.Clip(x, -clip, clip), *given)

    return run


def _product(weights):
    """The product with one direction's weights, for (op, way)."""

    def of(op, way):
        turned = op.Transpose(op.Gather(weights, way, axis=0), perm=[1, 0])
        return lambda op, x: op.MatMul(x, turned)

    return of


def _quantized_product(codes, scale, zero_point):
    """The same with weights of whole numbers, held transposed, that quantize what they are multiplied with, each time anew."""

    def of(op, way):
        part, factor, zero = (op.Gather(v, way, axis=0) for v in (codes, scale, zero_point))

        def times(op, x):
            rows, step, least = op.DynamicQuantizeLinear(x, outputs=3)
            return op.Mul(op.Cast(op.MatMulInteger(rows, part, least, zero), to=1), op.Mul(step, factor))

        return times

    return of


def _size(weights, axis):
    """A size of the recurrence weights, which the gates are cut by."""
    if weights.shape is None or not isinstance(weights.shape[axis], int):
        raise Unsupported("recurrence weights of an unknown size")
    return weights.shape[axis]


def _layer(op, X, product, recurrence, size, B, sequence_lens, states, direction, layout, cell):
    """Each direction in a loop of its own.

    `product(op, way)` multiplies with W; `cell(op, way, row, recurrence(op, way), bias of R, *states)` gives the new states, h
    first, for the gates' `size` and the states'.
    """
    x = op.Transpose(X, perm=[1, 0, 2]) if layout else X
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if ways is None:
        raise Unsupported(f"direction {direction!r}")
    gates, hidden = size
    steps, batch = op.size(x, 0), op.size(x, 1)
    lengths = None if sequence_lens is None else op.Unsqueeze(op.Cast(sequence_lens, to=7), [1])
    results = []
    for way, back in enumerate(ways):
        b = None if B is None else op.Gather(B, way, axis=0)
        rb = op.constant(np.zeros(gates), dtype=x.dtype) if b is None else op.Slice(b, [gates], [2 * gates], [0])
        row = product(op, way)(op, x)
        row = row if b is None else op.Add(row, op.Slice(b, [0], [gates], [0]))
        start = [_initial(op, s, way, layout, batch, hidden, x) for s in states]
        r = recurrence(op, way)
        results.append(_steps(op, row, start, lengths, steps, back, lambda o, t, *s, w=way, r=r, rb=rb: cell(o, w, t, r, rb, *s)))
    y, *last = (_together(op, parts, axis=0 if i else 1) for i, parts in enumerate(zip(*results, strict=True)))
    if layout:
        return (op.Transpose(y, perm=[2, 0, 1, 3]), *(op.Transpose(s, perm=[1, 0, 2]) for s in last))
    return (y, *last)


def _together(op, parts, axis):
    """Both directions along a new axis."""
    parts = [op.Unsqueeze(p, [axis]) for p in parts]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


def _initial(op, state, way, layout, batch, hidden, x):
    if state is None:
        return op.Expand(op.constant(np.zeros((1, 1)), dtype=x.dtype), op.dims([batch, hidden]))
    return op.Gather(state, way, axis=1 if layout else 0)


def _steps(op, rows, states, lengths, steps, back, cell):
    """Every step in its order; a sequence that is over keeps its states, and gives zeros."""
    last = op.Sub(op.constant(np.int64(steps)) if isinstance(steps, int) else steps, np.int64(1))

    def body(trip, going, *states):
        place = op.Sub(last, trip) if back else trip
        new = cell(op, op.Gather(rows, place, axis=0), *states)
        shown = new[0]
        if lengths is not None:
            runs = op.Less(place, lengths)
            shown = op.Where(runs, new[0], 0.0)
            new = [op.Where(runs, n, s) for n, s in zip(new, states, strict=True)]
        return [going, *new, shown]

    trips = op.constant(np.int64(steps)) if isinstance(steps, int) else steps
    *final, y = op.Loop(trips, True, *states, body=body, outputs=len(states) + 1)
    if back:
        y = reversed_along_first(op, y)
    return (y, *final)


@expand("RNN")
def rnn(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=("Tanh", "Tanh"), clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    functions = _activations(activations, activation_alpha, activation_beta, clip)

    def cell(op, way, row, r, rb, h):
        return [functions[way](op, op.Add(op.Add(row, r(op, h)), rb))]

    size = _size(R, 1), _size(R, 2)
    return _layer(op, X, _product(W), _product(R), size, B, sequence_lens, [initial_h], direction, layout, cell)


@expand("GRU")
def gru(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None, activations=None,
    clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    functions = _activations(activations or ("Sigmoid", "Tanh") * 2, activation_alpha, activation_beta, clip)

    gates, size = _size(R, 1), _size(R, 2)

    def cell(op, way, row, r, rb, h):
        f, g = functions[2 * way : 2 * way + 2]
        xz, xr, xh = op.Split(row, axis=1, num_outputs=3, outputs=3)
        rz, rr, rh = (op.Transpose(p, perm=[1, 0]) for p in op.Split(r, axis=0, num_outputs=3, outputs=3))
        bz, br, bh = (op.Slice(rb, [i * size], [(i + 1) * size], [0]) for i in range(3))
        z = f(op, op.Add(op.Add(xz, op.MatMul(h, rz)), bz))
        reset = f(op, op.Add(op.Add(xr, op.MatMul(h, rr)), br))
        after = op.Mul(reset, op.Add(op.MatMul(h, rh), bh)) if linear_before_reset else None
        new = g(op, op.Add(xh, after if after is not None else op.Add(op.MatMul(op.Mul(reset, h), rh), bh)))
        return [op.Add(op.Mul(op.Sub(1.0, z), new), op.Mul(z, h))]

    def recurrence(op, way):
        return op.Gather(R, way, axis=0)

    return _layer(op, X, _product(W), recurrence, (gates, size), B, sequence_lens, [initial_h], direction, layout, cell)


@expand("LSTM")
def lstm(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None,
    activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    functions = _activations(activations or ("Sigmoid", "Tanh", "Tanh") * 2, activation_alpha, activation_beta, clip)
    products, size = (_product(W), _product(R)), (_size(R, 1), _size(R, 2))
    return _lstm(op, X, products, size, B, sequence_lens, [initial_h, initial_c], P, functions, direction, input_forget, layout)


@expand("com.microsoft::DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, W_scale=None, W_zero_point=None,
    R_scale=None, R_zero_point=None, *, activation_alpha=None, activation_beta=None, activations=None, clip=None,
    direction="forward", hidden_size=None, input_forget=0,
):  # fmt: skip
    functions = _activations(activations or ("Sigmoid", "Tanh", "Tanh") * 2, activation_alpha, activation_beta, clip)
    products = _quantized_product(W, W_scale, W_zero_point), _quantized_product(R, R_scale, R_zero_point)
    size = _size(R, 2), _size(R, 1)
    return _lstm(op, X, products, size, B, sequence_lens, [initial_h, initial_c], P, functions, direction, input_forget, 0)


def _lstm(op, X, products, size, B, sequence_lens, states, P, functions, direction, input_forget, layout):
    hidden = size[1]

    def cell(op, way, row, r, rb, h, c):
        f, g, last = functions[3 * way : 3 * way + 3]
        i, o, forget, new = op.Split(op.Add(op.Add(row, r(op, h)), rb), axis=1, num_outputs=4, outputs=4)

        def peep(gate, part, state):
            if P is None:
                return gate
            weights = op.Slice(op.Gather(P, way, axis=0), [part * hidden], [(part + 1) * hidden], [0])
            return op.Add(gate, op.Mul(weights, state))

        i = f(op, peep(i, 0, c))
        forget = op.Sub(1.0, i) if input_forget else f(op, peep(forget, 2, c))
        c = op.Add(op.Mul(forget, c), op.Mul(i, g(op, new)))
        return [op.Mul(f(op, peep(o, 1, c)), last(op, c)), c]

    return _layer(op, X, *products, size, B, sequence_lens, states, direction, layout, cell)
