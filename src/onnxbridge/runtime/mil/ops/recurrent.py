"""Recurrent layers over a sequence (steps, batch, features)."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Str
from onnxbridge.runtime.executor.numpy.kernels import recurrent as kernels
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.activation import relu, sigmoid


def _hard_sigmoid(x):
    return np.clip(0.2 * x + 0.5, 0, 1)


# MIL documents no constants for hard_sigmoid (which rnn calls sigmoid_hard) and scaled_tanh: these are the ones with which
# Apple's own tests of the operator expect its results.
ACTIVATIONS = {
    "tanh": np.tanh,
    "scaled_tanh": np.tanh,
    "sigmoid": sigmoid,
    "hard_sigmoid": _hard_sigmoid,
    "sigmoid_hard": _hard_sigmoid,
    "relu": relu,
    "linear": lambda x: x,
}


def _activation(name):
    if name not in ACTIVATIONS:
        raise Unsupported(f"the activation {name}")
    return ACTIVATIONS[name]


def _gates(stacked, order):
    """The gates of a stacked weight or bias in another order; None for no bias."""
    if stacked is None:
        return None
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[i] for i in order])


def _shown(sequence, last, output_sequence, reverse):
    """What a layer gives. In reverse the sequence is in the order in which it was computed: the last step comes first."""
    if not output_sequence:
        return last[None]
    return np.flip(sequence, 0) if reverse else sequence


def _reverse(direction):
    if direction not in ("forward", "reverse"):
        raise Unsupported(f"direction {direction}")
    return direction == "reverse"


@rule("rnn")
def rnn(
    x,
    initial_h,
    weight_ih,
    weight_hh,
    bias=None,
    direction: Str = "forward",
    output_sequence: Bool = False,
    activation: Str = "tanh",
):
    bias = np.zeros(weight_hh.shape[0], x.dtype) if bias is None else bias
    reverse = _reverse(direction)
    sequence, h = kernels.rnn(x, initial_h, weight_ih, weight_hh, bias, f=_activation(activation), reverse=reverse)
    return _shown(sequence, h, output_sequence, reverse), h


@rule("gru")
def gru(
    x,
    initial_h,
    weight_ih,
    weight_hh,
    bias=None,
    direction: Str = "forward",
    output_sequence: Bool = False,
    recurrent_activation: Str = "sigmoid",
    activation: Str = "tanh",
    reset_after: Bool = False,
    input_bias=None,
):
    """MIL stacks reset, new, update. `bias` belongs to the hidden state, `input_bias` to the input.

    By default the reset gate meets the hidden state before the product with its weights, which the formula in MIL's
    documentation leaves open; with `reset_after` it meets the product, as in PyTorch.
    """
    order, reverse = (2, 0, 1), _reverse(direction)
    zeros = np.zeros(weight_hh.shape[0], x.dtype)
    w, r, b, rb = (_gates(v if v is not None else zeros, order) for v in (weight_ih, weight_hh, input_bias, bias))
    f, g = _activation(recurrent_activation), _activation(activation)
    sequence, h = kernels.gru(x, initial_h, w, r, b, rb, f=f, g=g, reset_after=reset_after, reverse=reverse)
    return _shown(sequence, h, output_sequence, reverse), h


@rule("lstm")
def lstm(
    x,
    initial_h,
    initial_c,
    weight_ih,
    weight_hh,
    bias=None,
    peephole=None,
    weight_ih_back=None,
    weight_hh_back=None,
    bias_back=None,
    peephole_back=None,
    direction: Str = "forward",
    output_sequence: Bool = False,
    recurrent_activation: Str = "sigmoid",
    cell_activation: Str = "tanh",
    activation: Str = "tanh",
    clip=None,
):
    """MIL stacks input, forget, output, cell. `clip` bounds the cell state, as the `cell_clip` of TensorFlow's LSTM does.

    Of both directions the backward one is given at the positions of its steps.
    """
    settings = {
        "f": _activation(recurrent_activation),
        "g": _activation(cell_activation),
        "out": _activation(activation),
        "cell_clip": None if clip is None else float(clip),
    }
    size = weight_hh.shape[1]

    def one(h, c, w, r, b, p, reverse):
        b = np.zeros(4 * size, x.dtype) if b is None else b
        w, r, b, p = _gates(w, (0, 2, 1, 3)), _gates(r, (0, 2, 1, 3)), _gates(b, (0, 2, 1, 3)), _gates(p, (0, 2, 1))
        return kernels.lstm(x, h, c, w, r, b, peephole=p, reverse=reverse, **settings)

    if direction != "bidirectional":
        reverse = _reverse(direction)
        sequence, h, c = one(initial_h, initial_c, weight_ih, weight_hh, bias, peephole, reverse)
        return _shown(sequence, h, output_sequence, reverse), h, c
    there = one(initial_h[:, :size], initial_c[:, :size], weight_ih, weight_hh, bias, peephole, False)
    back = one(initial_h[:, size:], initial_c[:, size:], weight_ih_back, weight_hh_back, bias_back, peephole_back, True)
    sequence, h, c = (np.concatenate(pair, -1) for pair in zip(there, back, strict=True))
    return sequence if output_sequence else h[None], h, c
