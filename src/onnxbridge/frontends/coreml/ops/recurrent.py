"""Recurrent layers over a sequence (steps, batch, features)."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.ops.cells import clipped
from onnxbridge.frontends.coreml.ops.shape import flipped
from onnxbridge.rules import Array, Bool, Str

# MIL's activations as ONNX's names with alpha and beta; Apple's own tests expect these constants, which MIL does not document.
ACTIVATIONS = {
    "tanh": ("Tanh", 0, 0), "scaled_tanh": ("Tanh", 0, 0), "sigmoid": ("Sigmoid", 0, 0), "relu": ("Relu", 0, 0),
    "hard_sigmoid": ("HardSigmoid", 0.2, 0.5), "sigmoid_hard": ("HardSigmoid", 0.2, 0.5), "linear": ("Affine", 1, 0),
}  # fmt: skip
TAKES = {"HardSigmoid": 2, "Affine": 2}


def _activations(names, ways):
    """The attributes that say which activations a layer has; alpha and beta are listed for those that take them."""
    unknown = [n for n in names if n not in ACTIVATIONS]
    if unknown:
        raise Unsupported(f"the activation {unknown[0]}")
    found = [ACTIVATIONS[n] for n in names] * ways
    takes = [f for f in found if f[0] in TAKES]
    return {
        "activations": [f[0] for f in found],
        "activation_alpha": [float(f[1]) for f in takes] or None,
        "activation_beta": [float(f[2]) for f in takes] or None,
    }


def _gates(stacked, order):
    """The gates of a stacked weight or bias in ONNX's order."""
    parts = np.split(stacked, len(order))
    return np.concatenate([parts[i] for i in order])


def _weights(op, ways, order):
    """W, R and B of the directions from (weight_ih, weight_hh, bias of the input, bias of the state) of each."""
    w, r = (np.stack([_gates(way[i], order) for way in ways]) for i in (0, 1))
    zeros = np.zeros(r.shape[1], r.dtype)
    b = np.stack([np.concatenate([zeros if v is None else _gates(v, order) for v in way[2:]]) for way in ways])
    return (op.constant(v) for v in (w, r, b))


def _direction(direction):
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Unsupported(f"direction {direction}")
    return direction


def _shown(op, sequence, last, output_sequence, direction):
    """What a layer gives. In reverse the sequence is in the order in which it was computed: the last step comes first."""
    if not output_sequence:
        return op.Unsqueeze(last, [0])
    return flipped(op, sequence, [0]) if direction == "reverse" else sequence


@rule("rnn")
def rnn(
    op, x, initial_h, weight_ih: Array, weight_hh: Array, bias: Array | None = None, direction: Str = "forward",
    output_sequence: Bool = False, activation: Str = "tanh",
):  # fmt: skip
    w, r, b = _weights(op, [(weight_ih, weight_hh, bias, None)], [0])
    y, h = op.RNN(
        x, w, r, b, None, op.Unsqueeze(initial_h, [0]), hidden_size=weight_hh.shape[1], direction=_direction(direction),
        outputs=2, **_activations([activation], 1),
    )  # fmt: skip
    last = op.Squeeze(h, [0])
    return _shown(op, op.Squeeze(y, [1]), last, output_sequence, direction), last


@rule("gru")
def gru(
    op, x, initial_h, weight_ih: Array, weight_hh: Array, bias: Array | None = None, direction: Str = "forward",
    output_sequence: Bool = False, recurrent_activation: Str = "sigmoid", activation: Str = "tanh", reset_after: Bool = False,
    input_bias: Array | None = None,
):  # fmt: skip
    """MIL stacks reset, new, update; `bias` belongs to the hidden state, `input_bias` to the input."""
    w, r, b = _weights(op, [(weight_ih, weight_hh, input_bias, bias)], [2, 0, 1])
    y, h = op.GRU(
        x, w, r, b, None, op.Unsqueeze(initial_h, [0]), hidden_size=weight_hh.shape[1], direction=_direction(direction),
        linear_before_reset=int(reset_after), outputs=2, **_activations([recurrent_activation, activation], 1),
    )  # fmt: skip
    last = op.Squeeze(h, [0])
    return _shown(op, op.Squeeze(y, [1]), last, output_sequence, direction), last


@rule("lstm")
def lstm(
    op, x, initial_h, initial_c, weight_ih: Array, weight_hh: Array, bias: Array | None = None, peephole: Array | None = None,
    weight_ih_back: Array | None = None, weight_hh_back: Array | None = None, bias_back: Array | None = None,
    peephole_back: Array | None = None, direction: Str = "forward", output_sequence: Bool = False,
    recurrent_activation: Str = "sigmoid", cell_activation: Str = "tanh", activation: Str = "tanh", clip: Array | None = None,
):  # fmt: skip
    """MIL stacks input, forget, output, cell. Of both directions the backward one is given at the positions of its steps."""
    names = [recurrent_activation, cell_activation, activation]
    if clip is not None:  # it bounds the cell state, ONNX's attribute of that name what goes into the gates
        _activations(names, 1)
        both = _direction(direction) == "bidirectional"
        sides = [(weight_ih, weight_hh, bias, peephole), (weight_ih_back, weight_hh_back, bias_back, peephole_back)]
        reverse, states = direction == "reverse", (initial_h, initial_c)
        return clipped(op, x, *states, sides[: 1 + both], names, float(clip), reverse=reverse, sequence=output_sequence)
    ways = [(weight_ih, weight_hh, bias, None)]
    if direction == "bidirectional":
        ways.append((weight_ih_back, weight_hh_back, bias_back, None))
    w, r, b = _weights(op, ways, [0, 2, 1, 3])
    size = weight_hh.shape[1]
    states = [_states(op, v, len(ways), size) for v in (initial_h, initial_c)]
    holes = [_gates(p, [0, 2, 1]) for p in (peephole, peephole_back)[: len(ways)] if p is not None]
    functions = _activations(names, len(ways))
    y, *last = op.LSTM(
        x, w, r, b, None, *states, np.stack(holes) if holes else None, hidden_size=size, direction=_direction(direction),
        outputs=3, **functions,
    )  # fmt: skip
    if len(ways) == 1:
        h, c = (op.Squeeze(v, [0]) for v in last)
        return _shown(op, op.Squeeze(y, [1]), h, output_sequence, direction), h, c
    h, c = (op.Reshape(op.Transpose(v, perm=[1, 0, 2]), [0, 2 * size]) for v in last)
    return _shown(op, op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, 2 * size]), h, output_sequence, direction), h, c


def _states(op, state, ways, size):
    """A first state (batch, ways * size) as ONNX has it: (ways, batch, size)."""
    if ways == 1:
        return op.Unsqueeze(state, [0])
    return op.Transpose(op.Reshape(state, [0, ways, size]), perm=[1, 0, 2])
