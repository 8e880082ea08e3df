"""Recurrent layers. The states of layers over a sequence start at zero in every run, as those of the converted model do; those of
operators of one step are inputs and outputs of the model."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.sizes import known_array
from onnxbridge.frontends.tflite import lstm as cells
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.ir.values import static_shape


def _sequence(op, x, time_major):
    """A sequence in ONNX's order, [time, batch, ...]; and back."""
    return x if time_major else op.Transpose(x, perm=[1, 0, 2])


def _rounded(op, x, rounded):
    """An input as it is multiplied with integer weights: `rounded` is None where the weights are floats."""
    return x if rounded is None else rounded(op, x)


def _check_count(tensors, *counts):
    """The first inputs of a layer are its input and the parameters and states `tensors`."""
    if len(tensors) + 1 not in counts:
        raise Unsupported(f"{len(tensors) + 1} inputs instead of {counts[0]}", "get the file again")


def _check_states(*states):
    """The states of one step are inputs of the model, or computed; a constant is a variable tensor that is neither."""
    if any(s is None for s in states):
        raise Unsupported("a step without its state", "get the file again")
    if any(known_array(s) is not None for s in states):
        what = "a state that a branch, a loop or another signature than the first keeps between runs"
        raise Unsupported(what, "pass the state in and return it")


def _merged(op, forward, backward, merge_outputs, time_major):
    if merge_outputs:
        return _sequence(op, op.Concat(forward, backward, axis=2), time_major)
    return _sequence(op, forward, time_major), _sequence(op, backward, time_major)


def _no_diagonals(diagonal_recurrent_tensors):
    if diagonal_recurrent_tensors:
        raise Unsupported("an LSTM with diagonal recurrent weights")


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM", limits="without diagonal recurrent weights")
def unidirectional_sequence_lstm(
    op, input, *tensors, fused_activation_function="NONE", cell_clip=0.0, proj_clip=0.0, time_major=False,
    diagonal_recurrent_tensors=False, rounded=None,
):  # fmt: skip
    """`tensors` are the parameters of a cell, its output and cell states, and coefficients of normalizations."""
    _check_count(tensors, 24, 20)
    _no_diagonals(diagonal_recurrent_tensors)
    cell = cells.cell(op, tensors, tensors[19:], (), fused_activation_function, cell_clip, proj_clip, rounded)
    x = _sequence(op, _rounded(op, input, rounded), time_major)
    return _sequence(op, cells.sequence(op, x, cell), time_major)


@rule("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_sequence_lstm(
    op, input, *tensors, fused_activation_function="NONE", cell_clip=0.0, proj_clip=0.0, merge_outputs=False, time_major=True,
    rounded=None,
):  # fmt: skip
    """`tensors` are the parameters of the forward and the backward cell, four states, an auxiliary input and its weights.

    An auxiliary input without weights is the input of the backward cell.
    """
    _check_count(tensors, 48)
    aux_input, *aux_weights = tensors[38:]
    x = x_backward = _sequence(op, _rounded(op, input, rounded), time_major)
    if aux_input is not None:
        aux = _sequence(op, _rounded(op, aux_input, rounded), time_major)
        is_second = all(w is None for w in aux_weights)
        x, x_backward = (x, aux) if is_second else [op.Concat(x, aux, axis=2)] * 2
    forward, backward = (
        cells.cell(op, parameters, (), more, fused_activation_function, cell_clip, proj_clip, rounded)
        for parameters, more in ((tensors[:17], aux_weights[:4]), (tensors[17:34], aux_weights[4:]))
    )
    y = cells.sequence(op, x, forward), cells.sequence(op, x_backward, backward, reverse=True)
    return _merged(op, *y, merge_outputs, time_major)


@rule("LSTM")
def lstm(
    op, input, *tensors, fused_activation_function="NONE", cell_clip=0.0, proj_clip=0.0, kernel_type="FULL", rounded=None
):
    """One step, with the tensors of UNIDIRECTIONAL_SEQUENCE_LSTM; the output, and the next states."""
    _check_count(tensors, 24, 20)
    output_state, cell_state = tensors[17:19]
    _check_states(output_state, cell_state)
    cell = cells.cell(op, tensors, tensors[19:], (), fused_activation_function, cell_clip, proj_clip, rounded)
    h, c = cells.step(op, _rounded(op, input, rounded), output_state, cell_state, cell)
    return h, h, c


@rule("basic::LSTM")
def basic_lstm(
    op, input, prev_activation, weights, biases, prev_state, *, kernel_type, fused_activation_function="NONE", cell_clip=0.0,
    proj_clip=0.0,
):  # fmt: skip
    """One step of a cell whose weights for the input and the activation are one matrix, of the gates input, cell, forget, output.

    The kernel does not read the activation function and the clips. Results are the activation, the state and two intermediate
    tensors, then the next states.
    """
    _check_states(prev_activation, prev_state)
    concat = op.Concat(input, prev_activation, axis=1)
    gates = op.Gemm(concat, weights, biases, transB=1)
    i, g, f, o = op.Split(gates, axis=1, num_outputs=4, outputs=4)
    state = op.Add(op.Mul(op.Sigmoid(i), op.Tanh(g)), op.Mul(op.Sigmoid(f), prev_state))
    activation = op.Mul(op.Sigmoid(o), op.Tanh(state))
    return activation, state, concat, gates, activation, state


@rule("RNN")
def rnn(
    op, input, input_weights, recurrent_weights, bias, hidden_state, *, fused_activation_function="NONE", rounded=None
):
    """One step; the output, and the next state."""
    _check_states(hidden_state)
    x, h = (_rounded(op, v, rounded) for v in (input, hidden_state))
    y = op.Add(op.Gemm(x, input_weights, bias, transB=1), op.Gemm(h, recurrent_weights, transB=1))
    y = cells.activation(op, y, fused_activation_function)
    return y, y


@rule("SVDF")
def svdf(
    op, input, weights_feature, weights_time, bias=None, state=None, *, rank=0, fused_activation_function="NONE", rounded=None
):
    """One step of a filter of the time axis of a projection, with weights of low rank; the output, and the next state.

    The state [batch, filters * memory] are the projections of the last steps; `rank` filters are summed for each unit.
    """
    _check_states(state)
    filters, memory = static_shape(weights_time, [0, 1])
    if rank < 1 or filters % rank:
        raise Unsupported(f"{filters} filters of rank {rank}", "get the file again")
    projected = op.Unsqueeze(op.Gemm(_rounded(op, input, rounded), weights_feature, transB=1), [2])
    before = op.Slice(op.Reshape(state, [-1, filters, memory]), [1], [memory], [2])
    window = op.Concat(before, projected, axis=2)
    filtered = op.ReduceSum(op.Mul(window, weights_time), [2], keepdims=0)
    y = op.ReduceSum(op.Reshape(filtered, [-1, filters // rank, rank]), [2], keepdims=0)
    y = y if bias is None else op.Add(y, bias)
    return cells.activation(op, y, fused_activation_function), op.Reshape(window, [-1, filters * memory])


def _rnn(op, x, weights, recurrent, bias, activation, rounded, reverse=False):
    """A layer over x [time, batch, inputs], which is rounded already."""
    if rounded is not None:
        return _rounded_rnn(op, x, weights, recurrent, bias, activation, rounded, reverse)
    if activation not in cells.ACTIVATIONS:
        raise Unsupported(f"the activation {activation} in a recurrent layer")
    count = static_shape(recurrent, [0])[0]
    # TensorFlow Lite has no bias of the recurrent part
    biases = op.Unsqueeze(op.Concat(bias, np.zeros(count, np.float32), axis=0), [0])
    y, _ = op.RNN(
        x, op.Unsqueeze(weights, [0]), op.Unsqueeze(recurrent, [0]), biases, hidden_size=count, outputs=2,
        activations=[cells.ACTIVATIONS[activation]], direction="reverse" if reverse else "forward",
    )  # fmt: skip
    return op.Squeeze(y, [1])


def _rounded_rnn(op, x, weights, recurrent, bias, activation, rounded, reverse):
    """A layer that rounds its state before each step, which ONNX's operator does not."""
    part = op.Add(op.MatMul(x, op.Transpose(weights, perm=[1, 0])), bias)
    recurrent = op.Transpose(recurrent, perm=[1, 0])

    def step(h, part):
        h = cells.activation(op, op.Add(part, op.MatMul(rounded(op, h), recurrent)), activation)
        return h, h

    start = op.Expand(np.zeros((), np.float32), op.dims([op.size(x, 1), recurrent.shape[0]]))
    directions = [1] if reverse else None
    _, y = op.Scan(
        start, part, body=step, num_scan_inputs=1, scan_input_directions=directions, scan_output_directions=directions, outputs=2
    )
    return y


@rule("UNIDIRECTIONAL_SEQUENCE_RNN", limits="the activations Tanh and Relu")
def unidirectional_sequence_rnn(
    op, input, input_weights, recurrent_weights, bias, hidden_state=None, *, time_major=False, fused_activation_function="NONE",
    rounded=None,
):  # fmt: skip
    x = _sequence(op, _rounded(op, input, rounded), time_major)
    return _sequence(op, _rnn(op, x, input_weights, recurrent_weights, bias, fused_activation_function, rounded), time_major)


_RNN_LIMITS = "Tanh and Relu; time_major with another input of the backward layer, but not with integer weights"


@rule("BIDIRECTIONAL_SEQUENCE_RNN", limits=_RNN_LIMITS)
def bidirectional_sequence_rnn(
    op, input, fw_weights, fw_recurrent, fw_bias, fw_state, bw_weights, bw_recurrent, bw_bias, bw_state, aux_input=None,
    fw_aux_weights=None, bw_aux_weights=None, *, time_major=False, merge_outputs=False, fused_activation_function="NONE",
    rounded=None,
):  # fmt: skip
    """An auxiliary input without weights is the input of the backward layer."""
    if rounded is not None and time_major:
        what = "integer weights and time_major; TensorFlow Lite's kernel runs over the sequence once for each of its steps"
        raise Unsupported(what)
    x = x_backward = _sequence(op, _rounded(op, input, rounded), time_major)
    if aux_input is not None:
        aux = _sequence(op, _rounded(op, aux_input, rounded), time_major)
        if fw_aux_weights is None and bw_aux_weights is None:
            if not time_major:
                raise Unsupported("a backward layer with a batch-major input of its own; TensorFlow Lite's kernel ignores it")
            x_backward = aux
        else:
            x = x_backward = op.Concat(x, aux, axis=2)
            fw_weights = op.Concat(fw_weights, fw_aux_weights, axis=1)
            bw_weights = op.Concat(bw_weights, bw_aux_weights, axis=1)
    forward = _rnn(op, x, fw_weights, fw_recurrent, fw_bias, fused_activation_function, rounded)
    backward = _rnn(op, x_backward, bw_weights, bw_recurrent, bw_bias, fused_activation_function, rounded, reverse=True)
    return _merged(op, forward, backward, merge_outputs, time_major)
