"""Recurrent layers. MXNet stores the weights of all layers and directions in one vector."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import static_shape

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
# MXNet's gate order (input, forget, cell, output; reset, update, new) permuted to ONNX's
ORDER = {"rnn_relu": [0], "rnn_tanh": [0], "lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}


LENGTHS = "use SequenceMask, SequenceLast and SequenceReverse around the layer, or rnn cells with valid_length"


@rule("RNN", "_npx_rnn", limits="lstm_state_clip_* is not looked at, as in MXNet on a CPU; no use_sequence_length")
def rnn(
    op, data, parameters, *states, state_size, num_layers, bidirectional=False, mode, p=0.0, state_outputs=False,
    projection_size=None, lstm_state_clip_min=None, lstm_state_clip_max=None, lstm_state_clip_nan=False,
    use_sequence_length=False,
):  # fmt: skip
    """`states` are the initial hidden state and, for an LSTM, the initial cell state."""
    if use_sequence_length:
        raise Unsupported("use_sequence_length=True has no effect in MXNet on a CPU", hint=LENGTHS)
    directions = 2 if bidirectional else 1
    hidden, cell = states[0], states[1] if mode == "lstm" else None
    weights = _weights(op, data, parameters, mode, state_size, num_layers, directions, projection_size)
    x, ends = data, []
    for layer in range(num_layers):
        first = [_layer(op, s, layer * directions, directions, num_layers * directions, x) for s in (hidden, cell)]
        if projection_size:
            x, *last = _projected(op, x, weights[layer], first)
        else:
            x, *last = _layer_of(op, mode, x, weights[layer], first, state_size, directions)
        ends.append(last)
    if not state_outputs:
        return x
    return x, *(op.Concat(*[e[i] for e in ends], axis=0) if len(ends) > 1 else ends[0][i] for i in range(1 + (mode == "lstm")))


def _layer(op, state, start, count, total, x):
    """A layer's slice of an initial state, None if it is all zeros."""
    if state is None:
        return None
    known = constant_array(state)
    if known is not None and not known.any():
        return None
    if state.shape[1] == 1 and x.shape[1] != 1:  # one state for the whole batch
        state = op.Expand(state, op.dims([1, op.size(x, 1), 1]))
    return state if count == total else op.Slice(state, [start], [start + count], [0])


def _weights(op, data, parameters, mode, size, layers, directions, projection):
    """For each layer, the input and state kernels, biases and projections, each with directions as the first dimension."""
    gates, out = GATES[mode], projection or size
    (width,) = static_shape(data, [2])
    reader = _Vector(op, parameters)
    read = []
    for layer in range(layers):
        columns = width if layer == 0 else directions * out
        read.append([
            [
                reader.take((gates, size, columns), ORDER[mode]),
                reader.take((gates, size, out), ORDER[mode]),
                reader.take((projection, size)) if projection else None,
            ]
            for _ in range(directions)
        ])  # fmt: skip
    found = []
    for parts in read:
        biases = [[reader.take((gates, size), ORDER[mode]) for _ in range(2)] for _ in range(directions)]
        kernels, recurrences, projections = zip(*parts, strict=True)
        found.append((
            reader.stack(kernels), reader.stack(recurrences), reader.stack([reader.row(b) for b in biases]),
            reader.stack(projections) if projection else None,
        ))  # fmt: skip
    return found


class _Vector:
    """Splits a vector of parameters into matrices, as an array if it is constant, otherwise with nodes."""

    def __init__(self, op, vector):
        self._op, self._vector, self._known, self._at = op, vector, constant_array(vector), 0

    def take(self, shape, order=None):
        """The next elements in this shape, with gates reordered: [gates, rows, columns] to [gates * rows, columns]."""
        count = int(np.prod(shape))
        start, self._at = self._at, self._at + count
        joined = [shape[0] * shape[1], *shape[2:]] if order is not None else list(shape)
        if self._known is not None:
            part = self._known.reshape(-1)[start : start + count].reshape(shape)
            return (part if order is None else part[order]).reshape(joined)
        part = self._op.Reshape(self._op.Slice(self._vector, [start], [start + count], [0]), list(shape))
        return self._op.Reshape(part if order is None else self._op.Gather(part, order, axis=0), joined)

    def row(self, parts):
        return np.concatenate(parts) if self._known is not None else self._op.Concat(*parts, axis=0)

    def stack(self, parts):
        if self._known is not None:
            return self._op.constant(np.stack(parts))
        return self._op.Concat(*[self._op.Unsqueeze(p, [0]) for p in parts], axis=0)


def _layer_of(op, mode, x, weights, first, size, directions):
    """One layer as an ONNX operator: the concatenated outputs of both directions, and the final states."""
    kernel, recurrence, bias, _ = weights
    direction = "bidirectional" if directions == 2 else "forward"
    shared = {"hidden_size": size, "direction": direction}
    if mode == "lstm":
        y, *last = op.LSTM(x, kernel, recurrence, bias, None, *first, **shared, outputs=3)
    elif mode == "gru":
        y, *last = op.GRU(x, kernel, recurrence, bias, None, first[0], **shared, linear_before_reset=1, outputs=2)
    else:
        activation = ["Relu" if mode == "rnn_relu" else "Tanh"] * directions
        y, *last = op.RNN(x, kernel, recurrence, bias, None, first[0], **shared, activations=activation, outputs=2)
    if directions == 1:
        return op.Squeeze(y, [1]), *last
    return op.Reshape(op.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, directions * size]), *last


def _projected(op, x, weights, first):
    """An LSTM layer with projection, which ONNX's operator does not support, as a loop over time."""
    kernel, recurrence, bias, projection = weights
    directions, width = kernel.shape[0], kernel.shape[1]
    ends, outputs = [], []
    for direction in range(directions):
        w, r, b = (op.Squeeze(op.Slice(v, [direction], [direction + 1], [0]), [0]) for v in (kernel, recurrence, bias))
        both = op.Add(op.Slice(b, [0], [width], [0]), op.Slice(b, [width], [2 * width], [0]))
        inputs = op.Add(op.MatMul(x, op.Transpose(w, perm=[1, 0])), both)
        r = op.Transpose(r, perm=[1, 0])
        out = op.Transpose(op.Squeeze(op.Slice(projection, [direction], [direction + 1], [0]), [0]), perm=[1, 0])
        steps, size = op.size(x, 0), width // 4
        starts = [
            op.Squeeze(op.Slice(s, [direction], [direction + 1], [0]), [0]) if s is not None
            else op.Expand(op.constant(np.zeros((), x.dtype.numpy())), op.dims([op.size(x, 1), n]))
            for s, n in zip(first, (r.shape[0], size), strict=True)
        ]  # fmt: skip

        def step(i, condition, hidden, cell, inputs=inputs, r=r, out=out, steps=steps, direction=direction):
            at = op.Sub(steps - 1 if isinstance(steps, int) else op.Sub(steps, 1), i) if direction else i
            gates = op.Add(op.Gather(inputs, at, axis=0), op.MatMul(hidden, r))
            i_gate, o_gate, f_gate, new = op.Split(gates, axis=-1, num_outputs=4, outputs=4)
            cell = op.Add(op.Mul(op.Sigmoid(f_gate), cell), op.Mul(op.Sigmoid(i_gate), op.Tanh(new)))
            hidden = op.MatMul(op.Mul(op.Sigmoid(o_gate), op.Tanh(cell)), out)
            return op.Identity(condition), hidden, cell, op.Identity(hidden)

        count = op.constant(np.int64(steps)) if isinstance(steps, int) else steps
        hidden, cell, y = op.Loop(count, op.constant(np.bool_(True)), *starts, body=step, outputs=3)
        outputs.append(op.Slice(y, [-1], [np.iinfo(np.int64).min], [0], [-1]) if direction else y)
        ends.append((hidden, cell))
    y = outputs[0] if directions == 1 else op.Concat(*outputs, axis=-1)
    return y, *(op.Concat(*[op.Unsqueeze(e[i], [0]) for e in ends], axis=0) for i in range(2))
