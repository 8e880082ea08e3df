"""Recurrent layers. MXNet takes the weights of a layer as one vector."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import fixed
from onnxbridge.errors import Unsupported

# ONNX's gate order (input, output, forget, cell; update, reset, new) permuted to MXNet's
ORDER = {"lstm": [0, 2, 3, 1], "gru": [1, 0, 2], "rnn_tanh": [0], "rnn_relu": [0]}
DEFAULT_ACTIVATIONS = {
    "lstm": ("Sigmoid", "Tanh", "Tanh"),
    "gru": ("Sigmoid", "Tanh"),
    "rnn_tanh": ("Tanh",),
    "rnn_relu": ("Relu",),
}


def _rows(sym, x, direction_index, order, size):
    """One direction's kernel or bias as a vector, with gates in MXNet's order."""
    if x.array is not None:
        part = np.asarray(x.array)[direction_index]
        return sym.constant(np.ascontiguousarray(part.reshape(len(order), size, -1)[order]).reshape(-1))
    part = sym.Reshape(sym.slice_axis(x, axis=0, begin=direction_index, end=direction_index + 1), shape=(-3, -2))
    gates = [sym.Reshape(sym.slice_axis(part, axis=0, begin=g * size, end=(g + 1) * size), shape=(-1,)) for g in order]
    return gates[0] if len(gates) == 1 else sym.Concat(*gates, dim=0)


def _layer(sym, mode, x, W, R, B, lengths, states, activations, direction, hidden_size, layout, clip):
    directions = 2 if direction == "bidirectional" else 1
    usual = DEFAULT_ACTIVATIONS[mode] * directions
    if tuple(activations or usual) != usual:
        raise Unsupported(f"MXNet does not support activations={activations}")
    if lengths is not None or clip is not None:
        raise Unsupported("MXNet does not support sequence_lens and clip")
    order = ORDER[mode]
    size = hidden_size or fixed(R, [2])[0]
    batch = x.shape[0 if layout else 1]
    x = sym.transpose(x, axes=(1, 0, 2)) if layout else x
    x = sym.reverse(x, axis=(0,)) if direction == "reverse" else x
    kernels = [_rows(sym, v, direction_index, order, size) for direction_index in range(directions) for v in (W, R)]
    if B is None:
        biases = [np.zeros(2 * directions * len(order) * size, W.dtype)]
    else:
        count = len(order) * size
        halves = [_half(sym, B, i, count) for i in (0, 1)]
        biases = [_rows(sym, h, direction_index, order, size) for direction_index in range(directions) for h in halves]
    vector = sym.Concat(*kernels, *[b if not isinstance(b, np.ndarray) else sym.constant(b) for b in biases], dim=0)
    initial_states = []
    for state in states:
        if state is not None:
            initial_states.append(sym.transpose(state, axes=(1, 0, 2)) if layout else state)
        else:
            if not isinstance(batch, int):
                raise Unsupported("a batch of unknown size without an initial state")
            initial_states.append(sym.constant(np.zeros((directions, batch, size), W.dtype)))
    y, *last = sym.RNN(
        x, vector, *initial_states, mode=mode, state_size=size, num_layers=1, bidirectional=directions == 2, state_outputs=True,
        outputs=1 + len(states),
    )  # fmt: skip
    y = sym.reverse(y, axis=(0,)) if direction == "reverse" else y
    y = sym.transpose(sym.Reshape(y, shape=(0, 0, directions, size)), axes=(1, 0, 2, 3) if layout else (0, 2, 1, 3))
    return y, *(sym.transpose(v, axes=(1, 0, 2)) if layout else v for v in last)


def _half(sym, bias, which, count):
    """The biases of the input or of the state."""
    if bias.array is not None:
        return sym.constant(np.ascontiguousarray(np.asarray(bias.array)[:, which * count : (which + 1) * count]))
    half = sym.slice_axis(bias, axis=1, begin=which * count, end=(which + 1) * count)
    return sym.expand_dims(half, axis=2)


@rule("LSTM")
def lstm(
    sym, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None,
    activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    if P is not None or input_forget:
        raise Unsupported("MXNet does not support peepholes and input_forget")
    states = (initial_h, initial_c)
    return _layer(sym, "lstm", X, W, R, B, sequence_lens, states, activations, direction, hidden_size, layout, clip)


@rule("GRU")
def gru(
    sym, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    """MXNet applies the reset gate to the product with the state, including its bias."""
    if not linear_before_reset:
        raise Unsupported("MXNet does not support linear_before_reset=0")
    return _layer(sym, "gru", X, W, R, B, sequence_lens, (initial_h,), activations, direction, hidden_size, layout, clip)


@rule("RNN")
def rnn(
    sym, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    mode = "rnn_relu" if activations and set(activations) == {"Relu"} else "rnn_tanh"
    return _layer(sym, mode, X, W, R, B, sequence_lens, (initial_h,), activations, direction, hidden_size, layout, clip)
