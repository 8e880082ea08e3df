"""Recurrent layers by MIL's own, for constant weights; other cases go step by step, by their expansion."""

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.element_types import like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import broadcast, reshaped, size
from onnxbridge.errors import Unsupported


def _weights(W, R, B, lengths, activations, standard, clip):
    if any(v is not None and v.val is None for v in (W, R, B)):
        raise Unsupported("weights that are computed")
    if lengths is not None:
        raise Unsupported("sequences of different lengths")
    if clip is not None:
        raise Unsupported("clip, which MIL applies elsewhere")
    if activations is not None and [a.lower() for a in activations] != list(standard):
        raise Unsupported(f"the activations {', '.join(activations)}")
    w, r = np.asarray(W.val), np.asarray(R.val)
    b = np.zeros((w.shape[0], 2 * w.shape[1]), w.dtype) if B is None else np.asarray(B.val)
    return w, r, b[:, : w.shape[1]] + b[:, w.shape[1] :]


def _mil_order(v):
    """Stacked gates, from ONNX's input, output, forget, cell in MIL's input, forget, output, cell."""
    parts = np.split(v, 4)
    return np.concatenate([parts[i] for i in (0, 2, 1, 3)])


def _state(state, x, ways, hidden, layout):
    """An initial state as MIL takes it: (batch, ways * hidden)."""
    if state is None:
        zeros = mb.const(val=like(x, np.zeros((1, ways * hidden))))
        return broadcast(zeros, [size(x, 1), ways * hidden])
    if layout:
        return mb.reshape(x=state, shape=[-1, ways * hidden])
    return mb.reshape(x=mb.transpose(x=state, perm=[1, 0, 2]), shape=[-1, ways * hidden])


def _laid_out(sequence, states, ways, hidden, layout):
    """As ONNX has it: Y (steps, ways, batch, hidden) and the last states (ways, batch, hidden), or the batch first."""
    steps, batch = size(sequence, 0), size(sequence, 1)
    y = reshaped(sequence, [steps, batch, ways, hidden])
    y = mb.transpose(x=y, perm=[1, 0, 2, 3] if layout else [0, 2, 1, 3])
    last = [reshaped(s, [batch, ways, hidden]) for s in states]
    return (y, *(s if layout else mb.transpose(x=s, perm=[1, 0, 2]) for s in last))


@rule("LSTM", limits="natively with constant weights, the usual activations and neither clip nor peepholes of its own")
def lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    ways = 2 if direction == "bidirectional" else 1
    if input_forget or P is not None:
        raise Unsupported("peepholes or a coupled forget gate")
    w, r, b = _weights(W, R, B, sequence_lens, activations, ("sigmoid", "tanh", "tanh") * ways, clip)
    x = mb.transpose(x=X, perm=[1, 0, 2]) if layout else X
    hidden = r.shape[2]
    given = {"weight_ih": _mil_order(w[0]), "weight_hh": _mil_order(r[0]), "bias": _mil_order(b[0])}
    if ways == 2:
        given |= {"weight_ih_back": _mil_order(w[1]), "weight_hh_back": _mil_order(r[1]), "bias_back": _mil_order(b[1])}
    h, c = (_state(s, x, ways, hidden, layout) for s in (initial_h, initial_c))
    sequence, h, c = mb.lstm(x=x, initial_h=h, initial_c=c, direction=direction, output_sequence=True, **given)
    if direction == "reverse":
        sequence = mb.reverse(x=sequence, axes=[0])
    return _laid_out(sequence, (h, c), ways, hidden, layout)


@rule("RNN", limits="natively with constant weights, tanh or relu, and no clip")
def rnn(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=("Tanh", "Tanh"), clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    """MIL has no second direction in one layer, so each is a layer of its own."""
    ways = ("forward", "reverse") if direction == "bidirectional" else (direction,)
    kinds = [kind.lower() for kind in activations[: len(ways)]]
    usual = [kind if kind in ("tanh", "relu") else "tanh" for kind in kinds]
    w, r, b = _weights(W, R, B, sequence_lens, activations[: len(ways)], usual, clip)
    x = mb.transpose(x=X, perm=[1, 0, 2]) if layout else X
    hidden = r.shape[2]
    state = _state(initial_h, x, len(ways), hidden, layout)
    starts = mb.split(x=state, num_splits=2, axis=1) if len(ways) == 2 else [state]
    found = []
    for i, (way, start) in enumerate(zip(ways, starts, strict=True)):
        sequence, last = mb.rnn(
            x=x, initial_h=start, weight_ih=w[i], weight_hh=r[i], bias=b[i], direction=way, output_sequence=True,
            activation=kinds[i],
        )  # fmt: skip
        found.append((mb.reverse(x=sequence, axes=[0]) if way == "reverse" else sequence, last))
    sequences, lasts = (list(v) for v in zip(*found, strict=True))
    sequence = mb.concat(values=sequences, axis=2) if len(ways) == 2 else sequences[0]
    last = mb.concat(values=lasts, axis=1) if len(ways) == 2 else lasts[0]
    return _laid_out(sequence, (last,), len(ways), hidden, layout)
