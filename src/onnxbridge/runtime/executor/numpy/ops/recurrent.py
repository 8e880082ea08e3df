"""Recurrent layers: one or two directions, sequences of different lengths, any of the standard's activations."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.numpy.dtypes import widened
from onnxbridge.runtime.executor.numpy.kernels import recurrent as kernels
from onnxbridge.runtime.executor.numpy.ops import activation, quant, rule

# Name: the function, and the defaults of those of alpha and beta that it has.
_ACTIVATIONS = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (activation.sigmoid, ()),
    "softsign": (activation.softsign, ()),
    "softplus": (activation.softplus, ()),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, a: np.where(x > a, x, 0), (1.0,)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
}


def _activations(names, alphas, betas, clip):
    """The functions, each on its input bounded by `clip`; those with alpha and beta consume the next values of these lists.

    According to the standard `clip` bounds the input of every activation, also of LSTM's last one, where ONNX Runtime does
    not clip the cell state.
    """
    alphas, betas = iter(alphas or ()), iter(betas or ())
    return [_activation(name, alphas, betas, clip) for name in names]


def _activation(name, alphas, betas, clip):
    if name.lower() not in _ACTIVATIONS:
        raise Unsupported(f"activation {name!r}")
    f, defaults = _ACTIVATIONS[name.lower()]
    parameters = [next(source, default) for source, default in zip((alphas, betas), defaults, strict=False)]

    def run(x):
        bounded = x if clip is None else np.clip(x, -clip, clip)
        return f(bounded, *parameters).astype(x.dtype, copy=False)

    return run


def _directions(cell, X, direction, layout, states, sequence_lens, hidden):
    """Run `cell(i, reverse, x, lengths, *initial states)` for each direction, and arrange the results in the requested layout."""
    x = X.swapaxes(0, 1) if layout else X
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    claim((x.shape[0], len(reversals), x.shape[1], hidden), x.dtype)
    states = [_initial(s, len(reversals), x, layout, hidden) for s in states]
    results = [cell(i, back, x, sequence_lens, *(s[i] for s in states)) for i, back in enumerate(reversals)]
    y, *last = (np.stack(r) for r in zip(*results, strict=True))
    # Y is (directions, steps, batch, hidden) so far, the last states (directions, batch, hidden).
    if layout:
        return (y.transpose(2, 1, 0, 3), *(s.swapaxes(0, 1) for s in last))
    return (y.swapaxes(0, 1), *last)


def _initial(state, reversals, x, layout, hidden):
    if state is None:
        return np.zeros((reversals, x.shape[1], hidden), x.dtype)
    return state.swapaxes(0, 1) if layout else state


def _biases(B, i, gates, like):
    """The biases of the input and of the recurrence."""
    return np.split(B[i], 2) if B is not None else (np.zeros(gates, like.dtype),) * 2


@rule("RNN")
@widened
def rnn(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=("Tanh", "Tanh"),
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
):
    functions = _activations(activations, activation_alpha, activation_beta, clip)

    def cell(i, reverse, x, lengths, h):
        wb, rb = _biases(B, i, W.shape[1], X)
        return kernels.rnn(x, h, W[i], R[i], wb + rb, f=functions[i], reverse=reverse, lengths=lengths)

    return _directions(cell, X, direction, layout, [initial_h], sequence_lens, R.shape[-1])


@rule("GRU")
@widened
def gru(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
    linear_before_reset=0,
):
    functions = _activations(activations or ("Sigmoid", "Tanh") * 2, activation_alpha, activation_beta, clip)

    def cell(i, reverse, x, lengths, h):
        wb, rb = _biases(B, i, W.shape[1], X)
        f, g = functions[2 * i : 2 * i + 2]
        options = {"reset_after": bool(linear_before_reset), "reverse": reverse, "lengths": lengths}
        return kernels.gru(x, h, W[i], R[i], wb, rb, f=f, g=g, **options)

    return _directions(cell, X, direction, layout, [initial_h], sequence_lens, R.shape[-1])


@rule("LSTM")
@widened
def lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
    layout=0,
):
    functions = _activations(activations or ("Sigmoid", "Tanh", "Tanh") * 2, activation_alpha, activation_beta, clip)

    def cell(i, reverse, x, lengths, h, c):
        wb, rb = _biases(B, i, W.shape[1], X)
        f, g, out = functions[3 * i : 3 * i + 3]
        options = {"couple": bool(input_forget), "reverse": reverse, "lengths": lengths}
        peephole = None if P is None else P[i]
        return kernels.lstm(x, h, c, W[i], R[i], wb + rb, f=f, g=g, out=out, peephole=peephole, **options)

    return _directions(cell, X, direction, layout, [initial_h, initial_c], sequence_lens, R.shape[-1])


class _Quantized:
    """Quantized weights (inputs, outputs) whose other factor is quantized dynamically for each product."""

    def __init__(self, quantized, scale, zero_point):
        self._quantized, self._scale, self._zero_point = quantized, scale, zero_point

    @property
    def T(self):
        """The weights themselves, which are already transposed."""
        return self

    def __array_ufunc__(self, ufunc, method, x, weights):
        quantized, scale, zero = quant.dynamic_quantize_linear(x)
        product = quant.matmul_integer(quantized, self._quantized, zero, self._zero_point)
        return product.astype(np.float32) * (scale * self._scale)


@rule("com.microsoft::DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    W_scale=None,
    W_zero_point=None,
    R_scale=None,
    R_zero_point=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    """ONNX Runtime's LSTM with quantized weights, and data quantized dynamically for each product."""
    weights = [_Quantized(*parts) for parts in zip(W, W_scale, W_zero_point, strict=True)]
    back = [_Quantized(*parts) for parts in zip(R, R_scale, R_zero_point, strict=True)]
    functions = _activations(activations or ("Sigmoid", "Tanh", "Tanh") * 2, activation_alpha, activation_beta, clip)

    def cell(i, reverse, x, lengths, h, c):
        wb, rb = _biases(B, i, W.shape[-1], X)
        f, g, out = functions[3 * i : 3 * i + 3]
        options = {"couple": bool(input_forget), "reverse": reverse, "lengths": lengths}
        peephole = None if P is None else P[i]
        return kernels.lstm(x, h, c, weights[i], back[i], wb + rb, f=f, g=g, out=out, peephole=peephole, **options)

    return _directions(cell, X, direction, 0, [initial_h, initial_c], sequence_lens, R.shape[1])
