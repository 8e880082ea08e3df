"""Recurrent layers over a sequence (steps, batch, features)."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Str
from onnxbridge.runtime.executor.numpy.kernels import recurrent as kernels
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.activation import relu, sigmoid


def _hard_sigmoid(x):
    return np.clip(0.2 * x + 0.5, 0, 1)


# MIL does not document the constants of hard_sigmoid (called sigmoid_hard in rnn) and scaled_tanh: these are the ones that
# Apple's tests of the operator expect.
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
    """Reorder the gates of a stacked weight or bias; None if there is none."""
    if stacked is None:
        return None
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[i] for i in order])


def _sequence_output(sequence, last, output_sequence, reverse):
    """The first output of a layer. A reverse sequence is in the order of computation: the last step comes first."""
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
    return _sequence_output(sequence, h, output_sequence, reverse), h


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
    """MIL stacks the gates as reset, new, update. `bias` is for the hidden state, `input_bias` for the input.

    By default the reset gate is applied to the hidden state before the matrix product, which MIL's documentation does not
    specify; with `reset_after` it is applied to the product, as in PyTorch.
    """
    order, reverse = (2, 0, 1), _reverse(direction)
    zeros = np.zeros(weight_hh.shape[0], x.dtype)
    w, r, b, rb = (_gates(v if v is not None else zeros, order) for v in (weight_ih, weight_hh, input_bias, bias))
    f, g = _activation(recurrent_activation), _activation(activation)
    sequence, h = kernels.gru(x, initial_h, w, r, b, rb, f=f, g=g, reset_after=reset_after, reverse=reverse)
    return _sequence_output(sequence, h, output_sequence, reverse), h


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
    """MIL stacks the gates as input, forget, output, cell. `clip` bounds the cell state, like `cell_clip` of TensorFlow's LSTM.

    In a bidirectional layer the backward sequence is in the order of the input steps.
    """
    parameters = {
        "f": _activation(recurrent_activation),
        "g": _activation(cell_activation),
        "out": _activation(activation),
        "cell_clip": None if clip is None else float(clip),
    }
    size = weight_hh.shape[1]

    def run_direction(h, c, w, r, b, p, reverse):
        b = np.zeros(4 * size, x.dtype) if b is None else b
        w, r, b, p = _gates(w, (0, 2, 1, 3)), _gates(r, (0, 2, 1, 3)), _gates(b, (0, 2, 1, 3)), _gates(p, (0, 2, 1))
        return kernels.lstm(x, h, c, w, r, b, peephole=p, reverse=reverse, **parameters)

    if direction != "bidirectional":
        reverse = _reverse(direction)
        sequence, h, c = run_direction(initial_h, initial_c, weight_ih, weight_hh, bias, peephole, reverse)
        return _sequence_output(sequence, h, output_sequence, reverse), h, c
    forward = run_direction(initial_h[:, :size], initial_c[:, :size], weight_ih, weight_hh, bias, peephole, False)
    backward = run_direction(
        initial_h[:, size:], initial_c[:, size:], weight_ih_back, weight_hh_back, bias_back, peephole_back, True
    )
    sequence, h, c = (np.concatenate(pair, -1) for pair in zip(forward, backward, strict=True))
    return sequence if output_sequence else h[None], h, c
