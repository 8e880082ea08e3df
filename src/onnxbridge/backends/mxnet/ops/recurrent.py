"""Recurrent layers. MXNet takes the weights of a layer as one vector."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import fixed, permuted, rank, zeros
from onnxbridge.errors import Unsupported

# ONNX's gate order (input, output, forget, cell; update, reset, new) permuted to MXNet's
ORDER = {"lstm": [0, 2, 3, 1], "gru": [1, 0, 2], "rnn_tanh": [0], "rnn_relu": [0]}
DEFAULT_ACTIVATIONS = {
    "lstm": ("Sigmoid", "Tanh", "Tanh"),
    "gru": ("Sigmoid", "Tanh"),
    "rnn_tanh": ("Tanh",),
    "rnn_relu": ("Relu",),
}


def _vector(sym, order, size, directions, W, R, B):
    """The weights of a layer as the vector that MXNet takes: kernels of all directions, then biases, with gates in its order."""
    kernels = [part for pair in zip(*(_parts(sym, v, order, size, directions) for v in (W, R)), strict=True) for part in pair]
    if B is None:
        biases = [sym.literal(np.zeros(2 * directions * len(order) * size, W.dtype))]
    else:
        biases = _parts(sym, B, order, size, directions)
    return sym._rnn_param_concat(*kernels, *biases, dim=0)


def _parts(sym, weight, order, size, directions):
    """The vectors of a weight's directions, kernels of the input or of the state, or biases of both."""
    if weight.array is None:
        return [_computed_part(sym, weight, order, size, d) for d in range(directions)]
    array = np.asarray(weight.array)
    gates = array.reshape(directions, -1, len(order), size, *array.shape[2:])[:, :, order]
    names, trained = weight.constant.parts, weight.constant.trained
    if len(names) == gates.shape[0] * gates.shape[1]:  # the source's own parameters
        own = gates.reshape(len(names), len(order) * size, *array.shape[2:])
        return [sym.Reshape(sym.constant(a, name, trained), shape=(-1,)) for a, name in zip(own, names, strict=True)]
    whole = sym.constant(np.ascontiguousarray(gates).reshape(array.shape), weight.constant.name, trained)
    if array.ndim == 2 or directions == 1:
        return [sym.Reshape(whole, shape=(-1,))]
    return [sym.Reshape(sym.slice_axis(whole, axis=0, begin=d, end=d + 1), shape=(-1,)) for d in range(directions)]


def _computed_part(sym, weight, order, size, direction):
    """The vector of one direction of a weight that is only known at run time."""
    own = sym.slice_axis(weight, axis=0, begin=direction, end=direction + 1)
    part = sym.Reshape(own, shape=(-1,) if rank(weight) == 2 else (-3, -2))
    count = 2 * len(order) if rank(weight) == 2 else len(order)
    rows = [half + g for half in range(0, count, len(order)) for g in order]
    gates = [sym.Reshape(sym.slice_axis(part, axis=0, begin=g * size, end=(g + 1) * size), shape=(-1,)) for g in rows]
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
    x = permuted(sym, x, (1, 0, 2)) if layout else x
    x = sym.reverse(x, axis=(0,)) if direction == "reverse" else x
    vector = _vector(sym, order, size, directions, W, R, B)
    initial_states = []
    for state in states:
        if state is not None:
            initial_states.append(sym.transpose(state, axes=(1, 0, 2)) if layout else state)
        else:
            initial_states.append(zeros(sym, (directions, batch, size), W.dtype))
    y, *last = sym.RNN(
        x, vector, *initial_states, mode=mode, state_size=size, num_layers=1, bidirectional=directions == 2, state_outputs=True,
        outputs=1 + len(states),
    )  # fmt: skip
    y = sym.reverse(y, axis=(0,)) if direction == "reverse" else y
    y = permuted(sym, sym.Reshape(y, shape=(0, 0, directions, size)), (1, 0, 2, 3) if layout else (0, 2, 1, 3))
    return y, *(sym.transpose(v, axes=(1, 0, 2)) if layout else v for v in last)


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
