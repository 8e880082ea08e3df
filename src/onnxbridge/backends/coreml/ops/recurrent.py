"""Recurrent layers by MIL's operators, for constant weights; other cases are decomposed to a loop."""

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.element_types import like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import broadcast, reshaped, size
from onnxbridge.errors import Unsupported


def _weights(W, R, B, lengths, activations, expected, clip):
    if any(v is not None and v.val is None for v in (W, R, B)):
        raise Unsupported("weights that are not constant")
    if lengths is not None:
        raise Unsupported("sequences of different lengths")
    if clip is not None:
        raise Unsupported("clip, which MIL defines differently")
    if activations is not None and [a.lower() for a in activations] != list(expected):
        raise Unsupported(f"the activations {', '.join(activations)}")
    w, r = np.asarray(W.val), np.asarray(R.val)
    b = np.zeros((w.shape[0], 2 * w.shape[1]), w.dtype) if B is None else np.asarray(B.val)
    return w, r, b[:, : w.shape[1]] + b[:, w.shape[1] :]


def _mil_order(v):
    """Reorder stacked gates from ONNX's input, output, forget, cell to MIL's input, forget, output, cell."""
    parts = np.split(v, 4)
    return np.concatenate([parts[i] for i in (0, 2, 1, 3)])


def _state(state, x, num_directions, hidden, layout):
    """An initial state in MIL's layout: (batch, ways * hidden)."""
    if state is None:
        zeros = mb.const(val=like(x, np.zeros((1, num_directions * hidden))))
        return broadcast(zeros, [size(x, 1), num_directions * hidden])
    if layout:
        return mb.reshape(x=state, shape=[-1, num_directions * hidden])
    return mb.reshape(x=mb.transpose(x=state, perm=[1, 0, 2]), shape=[-1, num_directions * hidden])


def _to_onnx_layout(sequence, states, num_directions, hidden, layout):
    """Results in ONNX's layout: Y (steps, ways, batch, hidden) and the last states (ways, batch, hidden), or batch first."""
    steps, batch = size(sequence, 0), size(sequence, 1)
    y = reshaped(sequence, [steps, batch, num_directions, hidden])
    y = mb.transpose(x=y, perm=[1, 0, 2, 3] if layout else [0, 2, 1, 3])
    last = [reshaped(s, [batch, num_directions, hidden]) for s in states]
    return (y, *(s if layout else mb.transpose(x=s, perm=[1, 0, 2]) for s in last))


@rule("LSTM", limits="natively with constant weights, default activations, and no clip or peepholes")
def lstm(
    X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, activation_alpha=None, activation_beta=None,
    activations=None, clip=None, direction="forward", hidden_size=None, input_forget=0, layout=0,
):  # fmt: skip
    num_directions = 2 if direction == "bidirectional" else 1
    if input_forget or P is not None:
        raise Unsupported("peepholes or a coupled forget gate")
    w, r, b = _weights(W, R, B, sequence_lens, activations, ("sigmoid", "tanh", "tanh") * num_directions, clip)
    x = mb.transpose(x=X, perm=[1, 0, 2]) if layout else X
    hidden = r.shape[2]
    weights = {"weight_ih": _mil_order(w[0]), "weight_hh": _mil_order(r[0]), "bias": _mil_order(b[0])}
    if num_directions == 2:
        weights |= {"weight_ih_back": _mil_order(w[1]), "weight_hh_back": _mil_order(r[1]), "bias_back": _mil_order(b[1])}
    h, c = (_state(s, x, num_directions, hidden, layout) for s in (initial_h, initial_c))
    sequence, h, c = mb.lstm(x=x, initial_h=h, initial_c=c, direction=direction, output_sequence=True, **weights)
    if direction == "reverse":
        sequence = mb.reverse(x=sequence, axes=[0])
    return _to_onnx_layout(sequence, (h, c), num_directions, hidden, layout)


@rule("RNN", limits="natively with constant weights, tanh or relu, and no clip")
def rnn(
    X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None, activation_beta=None,
    activations=("Tanh", "Tanh"), clip=None, direction="forward", hidden_size=None, layout=0,
):  # fmt: skip
    """MIL's rnn is unidirectional, so each direction is a separate operator."""
    num_directions = ("forward", "reverse") if direction == "bidirectional" else (direction,)
    kinds = [kind.lower() for kind in activations[: len(num_directions)]]
    supported = [kind if kind in ("tanh", "relu") else "tanh" for kind in kinds]
    w, r, b = _weights(W, R, B, sequence_lens, activations[: len(num_directions)], supported, clip)
    x = mb.transpose(x=X, perm=[1, 0, 2]) if layout else X
    hidden = r.shape[2]
    state = _state(initial_h, x, len(num_directions), hidden, layout)
    starts = mb.split(x=state, num_splits=2, axis=1) if len(num_directions) == 2 else [state]
    results = []
    for i, (way, start) in enumerate(zip(num_directions, starts, strict=True)):
        sequence, last = mb.rnn(
            x=x, initial_h=start, weight_ih=w[i], weight_hh=r[i], bias=b[i], direction=way, output_sequence=True,
            activation=kinds[i],
        )  # fmt: skip
        results.append((mb.reverse(x=sequence, axes=[0]) if way == "reverse" else sequence, last))
    sequences, lasts = (list(v) for v in zip(*results, strict=True))
    sequence = mb.concat(values=sequences, axis=2) if len(num_directions) == 2 else sequences[0]
    last = mb.concat(values=lasts, axis=1) if len(num_directions) == 2 else lasts[0]
    return _to_onnx_layout(sequence, (last,), len(num_directions), hidden, layout)
