"""Losses that are computed in inference."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.ir.values import cast, static_shape

INT64 = ir.DataType.INT64


@rule("CTCLoss", "ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss")
def ctc_loss(
    op, data, label, data_lengths=None, label_lengths=None, *, use_data_lengths=False, use_label_lengths=False,
    blank_label="first",
):  # fmt: skip
    """The negative logarithm of the probability of the labels [batch, labels], from scores [time, batch, classes].

    Labels end at the first 0 (blank first) or -1 (blank last), unless their lengths are inputs. The recursion is over the labels
    with blanks between them: each can follow itself, the one before it, and, over a blank, the label before that if it differs.
    """
    time, batch, classes = static_shape(data)
    (count,) = static_shape(label, [1])
    states = 2 * count + 1
    if use_label_lengths and not use_data_lengths and label_lengths is None:
        data_lengths, label_lengths = None, data_lengths  # inputs that are not used are not in the symbol
    log = op.LogSoftmax(data, axis=2)
    label = cast(op, label, INT64)
    blank, padding = (0, 0) if blank_label == "first" else (classes - 1, -1)
    if use_label_lengths:
        lengths = op.Unsqueeze(cast(op, label_lengths, INT64), [1])
    else:
        ended = op.CumSum(op.Cast(op.Equal(label, padding), to=INT64), op.constant(np.int64(1)))
        lengths = op.ReduceSum(op.Cast(op.Equal(ended, 0), to=INT64), [1], keepdims=1)
    real = op.Less(np.arange(count)[None], lengths)
    label = op.Where(real, label, blank)
    blanks = op.constant(np.full((batch, count, 1), blank, np.int64))
    pairs = op.Reshape(op.Concat(blanks, op.Unsqueeze(label, [2]), axis=2), [batch, 2 * count])
    path = op.Concat(pairs, op.constant(np.full((batch, 1), blank, np.int64)), axis=1)
    minus = op.constant(np.array(-1e30, data.dtype.numpy()))
    before = op.Slice(op.Concat(op.constant(np.full((batch, 2), -2, np.int64)), path, axis=1), [0], [states], [1])
    skips = op.And(op.Not(op.Equal(path, before)), op.Not(op.Equal(path, blank)))
    emitted = op.GatherElements(log, op.Expand(op.Unsqueeze(path, [0]), [time, 1, 1]), axis=2)
    start = op.Where(np.arange(states)[None] < 2, op.Gather(emitted, np.int64(0), axis=0), minus)
    steps = cast(op, data_lengths, INT64) if use_data_lengths else op.constant(np.full(batch, time, np.int64))
    steps = op.Unsqueeze(steps, [1])
    edge = op.Expand(minus, [batch, 2])

    def body(i, going, alpha):
        shifted = op.Concat(edge, alpha, axis=1)
        one = op.Slice(shifted, [1], [states + 1], [1])
        two = op.Where(skips, op.Slice(shifted, [0], [states], [1]), minus)
        reached = op.ReduceLogSumExp(op.Concat(*(op.Unsqueeze(v, [2]) for v in (alpha, one, two)), axis=2), [2], keepdims=0)
        now = op.Add(i, 1)
        follow = op.Add(reached, op.Gather(emitted, now, axis=0))
        return op.Identity(going), op.Where(op.Less(now, steps), op.Max(follow, minus), alpha)

    alpha = op.Loop(np.int64(time - 1), op.constant(np.True_), start, body=body)
    ends = op.Concat(op.Max(op.Sub(op.Mul(lengths, 2), 1), 0), op.Mul(lengths, 2), axis=1)
    last = op.GatherElements(alpha, ends, axis=1)
    empty = op.And(op.Equal(lengths, 0), np.array([[True, False]]))
    return op.Neg(op.ReduceLogSumExp(op.Where(empty, minus, last), [1], keepdims=0))
