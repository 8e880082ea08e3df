"""Packed sequences: elements ordered by time step, then by sequence, longest first. ONNX layers take their padded form.

A packed value stores in its meta the padded form (time first), the lengths, the indices of its elements in it, and whether the
padding is zero.
"""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.recurrent import check_dropout, recurrent_layers
from onnxbridge.hub.ir import fold

D = ir.DataType


def _valid_positions(op, time, lengths):
    """The mask of valid elements of [time, batch], and their index pairs in packed order."""
    steps = op.Unsqueeze(op.Range(0, op.constant(time), 1) if isinstance(time, ir.Value) else op.constant(range(time)), [1])
    mask = op.Less(steps, op.Unsqueeze(lengths, [0]))
    return mask, op.Transpose(op.NonZero(mask), perm=[1, 0])


def _pack(op, padded, lengths, positions, is_zero_padded):
    data = op.GatherND(padded, positions)
    data.meta["padded"] = padded, lengths, positions, is_zero_padded
    return data


@rule("aten::_pack_padded_sequence")
def pack_padded_sequence(op, input, lengths, batch_first):
    x = input
    if batch_first:
        x = op.Transpose(input, perm=[1, 0, *range(2, len(input.shape))])
    mask, positions = _valid_positions(op, op.size(x, 0), lengths)
    sizes = op.ReduceSum(cast(op, mask, D.INT64), [1], keepdims=0)
    longest = op.Unsqueeze(op.ReduceMax(lengths, keepdims=0), [0])
    return _pack(op, x, lengths, positions, False), op.Slice(sizes, [0], longest, [0])


def _padded_form(op, data, batch_sizes):
    """The padded form of a packed value; recomputed after an operator on its elements."""
    if "padded" in data.meta:
        return data.meta["padded"]
    batch = op.Gather(batch_sizes, 0, axis=0)
    ids = op.Unsqueeze(op.Range(0, batch, 1), [0])
    mask = op.Less(ids, op.Unsqueeze(batch_sizes, [1]))
    positions = op.Transpose(op.NonZero(mask), perm=[1, 0])
    lengths = op.ReduceSum(cast(op, mask, D.INT64), [0], keepdims=0)
    ends = [op.size(data, i) for i in range(1, len(data.shape))]
    return _scatter(op, data, [op.size(batch_sizes, 0), batch, *ends], positions, 0.0), lengths, positions, True


def _scatter(op, data, sizes, positions, value):
    whole = op.Expand(cast(op, value, data.dtype), op.dims(sizes))
    return op.ScatterND(whole, positions, data)


def _layer(kind, states_of, **attrs):
    def lower(op, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional):
        check_dropout(dropout, train, num_layers)
        if len(params) != (4 if has_biases else 2) * num_layers * (2 if bidirectional else 1):
            raise Unsupported("projections (proj_size) of packed sequences", "run the layer on the padded sequences")
        x, lengths, positions, _ = _padded_form(op, data, batch_sizes)
        options = {k: [v] * (2 if bidirectional else 1) if k == "activations" else v for k, v in attrs.items()}
        y, *ends = recurrent_layers(
            op, kind, x, states_of(hx), params, has_biases, num_layers, bidirectional, False, lengths=cast(op, lengths, D.INT32),
            **options,
        )  # fmt: skip
        return (_pack(op, y, lengths, positions, True), *ends)

    return lower


rule("aten::lstm.data")(_layer("LSTM", list))
rule("aten::gru.data")(_layer("GRU", lambda h: [h], linear_before_reset=1))
rule("aten::rnn_tanh.data")(_layer("RNN", lambda h: [h], activations="Tanh"))
rule("aten::rnn_relu.data")(_layer("RNN", lambda h: [h], activations="Relu"))


@rule("onnxbridge::pad_packed_sequence")
def pad_packed_sequence(op, data, batch_sizes, batch_first, padding_value, total_length):
    x, lengths, positions, is_zero_padded = _padded_form(op, data, batch_sizes)
    names = [_name(op, v) for v in (total_length, op.size(x, 0), op.size(batch_sizes, 0))]
    if is_zero_padded and padding_value == 0 and names[0] in names[1:]:
        # the lengths fit into `x`, so the longest does
        y = x if names[0] == names[1] else op.Slice(x, [0], op.dims([total_length]), [0])
    else:
        sizes = [total_length, *(op.size(x, i) for i in range(1, len(x.shape)))]
        y = _scatter(op, data, sizes, positions, padding_value)
    if batch_first:
        y = op.Transpose(y, perm=[1, 0, *range(2, len(y.shape))])
    return y, lengths


def _name(op, size):
    """A size, or the name of the dimension that it comes from."""
    if not isinstance(size, ir.Value):
        return size
    found = fold.known_elements(size)
    return found[0] if found and found[0] is not None else size
