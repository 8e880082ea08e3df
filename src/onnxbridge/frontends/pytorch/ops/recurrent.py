"""LSTM, GRU and RNN layers as ONNX operators, with the weights in ONNX's gate order."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.fold import constant_array

# ONNX's gate order as indices into PyTorch's: input output forget cell; update reset hidden
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def reorder_gates(op, weight, kind):
    """A stacked weight or bias in ONNX's gate order, with a leading axis for directions."""
    order = _ORDER[kind]
    known = constant_array(weight)
    if known is not None:
        parts = np.split(known, len(order))
        return np.concatenate([parts[i] for i in order])[None]
    if len(order) == 1:
        return op.Unsqueeze(weight, [0])
    parts = op.Split(weight, axis=0, num_outputs=len(order), outputs=len(order))
    return op.Unsqueeze(op.Concat(*[parts[i] for i in order], axis=0), [0])


def concat(op, parts, axis=0):
    """Concatenate arrays or values."""
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.concatenate(parts, axis)
    parts = [op.constant(p) for p in parts]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


def weights_of(op, params, has_biases, kind):
    """W, R and B of one layer, from the parameters of its directions."""
    w, r, b = [], [], []
    for p in params:
        w.append(reorder_gates(op, p[0], kind))
        r.append(reorder_gates(op, p[1], kind))
        if has_biases:
            b.append(concat(op, [reorder_gates(op, p[2], kind), reorder_gates(op, p[3], kind)], axis=1))
    kernels, recurrent = (_parameter(op, concat(op, x), [p[i] for p in params]) for i, x in enumerate((w, r)))
    return kernels, recurrent, _parameter(op, concat(op, b), [v for p in params for v in p[2:4]]) if b else None


def _parameter(op, array, parts):
    """A weight that records which parameters it is made of, and is not merged with an equal one."""
    named = isinstance(array, np.ndarray) and all(isinstance(p, ir.Value) and p.name and p.const_value is not None for p in parts)
    if not named or any(provenance.state_of(part.const_value) != "parameter" for part in parts):
        return array
    tensor = ir.tensor(array)
    provenance.set_parts(tensor, [part.name for part in parts])
    return op.constant(tensor)


def recurrent_layers(op, kind, input, states, params, has_biases, num_layers, bidirectional, batch_first, lengths=None, **attrs):
    """The output and the final states of stacked layers, in PyTorch's layout. `lengths` are the sequence lengths."""
    directions = 2 if bidirectional else 1
    per_direction = 4 if has_biases else 2
    single = len(input.shape) == 2
    x = op.Unsqueeze(input, [0 if batch_first else 1]) if single else input
    states = [op.Unsqueeze(s, [1]) if single else s for s in states]
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    hidden = params[1].shape[-1]
    ends = [[] for _ in states]
    for layer in range(num_layers):
        first = layer * directions * per_direction
        direction_params = [params[first + d * per_direction : first + (d + 1) * per_direction] for d in range(directions)]
        w, r, b = weights_of(op, direction_params, has_biases, kind)
        start = [_part(op, s, layer * directions, directions, num_layers) for s in states]
        y, *last = op.call(
            kind, x, w, r, b, lengths, *start, hidden_size=hidden, outputs=1 + len(states),
            direction="bidirectional" if bidirectional else None, **attrs,
        )  # fmt: skip
        if not bidirectional:
            x = op.Squeeze(y, [1])
        else:
            x = op.reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [op.size(y, 0), op.size(y, 2), 2 * hidden])
        for end, value in zip(ends, last, strict=True):
            end.append(value)
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    stacked = [e[0] if len(e) == 1 else op.Concat(*e, axis=0) for e in ends]
    if single:
        x, stacked = op.Squeeze(x, [0 if batch_first else 1]), [op.Squeeze(s, [1]) for s in stacked]
    return (x, *stacked)


def projected_lstm(op, input, hx, params, has_biases, num_layers, bidirectional, batch_first):
    """An LSTM with projected state (proj_size), which ONNX lacks, as a Scan over time."""
    directions, per_direction = 2 if bidirectional else 1, 5 if has_biases else 3
    single = len(input.shape) == 2
    x = op.Unsqueeze(input, [0 if batch_first else 1]) if single else input
    states = [op.Unsqueeze(s, [1]) if single else s for s in hx]
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    ends = [[], []]
    for layer in range(num_layers):
        found = []
        for direction in range(directions):
            at = layer * directions + direction
            start = [op.Gather(s, np.int64(at), axis=0) for s in states]
            y, *last = _projected_direction(op, x, start, params[at * per_direction : (at + 1) * per_direction], direction)
            found.append(y)
            for end, value in zip(ends, last, strict=True):
                end.append(op.Unsqueeze(value, [0]))
        x = found[0] if len(found) == 1 else op.Concat(*found, axis=-1)
    x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    stacked = [e[0] if len(e) == 1 else op.Concat(*e, axis=0) for e in ends]
    if single:
        x, stacked = op.Squeeze(x, [0 if batch_first else 1]), [op.Squeeze(s, [1]) for s in stacked]
    return (x, *stacked)


def _projected_direction(op, x, start, weights, direction):
    """One direction of one layer: all outputs, and the final state."""
    w_ih, w_hh, *biases, w_hr = weights
    gate_inputs = op.MatMul(x, op.Transpose(w_ih, perm=[1, 0]))
    for b in biases:
        gate_inputs = op.Add(gate_inputs, b)
    recurrent_weight, projection = (op.Transpose(w, perm=[1, 0]) for w in (w_hh, w_hr))

    def step(h, c, gate_input):
        i, f, g, o = op.Split(op.Add(gate_input, op.MatMul(h, recurrent_weight)), axis=-1, num_outputs=4, outputs=4)
        c = op.Add(op.Mul(op.Sigmoid(f), c), op.Mul(op.Sigmoid(i), op.Tanh(g)))
        h = op.MatMul(op.Mul(op.Sigmoid(o), op.Tanh(c)), projection)
        return h, c, h

    h, c, y = op.Scan(
        *start, gate_inputs, body=step, num_scan_inputs=1, scan_input_directions=[direction] if direction else None,
        scan_output_directions=[direction] if direction else None, outputs=3,
    )  # fmt: skip
    return y, h, c


def _part(op, state, start, count, num_layers):
    if num_layers == 1:
        return state
    return op.Slice(state, [start], [start + count], [0])


def check_dropout(dropout, train, num_layers):
    if train and dropout and num_layers > 1:
        raise Unsupported("dropout is active", "call eval() before exporting")


@rule("aten::lstm.input")
def lstm(op, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    check_dropout(dropout, train, num_layers)
    if len(params) == (5 if has_biases else 3) * num_layers * (2 if bidirectional else 1):
        return projected_lstm(op, input, hx, params, has_biases, num_layers, bidirectional, batch_first)
    return recurrent_layers(op, "LSTM", input, hx, params, has_biases, num_layers, bidirectional, batch_first)


@rule("aten::gru.input")
def gru(op, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    check_dropout(dropout, train, num_layers)
    more = {"linear_before_reset": 1}
    return recurrent_layers(op, "GRU", input, [hx], params, has_biases, num_layers, bidirectional, batch_first, **more)


def _rnn_rule(activation):
    def lower(op, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
        check_dropout(dropout, train, num_layers)
        names = [activation] * (2 if bidirectional else 1)
        return recurrent_layers(
            op, "RNN", input, [hx], params, has_biases, num_layers, bidirectional, batch_first, activations=names
        )

    return lower


rule("aten::rnn_tanh.input")(_rnn_rule("Tanh"))
rule("aten::rnn_relu.input")(_rnn_rule("Relu"))


def _gate_inputs(op, input, hidden, w_ih, w_hh, b_ih, b_hh):
    """The products of a cell's weights with its input and with its state."""
    return op.Gemm(input, w_ih, b_ih, transB=1), op.Gemm(hidden, w_hh, b_hh, transB=1)


@rule("aten::lstm_cell")
def lstm_cell(op, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    both = op.Add(*_gate_inputs(op, input, hx[0], w_ih, w_hh, b_ih, b_hh))
    i, f, g, o = op.Split(both, axis=1, num_outputs=4, outputs=4)
    c = op.Add(op.Mul(op.Sigmoid(f), hx[1]), op.Mul(op.Sigmoid(i), op.Tanh(g)))
    return op.Mul(op.Sigmoid(o), op.Tanh(c)), c


@rule("aten::gru_cell")
def gru_cell(op, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    gate_inputs, state_gates = (
        op.Split(x, axis=1, num_outputs=3, outputs=3) for x in _gate_inputs(op, input, hx, w_ih, w_hh, b_ih, b_hh)
    )
    reset, update = (op.Sigmoid(op.Add(a, b)) for a, b in zip(gate_inputs[:2], state_gates[:2], strict=True))
    new = op.Tanh(op.Add(gate_inputs[2], op.Mul(reset, state_gates[2])))
    return op.Add(new, op.Mul(update, op.Sub(hx, new)))


def _rnn_cell_rule(activation):
    def lower(op, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
        return op.call(activation, op.Add(*_gate_inputs(op, input, hx, w_ih, w_hh, b_ih, b_hh)))

    return lower


rule("aten::rnn_tanh_cell")(_rnn_cell_rule("Tanh"))
rule("aten::rnn_relu_cell")(_rnn_cell_rule("Relu"))
