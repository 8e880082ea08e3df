"""Fused recurrent cells and layers of TensorFlow 1. Their weights multiply the input and the previous output side by side."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import MOST
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import zero
from onnxbridge.rules import Outputs

_V1 = (0, 2, 1, 3)
"""Where the input, forget, cell and output gates are in the weights: the order of the cell and of the first layer."""
_V2 = (0, 1, 2, 3)


def _lstm_step(op, x, cs_prev, h_prev, w, peepholes, b, forget_bias, cell_clip, order):
    """One step: the gates i, the state cs, f, o, ci and the outputs co and h."""
    gates = op.Add(op.MatMul(op.Concat(x, h_prev, axis=-1), w), b)
    parts = op.Split(gates, axis=-1, num_outputs=4, outputs=4)
    i, f, ci, o = (parts[k] for k in order)
    f = op.Add(f, float(forget_bias)) if forget_bias else f
    if peepholes is not None:
        i, f = (op.Add(gate, op.Mul(cs_prev, p)) for gate, p in zip((i, f), peepholes[:2], strict=True))
    i, f, ci = op.Sigmoid(i), op.Sigmoid(f), op.Tanh(ci)
    cs = op.Add(op.Mul(ci, i), op.Mul(cs_prev, f))
    cs = op.Clip(cs, -float(cell_clip), float(cell_clip)) if cell_clip > 0 else cs
    o = op.Sigmoid(o if peepholes is None else op.Add(o, op.Mul(cs, peepholes[2])))
    co = op.Tanh(cs)
    return i, cs, f, o, ci, co, op.Mul(co, o)


@rule("LSTMBlockCell")
def lstm_block_cell(
    op, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, forget_bias=1.0, cell_clip=3.0, use_peephole=False
):
    peepholes = (wci, wcf, wco) if use_peephole else None
    return _lstm_step(op, x, cs_prev, h_prev, w, peepholes, b, forget_bias, cell_clip, _V1)


def _onnx_lstm(op, x, cs_prev, h_prev, w, peepholes, b, forget_bias, order):
    """The outputs h of all steps, by ONNX's LSTM, whose gates are i, o, f, ci."""
    width = w.shape[1] // 4
    blocks = [order[k] for k in (0, 3, 1, 2)]
    columns = np.concatenate([np.arange(k * width, (k + 1) * width) for k in blocks])
    weights = op.Transpose(op.Gather(w, columns, axis=1), perm=[1, 0])
    channels = op.size(x, 2)
    both = [op.Unsqueeze(op.Slice(weights, *ends, [1]), [0]) for ends in (([0], [channels]), ([channels], [MOST]))]
    bias = op.Add(op.Gather(b, columns, axis=0), np.repeat(np.float32([0, 0, forget_bias, 0]), width))
    bias = op.Unsqueeze(op.Concat(bias, np.zeros(4 * width, np.float32), axis=0), [0])
    p = None if peepholes is None else op.Unsqueeze(op.Concat(*(peepholes[k] for k in (0, 2, 1)), axis=0), [0])
    states = (op.Unsqueeze(v, [0]) for v in (h_prev, cs_prev))
    return op.Squeeze(op.LSTM(x, *both, bias, None, *states, p, hidden_size=width), [1])


def _lstm(op, seq_len_max, x, cs_prev, h_prev, w, peepholes, b, forget_bias, cell_clip, order, outputs):
    """All steps of an input [time, batch, channels]; what is after the longest sequence is 0."""
    only_h = not any(outputs[:-1]) and isinstance(op.size(x, 2), int) and isinstance(w.shape[1], int)

    def body(iteration, condition, cs, h):
        step = _lstm_step(op, op.Gather(x, iteration, axis=0), cs, h, w, peepholes, b, forget_bias, cell_clip, order)
        return condition, step[1], step[-1], *step

    steps = op.size(x, 0)
    if only_h and cell_clip <= 0 and x.dtype == ir.DataType.FLOAT:
        results = [_onnx_lstm(op, x, cs_prev, h_prev, w, peepholes, b, forget_bias, order)] * len(outputs)
    else:
        _, _, *results = op.Loop(sizes.scalar(op, steps), True, cs_prev, h_prev, body=body, outputs=9)
    [count] = sizes.elements(op, seq_len_max, 1)
    if isinstance(count, int) and isinstance(steps, int) and count >= steps:
        return tuple(results)
    inside = op.Reshape(op.Less(arange(op, steps), count), [-1, 1, 1])
    return tuple(op.Where(inside, r, zero(r.dtype)) if used else None for used, r in zip(outputs, results, strict=True))


@rule("BlockLSTM")
def block_lstm(
    op, seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, forget_bias=1.0, cell_clip=3.0, use_peephole=False,
    outputs: Outputs,
):  # fmt: skip
    peepholes = (wci, wcf, wco) if use_peephole else None
    return _lstm(op, seq_len_max, x, cs_prev, h_prev, w, peepholes, b, forget_bias, cell_clip, _V1, outputs)


@rule("BlockLSTMV2")
def block_lstm_v2(
    op, seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, cell_clip=0.0, use_peephole=False, outputs: Outputs
):
    peepholes = (wci, wcf, wco) if use_peephole else None
    return _lstm(op, seq_len_max, x, cs_prev, h_prev, w, peepholes, b, 0.0, cell_clip, _V2, outputs)


@rule("GRUBlockCell")
def gru_block_cell(op, x, h_prev, w_ru, w_c, b_ru, b_c):
    """The gates r and u, the candidate c and the output h."""
    gates = op.Sigmoid(op.Add(op.MatMul(op.Concat(x, h_prev, axis=-1), w_ru), b_ru))
    r, u = op.Split(gates, axis=-1, num_outputs=2, outputs=2)
    c = op.Tanh(op.Add(op.MatMul(op.Concat(x, op.Mul(h_prev, r), axis=-1), w_c), b_c))
    return r, u, c, op.Add(op.Mul(op.Sub(1.0, u), c), op.Mul(u, h_prev))
