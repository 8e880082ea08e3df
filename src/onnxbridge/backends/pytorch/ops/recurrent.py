"""Recurrent layers by PyTorch's kernels. Cases they do not support raise Unsupported and are decomposed into a loop over time."""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.errors import Unsupported

# The order of ONNX's weight blocks in PyTorch: LSTM iofc becomes ifco, GRU zrh becomes rzh.
_LSTM, _GRU, _RNN = (0, 2, 3, 1), (1, 0, 2), (0,)


@rule("LSTM")
def lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    if P is not None or input_forget:
        raise Unsupported("peepholes (P) or input_forget")
    _check_supported(direction, activations, ("Sigmoid", "Tanh", "Tanh"), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _LSTM, direction, layout)
    states = layer.state(initial_h), layer.state(initial_c)
    found = torch.lstm(layer.X, states, *layer.other_arguments())
    return layer.sequence(found[0]), layer.last(found[1]), layer.last(found[2])


@rule("GRU")
def gru(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None, activations=None,
    clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    if not linear_before_reset:
        raise Unsupported("linear_before_reset=0")
    _check_supported(direction, activations, ("Sigmoid", "Tanh"), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _GRU, direction, layout)
    found = torch.gru(layer.X, layer.state(initial_h), *layer.other_arguments())
    return layer.sequence(found[0]), layer.last(found[1])


@rule("RNN")
def rnn(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=("Tanh", "Tanh"), clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    kernels = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}
    kind = activations[0].lower()
    if kind not in kernels:
        raise Unsupported(f"activation {activations[0]!r}")
    _check_supported(direction, activations, (kind,), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _RNN, direction, layout)
    found = kernels[kind](layer.X, layer.state(initial_h), *layer.other_arguments())
    return layer.sequence(found[0]), layer.last(found[1])


def _check_supported(direction, activations, expected, sequence_lens, clip):
    """Raise Unsupported for what PyTorch's kernels do not support."""
    directions = 2 if direction == "bidirectional" else 1
    names = [a.lower() for a in (activations or expected * directions)][: directions * len(expected)]
    if names != [a.lower() for a in expected * directions]:
        raise Unsupported(f"activations {activations}")
    if sequence_lens is not None:
        raise Unsupported("sequence_lens")
    if clip is not None:
        raise Unsupported("clip")


class _Layer:
    """One layer's input, states and weights in PyTorch's layout, and its results in ONNX's."""

    def __init__(self, X, W, R, B, order, direction, layout):
        self.bidirectional, self.backward, self.batch_first = direction == "bidirectional", direction == "reverse", bool(layout)
        self.directions, self.hidden, self.time = 1 + self.bidirectional, R.shape[-1], 1 if layout else 0
        X.assume(W.dtype, [None, None, int(W.fake.shape[-1])])
        self.X = torch.flip(X, [self.time]) if self.backward else X
        self.biased = B is not None
        self.weights = []
        for d in range(self.directions):
            half = len(order) * self.hidden
            blocks = [W[d], R[d]] + ([B[d][:half], B[d][half:]] if self.biased else [])
            self.weights += [self._ordered(b, order) for b in blocks]

    def _ordered(self, blocks, order):
        if len(order) == 1:
            return blocks
        return torch.cat([blocks[i * self.hidden : (i + 1) * self.hidden] for i in order])

    def state(self, initial):
        shape = (self.directions, self.X.shape[1 - self.time], self.hidden)
        if initial is None:
            return self.X.new_zeros(shape)
        # PyTorch's kernels do not check the sizes of states and would read out of bounds.
        return (initial.transpose(0, 1) if self.batch_first else initial).expand(shape)

    def other_arguments(self):
        """The kernels' other arguments: weights, biases, layers, dropout, training, bidirectional, batch_first."""
        return self.weights, self.biased, 1, 0.0, False, self.bidirectional, self.batch_first

    def sequence(self, y):
        y = torch.flip(y, [self.time]) if self.backward else y
        if not self.bidirectional:
            return y.unsqueeze(2 if self.batch_first else 1)
        y = y.unflatten(-1, (self.directions, self.hidden))
        return y if self.batch_first else y.transpose(1, 2)

    def last(self, state):
        return state.transpose(0, 1) if self.batch_first else state
