"""RNN, GRU and LSTM as a Loop over time steps, for all activations, directions and sequence lengths."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import reverse_first_axis

# Name: the function (op, x, alpha, beta), and the defaults of the parameters that it has.
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
    """The activations as functions (op, x) that clip their input. Those with alpha or beta consume the next given values."""
    alphas, betas = iter(alphas or ()), iter(betas or ())
    return [_activation(name.lower(), alphas, betas, clip) for name in names]


def _activation(name, alphas, betas, clip):
    if name not in _ACTIVATIONS:
        raise Unsupported(f"activation {name!r}")
    function, defaults = _ACTIVATIONS[name]
    parameters = [next(source, default) for source, default in zip((alphas, betas), defaults, strict=False)]

    def run(op, x):
        return function(op, x if clip is None else op.Clip(x, -clip, clip), *parameters)

    return run


def _product(weights):
    """A function (op, direction index) that returns the matrix product with the weights of that direction."""

    def of(op, index):
        transposed = op.Transpose(op.Gather(weights, index, axis=0), perm=[1, 0])
        return lambda op, x: op.MatMul(x, transposed)

    return of


def _quantized_product(quantized, scale, zero_point):
    """As `_product`, with quantized weights, stored transposed; the other operand is quantized dynamically."""

    def of(op, index):
        part, factor, zero = (op.Gather(v, index, axis=0) for v in (quantized, scale, zero_point))

        def multiply(op, x):
            rows, step, x_zero_point = op.DynamicQuantizeLinear(x, outputs=3)
            return op.Mul(op.Cast(op.MatMulInteger(rows, part, x_zero_point, zero), to=1), op.Mul(step, factor))

        return multiply

    return of


def _size(weights, axis):
    """A dimension of the recurrence weights, which must be static to split the gates."""
    if weights.shape is None or not isinstance(weights.shape[axis], int):
        raise Unsupported("recurrence weights of dynamic size")
    return weights.shape[axis]


def _layer(op, X, product, recurrence, size, B, sequence_lens, states, direction, layout, cell):
    """Runs each direction in a Loop of its own.

    `product(op, index)` returns the product with W of a direction. `cell(op, index, row, recurrence(op, index), bias of R,
    *states)` returns the new states, h first. `size` is (gate size, hidden size).
    """
    x = op.Transpose(X, perm=[1, 0, 2]) if layout else X
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if reversals is None:
        raise Unsupported(f"direction {direction!r}")
    gates, hidden = size
    steps, batch = op.size(x, 0), op.size(x, 1)
    lengths = None if sequence_lens is None else op.Unsqueeze(op.Cast(sequence_lens, to=7), [1])
    results = []
    for index, reverse in enumerate(reversals):
        b = None if B is None else op.Gather(B, index, axis=0)
        rb = op.constant(np.zeros(gates), dtype=x.dtype) if b is None else op.Slice(b, [gates], [2 * gates], [0])
        row = product(op, index)(op, x)
        row = row if b is None else op.Add(row, op.Slice(b, [0], [gates], [0]))
        initial = [_initial(op, s, index, layout, batch, hidden, x) for s in states]
        r = recurrence(op, index)
        results.append(
            _steps(op, row, initial, lengths, steps, reverse, lambda o, t, *s, w=index, r=r, rb=rb: cell(o, w, t, r, rb, *s))
        )
    y, *last = (_stack(op, parts, axis=0 if i else 1) for i, parts in enumerate(zip(*results, strict=True)))
    if layout:
        return (op.Transpose(y, perm=[2, 0, 1, 3]), *(op.Transpose(s, perm=[1, 0, 2]) for s in last))
    return (y, *last)


def _stack(op, parts, axis):
    """Stacks the results of the directions along a new axis."""
    parts = [op.Unsqueeze(p, [axis]) for p in parts]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


def _initial(op, state, index, layout, batch, hidden, x):
    if state is None:
        return op.Expand(op.constant(np.zeros((1, 1)), dtype=x.dtype), op.dims([batch, hidden]))
    return op.Gather(state, index, axis=1 if layout else 0)


def _steps(op, rows, states, lengths, steps, reverse, cell):
    """Loops over the time steps; a sequence that has ended keeps its states and outputs zeros."""
    last = op.Sub(op.constant(np.int64(steps)) if isinstance(steps, int) else steps, np.int64(1))

    def body(iteration, condition, *states):
        t = op.Sub(last, iteration) if reverse else iteration
        new = cell(op, op.Gather(rows, t, axis=0), *states)
        output = new[0]
        if lengths is not None:
            is_active = op.Less(t, lengths)
            output = op.Where(is_active, new[0], 0.0)
            new = [op.Where(is_active, n, s) for n, s in zip(new, states, strict=True)]
        return [condition, *new, output]

    trip_count = op.constant(np.int64(steps)) if isinstance(steps, int) else steps
    *final, y = op.Loop(trip_count, True, *states, body=body, outputs=len(states) + 1)
    if reverse:
        y = reverse_first_axis(op, y)
    return (y, *final)


@decompose("RNN")
def rnn(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=("Tanh", "Tanh"), clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    functions = _activations(activations, activation_alpha, activation_beta, clip)

    def cell(op, index, row, r, rb, h):
        return [functions[index](op, op.Add(op.Add(row, r(op, h)), rb))]

    size = _size(R, 1), _size(R, 2)
    return _layer(op, X, _product(W), _product(R), size, B, sequence_lens, [initial_h], direction, layout, cell)


@decompose("GRU")
def gru(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None, activations=None,
    clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    functions = _activations(activations or ("Sigmoid", "Tanh") * 2, activation_alpha, activation_beta, clip)

    gates, size = _size(R, 1), _size(R, 2)

    def cell(op, index, row, r, rb, h):
        f, g = functions[2 * index : 2 * index + 2]
        xz, xr, xh = op.Split(row, axis=1, num_outputs=3, outputs=3)
        rz, rr, rh = (op.Transpose(p, perm=[1, 0]) for p in op.Split(r, axis=0, num_outputs=3, outputs=3))
        bz, br, bh = (op.Slice(rb, [i * size], [(i + 1) * size], [0]) for i in range(3))
        z = f(op, op.Add(op.Add(xz, op.MatMul(h, rz)), bz))
        reset = f(op, op.Add(op.Add(xr, op.MatMul(h, rr)), br))
        after = op.Mul(reset, op.Add(op.MatMul(h, rh), bh)) if linear_before_reset else None
        new = g(op, op.Add(xh, after if after is not None else op.Add(op.MatMul(op.Mul(reset, h), rh), bh)))
        return [op.Add(op.Mul(op.Sub(1.0, z), new), op.Mul(z, h))]

    def recurrence(op, index):
        return op.Gather(R, index, axis=0)

    return _layer(op, X, _product(W), recurrence, (gates, size), B, sequence_lens, [initial_h], direction, layout, cell)


@decompose("LSTM")
def lstm(
    op, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None,
    activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    functions = _activations(activations or ("Sigmoid", "Tanh", "Tanh") * 2, activation_alpha, activation_beta, clip)
    products, size = (_product(W), _product(R)), (_size(R, 1), _size(R, 2))
    return _lstm(op, X, products, size, B, sequence_lens, [initial_h, initial_c], P, functions, direction, input_forget, layout)


@decompose("com.microsoft::DynamicQuantizeLSTM")
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

    def cell(op, index, row, r, rb, h, c):
        f, g, last = functions[3 * index : 3 * index + 3]
        i, o, forget, new = op.Split(op.Add(op.Add(row, r(op, h)), rb), axis=1, num_outputs=4, outputs=4)

        def peephole(gate, part, state):
            if P is None:
                return gate
            weights = op.Slice(op.Gather(P, index, axis=0), [part * hidden], [(part + 1) * hidden], [0])
            return op.Add(gate, op.Mul(weights, state))

        i = f(op, peephole(i, 0, c))
        forget = op.Sub(1.0, i) if input_forget else f(op, peephole(forget, 2, c))
        c = op.Add(op.Mul(forget, c), op.Mul(i, g(op, new)))
        return [op.Mul(f(op, peephole(o, 1, c)), last(op, c)), c]

    return _layer(op, X, *products, size, B, sequence_lens, states, direction, layout, cell)
