"""Fused recurrent layers. Their states start at zero in every run, as those of the converted model do."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tflite.ops import rule

_ACTIVATIONS = {"TANH": "Tanh", "RELU": "Relu"}


def _sequence(op, x, time_major):
    """A sequence in ONNX's order, [time, batch, ...]; and back."""
    return x if time_major else op.Transpose(x, perm=[1, 0, 2])


def _stacked(op, *parts):
    """The parameters of the gates as those of one direction."""
    return op.Unsqueeze(op.Concat(*parts, axis=0), [0])


def _zeros(count):
    """The biases of the recurrent part, which TensorFlow Lite does not have."""
    return np.zeros(count, np.float32)


def _activation(name):
    if name not in _ACTIVATIONS:
        raise Unsupported(f"the activation {name} in a recurrent layer")
    return _ACTIVATIONS[name]


@rule("UNIDIRECTIONAL_SEQUENCE_LSTM", limits="without projection, normalization of gates and clipping")
def unidirectional_sequence_lstm(
    op, input, input_to_input, input_to_forget, input_to_cell, input_to_output, recurrent_to_input, recurrent_to_forget,
    recurrent_to_cell, recurrent_to_output, cell_to_input=None, cell_to_forget=None, cell_to_output=None, input_bias=None,
    forget_bias=None, cell_bias=None, output_bias=None, projection_weights=None, projection_bias=None, output_state=None,
    cell_state=None, input_norm=None, forget_norm=None, cell_norm=None, output_norm=None, *, fused_activation_function="NONE",
    cell_clip=0.0, proj_clip=0.0, time_major=False, diagonal_recurrent_tensors=False,
):  # fmt: skip
    """Weights are [cells, inputs] for each gate."""
    if input_to_input is None or recurrent_to_input is None:
        raise Unsupported("an LSTM whose input gate is coupled to the forget gate")
    extras = (projection_weights, input_norm, forget_norm, cell_norm, output_norm)
    if any(e is not None for e in extras) or cell_clip or proj_clip or diagonal_recurrent_tensors:
        raise Unsupported("an LSTM with a projection, normalized gates, clipping or diagonal weights")
    activation = _activation(fused_activation_function)
    biases = (input_bias, output_bias, forget_bias, cell_bias)
    cells = recurrent_to_input.shape[0]
    bias = None
    if all(b is not None for b in biases):
        bias = _stacked(op, *biases, _zeros(4 * cells))
    peepholes = (cell_to_input, cell_to_output, cell_to_forget)
    y, _, _ = op.LSTM(
        _sequence(op, input, time_major),
        _stacked(op, input_to_input, input_to_output, input_to_forget, input_to_cell),
        _stacked(op, recurrent_to_input, recurrent_to_output, recurrent_to_forget, recurrent_to_cell),
        bias, None, None, None, _stacked(op, *peepholes) if all(p is not None for p in peepholes) else None,
        hidden_size=cells, activations=["Sigmoid", activation, activation], outputs=3,
    )  # fmt: skip
    return _sequence(op, op.Squeeze(y, [1]), time_major)


@rule("UNIDIRECTIONAL_SEQUENCE_RNN")
def unidirectional_sequence_rnn(
    op, input, input_weights, recurrent_weights, bias, hidden_state=None, *, time_major=False, fused_activation_function="NONE"
):
    cells = recurrent_weights.shape[0]
    y, _ = op.RNN(
        _sequence(op, input, time_major), op.Unsqueeze(input_weights, [0]), op.Unsqueeze(recurrent_weights, [0]),
        _stacked(op, bias, _zeros(cells)), hidden_size=cells, activations=[_activation(fused_activation_function)], outputs=2,
    )  # fmt: skip
    return _sequence(op, op.Squeeze(y, [1]), time_major)
