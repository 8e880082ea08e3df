"""Packed sequences: the elements of all, by time and within it by sequence, longest first; padded, ONNX's layers take them.

A packed value notes what it looks like padded (time first), the lengths, the places of its elements there, and whether what lies
behind the sequences' ends is zero.
"""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.recurrent import layers, refuse_dropout
from onnxbridge.hub.ir import fold

D = ir.DataType


def _places(op, time, lengths):
    """Which elements of [time, batch] are in the sequences: the mask, and the pairs of indices in order."""
    steps = op.Unsqueeze(op.Range(0, op.constant(time), 1) if isinstance(time, ir.Value) else op.constant(range(time)), [1])
    mask = op.Less(steps, op.Unsqueeze(lengths, [0]))
    return mask, op.Transpose(op.NonZero(mask), perm=[1, 0])


def _packed(op, padded, lengths, places, zeroed):
    data = op.GatherND(padded, places)
    data.meta["padded"] = padded, lengths, places, zeroed
    return data


@rule("aten::_pack_padded_sequence")
def pack_padded_sequence(op, input, lengths, batch_first):
    x = input
    if batch_first:
        x = op.Transpose(input, perm=[1, 0, *range(2, len(input.shape))])
    mask, places = _places(op, op.size(x, 0), lengths)
    sizes = op.ReduceSum(cast(op, mask, D.INT64), [1], keepdims=0)
    longest = op.Unsqueeze(op.ReduceMax(lengths, keepdims=0), [0])
    return _packed(op, x, lengths, places, False), op.Slice(sizes, [0], longest, [0])


def _padded(op, data, batch_sizes):
    """The padded form of a packed value, made anew where something was computed on its elements."""
    if "padded" in data.meta:
        return data.meta["padded"]
    batch = op.Gather(batch_sizes, 0, axis=0)
    ids = op.Unsqueeze(op.Range(0, batch, 1), [0])
    mask = op.Less(ids, op.Unsqueeze(batch_sizes, [1]))
    places = op.Transpose(op.NonZero(mask), perm=[1, 0])
    lengths = op.ReduceSum(cast(op, mask, D.INT64), [0], keepdims=0)
    ends = [op.size(data, i) for i in range(1, len(data.shape))]
    return _filled(op, data, [op.size(batch_sizes, 0), batch, *ends], places, 0.0), lengths, places, True


def _filled(op, data, sizes, places, value):
    whole = op.Expand(cast(op, value, data.dtype), op.dims(sizes))
    return op.ScatterND(whole, places, data)


def _layer(kind, states_of, **attrs):
    def lower(op, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional):
        refuse_dropout(dropout, train, num_layers)
        if len(params) != (4 if has_biases else 2) * num_layers * (2 if bidirectional else 1):
            raise Unsupported("projections (proj_size) of packed sequences", "run the layer on the padded sequences")
        x, lengths, places, _ = _padded(op, data, batch_sizes)
        more = {k: [v] * (2 if bidirectional else 1) if k == "activations" else v for k, v in attrs.items()}
        y, *ends = layers(
            op, kind, x, states_of(hx), params, has_biases, num_layers, bidirectional, False, lengths=cast(op, lengths, D.INT32),
            **more,
        )  # fmt: skip
        return (_packed(op, y, lengths, places, True), *ends)

    return lower


rule("aten::lstm.data")(_layer("LSTM", list))
rule("aten::gru.data")(_layer("GRU", lambda h: [h], linear_before_reset=1))
rule("aten::rnn_tanh.data")(_layer("RNN", lambda h: [h], activations="Tanh"))
rule("aten::rnn_relu.data")(_layer("RNN", lambda h: [h], activations="Relu"))


@rule("onnxbridge::pad_packed_sequence")
def pad_packed_sequence(op, data, batch_sizes, batch_first, padding_value, total_length):
    x, lengths, places, zeroed = _padded(op, data, batch_sizes)
    names = [_name(op, v) for v in (total_length, op.size(x, 0), op.size(batch_sizes, 0))]
    if zeroed and padding_value == 0 and names[0] in names[1:]:
        # the lengths fit into `x`, so the longest of them does
        y = x if names[0] == names[1] else op.Slice(x, [0], op.dims([total_length]), [0])
    else:
        sizes = [total_length, *(op.size(x, i) for i in range(1, len(x.shape)))]
        y = _filled(op, data, sizes, places, padding_value)
    if batch_first:
        y = op.Transpose(y, perm=[1, 0, *range(2, len(y.shape))])
    return y, lengths


def _name(op, size):
    """A size, or the name of the dimension that it is."""
    if not isinstance(size, ir.Value):
        return size
    found = fold.elements(size)
    return found[0] if found and found[0] is not None else size
