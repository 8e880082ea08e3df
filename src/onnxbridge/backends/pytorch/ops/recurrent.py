"""Recurrent layers by PyTorch's own kernels. What those do not do is refused here, and goes through the loop over steps."""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.errors import Unsupported

# The blocks of ONNX's weights in the order in which PyTorch has them: LSTM i o f c as i f c o, GRU z r h as r z h.
_LSTM, _GRU, _RNN = (0, 2, 3, 1), (1, 0, 2), (0,)


@rule("LSTM")
def lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    if P is not None or input_forget:
        raise Unsupported("peepholes and coupled gates")
    _plain(direction, activations, ("Sigmoid", "Tanh", "Tanh"), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _LSTM, direction, layout)
    states = layer.state(initial_h), layer.state(initial_c)
    found = torch.lstm(layer.X, states, *layer.rest())
    return layer.sequence(found[0]), layer.last(found[1]), layer.last(found[2])


@rule("GRU")
def gru(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None, activations=None,
    clip=None, direction="forward", hidden_size=None, layout=0, linear_before_reset=0,
):  # fmt: skip
    if not linear_before_reset:
        raise Unsupported("a reset before the product")
    _plain(direction, activations, ("Sigmoid", "Tanh"), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _GRU, direction, layout)
    found = torch.gru(layer.X, layer.state(initial_h), *layer.rest())
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
    _plain(direction, activations, (kind,), sequence_lens, clip)
    layer = _Layer(X, W, R, B, _RNN, direction, layout)
    found = kernels[kind](layer.X, layer.state(initial_h), *layer.rest())
    return layer.sequence(found[0]), layer.last(found[1])


def _plain(direction, activations, expected, sequence_lens, clip):
    """Refuse what PyTorch's kernels do not do."""
    directions = 2 if direction == "bidirectional" else 1
    given = [a.lower() for a in (activations or expected * directions)][: directions * len(expected)]
    if given != [a.lower() for a in expected * directions]:
        raise Unsupported(f"activations {activations}")
    if sequence_lens is not None:
        raise Unsupported("sequences of their own lengths")
    if clip is not None:
        raise Unsupported("a clip")


class _Layer:
    """One layer's input, states and weights as PyTorch takes them, and its results as ONNX has them."""

    def __init__(self, X, W, R, B, order, direction, layout):
        self.both, self.backward, self.batch_first = direction == "bidirectional", direction == "reverse", bool(layout)
        self.directions, self.hidden, self.time = 1 + self.both, R.shape[-1], 1 if layout else 0
        X.assume(W.dtype, [None, None, int(W.known.shape[-1])])
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
        # PyTorch's kernels do not look at the sizes of states, and would read behind the end of smaller ones.
        return (initial.transpose(0, 1) if self.batch_first else initial).expand(shape)

    def rest(self):
        """The kernels' other arguments: weights, biased, layers, dropout, training, bidirectional, batch first."""
        return self.weights, self.biased, 1, 0.0, False, self.both, self.batch_first

    def sequence(self, y):
        y = torch.flip(y, [self.time]) if self.backward else y
        if not self.both:
            return y.unsqueeze(2 if self.batch_first else 1)
        y = y.unflatten(-1, (self.directions, self.hidden))
        return y if self.batch_first else y.transpose(1, 2)

    def last(self, state):
        return state.transpose(0, 1) if self.batch_first else state
