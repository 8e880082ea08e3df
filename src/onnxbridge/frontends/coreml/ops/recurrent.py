"""Recurrent layers over a sequence (steps, batch, features)."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.ops.clipped_lstm import clipped_lstm
from onnxbridge.frontends.coreml.ops.shape import reverse_axes
from onnxbridge.rules import Array, Bool, Str

# ONNX's activation, alpha and beta by MIL's name. MIL does not document these constants, but Apple's tests expect them.
ACTIVATIONS = {
    "tanh": ("Tanh", 0, 0), "scaled_tanh": ("Tanh", 0, 0), "sigmoid": ("Sigmoid", 0, 0), "relu": ("Relu", 0, 0),
    "hard_sigmoid": ("HardSigmoid", 0.2, 0.5), "sigmoid_hard": ("HardSigmoid", 0.2, 0.5), "linear": ("Affine", 1, 0),
}  # fmt: skip
HAS_ALPHA_BETA = {"HardSigmoid": 2, "Affine": 2}


def _activations(names, directions):
    """The activation attributes of a layer; alpha and beta are listed for the activations that have them."""
    unknown = [n for n in names if n not in ACTIVATIONS]
    if unknown:
        raise Unsupported(f"the activation {unknown[0]}")
    activations = [ACTIVATIONS[n] for n in names] * directions
    parametric = [f for f in activations if f[0] in HAS_ALPHA_BETA]
    return {
        "activations": [f[0] for f in activations],
        "activation_alpha": [float(f[1]) for f in parametric] or None,
        "activation_beta": [float(f[2]) for f in parametric] or None,
    }


def _gates(stacked, order):
    """Reorder the gates of a stacked weight or bias to ONNX's order."""
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[i] for i in order])


def _weights(op, directions, order):
    """W, R and B from (weight_ih, weight_hh, input bias, state bias) of each direction."""
    w, r = (np.stack([_gates(weights[i], order) for weights in directions]) for i in (0, 1))
    zeros = np.zeros(r.shape[1], r.dtype)
    b = np.stack([np.concatenate([zeros if v is None else _gates(v, order) for v in weights[2:]]) for weights in directions])
    return (op.constant(v) for v in (w, r, b))


def _check_direction(direction):
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Unsupported(f"direction {direction}")
    return direction


def _sequence_output(op, sequence, last, output_sequence, direction):
    """The first output of a layer. A reverse sequence is in the order of computation: the last step comes first."""
    if not output_sequence:
        return op.Unsqueeze(last, [0])
    return reverse_axes(op, sequence, [0]) if direction == "reverse" else sequence


@rule("rnn")
def rnn(
    op, x, initial_h, weight_ih: Array, weight_hh: Array, bias: Array | None = None, direction: Str = "forward",
    output_sequence: Bool = False, activation: Str = "tanh",
):  # fmt: skip
    w, r, b = _weights(op, [(weight_ih, weight_hh, bias, None)], [0])
    y, h = op.RNN(
        x, w, r, b, None, op.Unsqueeze(initial_h, [0]), hidden_size=weight_hh.shape[1], direction=_check_direction(direction),
        outputs=2, **_activations([activation], 1),
    )  # fmt: skip
    last = op.Squeeze(h, [0])
    return _sequence_output(op, op.Squeeze(y, [1]), last, output_sequence, direction), last


@rule("gru")
def gru(
    op, x, initial_h, weight_ih: Array, weight_hh: Array, bias: Array | None = None, direction: Str = "forward",
    output_sequence: Bool = False, recurrent_activation: Str = "sigmoid", activation: Str = "tanh", reset_after: Bool = False,
    input_bias: Array | None = None,
):  # fmt: skip
    """MIL stacks the gates as reset, new, update; `bias` is for the hidden state, `input_bias` for the input."""
    w, r, b = _weights(op, [(weight_ih, weight_hh, input_bias, bias)], [2, 0, 1])
    y, h = op.GRU(
        x, w, r, b, None, op.Unsqueeze(initial_h, [0]), hidden_size=weight_hh.shape[1], direction=_check_direction(direction),
        linear_before_reset=int(reset_after), outputs=2, **_activations([recurrent_activation, activation], 1),
    )  # fmt: skip
    last = op.Squeeze(h, [0])
    return _sequence_output(op, op.Squeeze(y, [1]), last, output_sequence, direction), last


@rule("lstm")
def lstm(
    op, x, initial_h, initial_c, weight_ih: Array, weight_hh: Array, bias: Array | None = None, peephole: Array | None = None,
    weight_ih_back: Array | None = None, weight_hh_back: Array | None = None, bias_back: Array | None = None,
    peephole_back: Array | None = None, direction: Str = "forward", output_sequence: Bool = False,
    recurrent_activation: Str = "sigmoid", cell_activation: Str = "tanh", activation: Str = "tanh", clip: Array | None = None,
):  # fmt: skip
    """MIL stacks the gates as input, forget, output, cell. A bidirectional layer's backward sequence is in input order."""
    names = [recurrent_activation, cell_activation, activation]
    if clip is not None:  # MIL clips the cell state; ONNX's attribute `clip` applies to the gate inputs
        _activations(names, 1)
        is_bidirectional = _check_direction(direction) == "bidirectional"
        both_weights = [(weight_ih, weight_hh, bias, peephole), (weight_ih_back, weight_hh_back, bias_back, peephole_back)]
        reverse, states = direction == "reverse", (initial_h, initial_c)
        return clipped_lstm(
            op, x, *states, both_weights[: 1 + is_bidirectional], names, float(clip), reverse=reverse, sequence=output_sequence
        )
    directions = [(weight_ih, weight_hh, bias, None)]
    if direction == "bidirectional":
        directions.append((weight_ih_back, weight_hh_back, bias_back, None))
    w, r, b = _weights(op, directions, [0, 2, 1, 3])
    size = weight_hh.shape[1]
    states = [_states(op, v, len(directions), size) for v in (initial_h, initial_c)]
    peepholes = [_gates(p, [0, 2, 1]) for p in (peephole, peephole_back)[: len(directions)] if p is not None]
    functions = _activations(names, len(directions))
    y, *last = op.LSTM(
        x, w, r, b, None, *states, np.stack(peepholes) if peepholes else None, hidden_size=size,
        direction=_check_direction(direction), outputs=3, **functions,
    )  # fmt: skip
    if len(directions) == 1:
        h, c = (op.Squeeze(v, [0]) for v in last)
        return _sequence_output(op, op.Squeeze(y, [1]), h, output_sequence, direction), h, c
    h, c = (op.Reshape(op.Transpose(v, perm=[1, 0, 2]), [0, 2 * size]) for v in last)
    return (
        _sequence_output(op, op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, 2 * size]), h, output_sequence, direction),
        h,
        c,
    )


def _states(op, state, directions, size):
    """Reshape an initial state (batch, ways * size) to ONNX's (ways, batch, size)."""
    if directions == 1:
        return op.Unsqueeze(state, [0])
    return op.Transpose(op.Reshape(state, [0, directions, size]), perm=[1, 0, 2])
