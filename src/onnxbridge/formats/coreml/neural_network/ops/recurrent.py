"""Recurrent layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.formats.coreml.neural_network.ops import rule

ACTIVATIONS = {"tanh": "tanh", "sigmoid": "sigmoid", "ReLU": "relu"}
# A cell state changes by at most 1 per step, so it reaches such a limit only after as many steps.
NO_CLIP = 500


def _activation(params):
    parameters = params.WhichOneof("NonlinearityType")
    if parameters == "linear" and (params.linear.alpha, params.linear.beta) == (1, 0):
        return "linear"
    if parameters == "sigmoidHard" and np.allclose((params.sigmoidHard.alpha, params.sigmoidHard.beta), (0.2, 0.5)):
        return "sigmoid_hard"
    if parameters not in ACTIVATIONS:
        raise Unsupported(f"the activation {parameters}")
    return ACTIVATIONS[parameters]


def _to_sequence(mil, x):
    """Reshape a blob to (steps, batch, features)."""
    if mil.exact:
        return mil.squeeze(x=x, axes=np.array([3, 4]))
    return mil.expand_dims(x=mil.squeeze(x=x, axes=np.array([2, 3])), axes=np.array([1]))


def _from_sequence(mil, y):
    """Reshape (steps, batch, features) to a blob."""
    if mil.exact:
        return mil.expand_dims(x=y, axes=np.array([3, 4]))
    return mil.expand_dims(x=mil.squeeze(x=y, axes=np.array([1])), axes=np.array([2, 3]))


def _state(mil, blob, x, size):
    """An initial state (batch, features); zeros if the layer has none."""
    if blob is not None:
        return mil.reshape(x=blob, shape=np.array([-1, size]))
    if not mil.exact:
        return np.zeros((1, size), np.float32)
    batch = mil.slice_by_index(x=mil.shape(x=x), begin=np.array([1]), end=np.array([2]))
    return mil.fill(shape=mil.concat(values=[batch, np.array([size], np.int32)], axis=0), value=np.float32(0))


def _state_blob(mil, h):
    return mil.expand_dims(x=h, axes=np.array([0, 3, 4] if mil.exact else [2, 3]))


def _stack_weights(mil, parts, shape, name):
    return mil.weight(np.concatenate([stored.read(p, shape) for p in parts]), name)


@rule("simpleRecurrent")
def simple_recurrent(
    mil, x, state=None, *, inputVectorSize, outputVectorSize, activation, sequenceOutput=False, hasBiasVector=False, weightMatrix,
    recursionMatrix, biasVector=None, reverseInput=False,
):  # fmt: skip
    size, x = int(outputVectorSize), _to_sequence(mil, x)
    y, h = mil.rnn(
        x=x, initial_h=_state(mil, state, x, size),
        weight_ih=_stack_weights(mil, [weightMatrix], (size, int(inputVectorSize)), "weight_ih"),
        weight_hh=_stack_weights(mil, [recursionMatrix], (size, size), "weight_hh"),
        bias=_stack_weights(mil, [biasVector], (size,), "bias") if hasBiasVector else None, activation=_activation(activation),
        direction="reverse" if reverseInput else "forward", output_sequence=bool(sequenceOutput), outputs=2,
    )  # fmt: skip
    return _from_sequence(mil, y), _state_blob(mil, h)


@rule("gru")
def gru(
    mil, x, state=None, *, inputVectorSize, outputVectorSize, activations, sequenceOutput=False, hasBiasVectors=False,
    updateGateWeightMatrix, resetGateWeightMatrix, outputGateWeightMatrix, updateGateRecursionMatrix, resetGateRecursionMatrix,
    outputGateRecursionMatrix, updateGateBiasVector=None, resetGateBiasVector=None, outputGateBiasVector=None,
    reverseInput=False,
):  # fmt: skip
    """MIL stacks the gates as reset, output, update."""
    size, x = int(outputVectorSize), _to_sequence(mil, x)
    weights = [resetGateWeightMatrix, outputGateWeightMatrix, updateGateWeightMatrix]
    recursions = [resetGateRecursionMatrix, outputGateRecursionMatrix, updateGateRecursionMatrix]
    biases = [resetGateBiasVector, outputGateBiasVector, updateGateBiasVector]
    inner, outer = (_activation(a) for a in activations)
    y, h = mil.gru(
        x=x, initial_h=_state(mil, state, x, size),
        weight_ih=_stack_weights(mil, weights, (size, int(inputVectorSize)), "weight_ih"),
        weight_hh=_stack_weights(mil, recursions, (size, size), "weight_hh"),
        bias=_stack_weights(mil, biases, (size,), "bias") if hasBiasVectors else None,
        recurrent_activation=inner, activation=outer,
        direction="reverse" if reverseInput else "forward", output_sequence=bool(sequenceOutput), outputs=2,
    )  # fmt: skip
    return _from_sequence(mil, y), _state_blob(mil, h)


def _lstm_weights(mil, params, stored_weights, width, size, suffix):
    """MIL's weights of one direction, with the gates stacked as input, forget, output, cell."""
    order, w, coupled = ("inputGate", "forgetGate", "outputGate", "blockInput"), stored_weights, params.coupledInputAndForgetGate

    def gates(parameters, shape, names=order):
        parts = [
            stored.read(getattr(w, f"{'inputGate' if coupled and g == 'forgetGate' else g}{parameters}"), shape) for g in names
        ]
        if coupled:  # 1 - sigmoid(v) = sigmoid(-v)
            parts[1] = -parts[1]
        return parts

    bias = gates("BiasVector", (size,)) if params.hasBiasVectors else [np.zeros(size, np.float32)] * 4
    if params.forgetBias and not coupled:
        bias = [bias[0], bias[1] + 1, *bias[2:]]
    stacked = {"weight_ih": gates("WeightMatrix", (size, width)), "weight_hh": gates("RecursionMatrix", (size, size))}
    if params.hasBiasVectors or params.forgetBias:
        stacked["bias"] = bias
    if params.hasPeepholeVectors:
        stacked["peephole"] = gates("PeepholeVector", (size,), order[:3])
    return {f"{name}{suffix}": mil.weight(np.concatenate(parts), f"{name}{suffix}") for name, parts in stacked.items()}


def _lstm_parameters(params, activations):
    inner, cell, outer = (_activation(a) for a in activations)
    if params.coupledInputAndForgetGate and inner not in ("sigmoid", "sigmoid_hard"):
        raise Unsupported(f"coupledInputAndForgetGate with the activation {inner}")
    clip = params.cellClipThreshold
    return {
        "recurrent_activation": inner, "cell_activation": cell, "activation": outer,
        "clip": np.float32(clip) if 0 < clip < NO_CLIP else None, "output_sequence": bool(params.sequenceOutput), "outputs": 3,
    }  # fmt: skip


@rule("uniDirectionalLSTM")
def uni_directional_lstm(
    mil, x, h=None, c=None, *, inputVectorSize, outputVectorSize, activations, params, weightParams, reverseInput=False
):  # fmt: skip
    size, x = int(outputVectorSize), _to_sequence(mil, x)
    y, h, c = mil.lstm(
        x=x, initial_h=_state(mil, h, x, size), initial_c=_state(mil, c, x, size),
        direction="reverse" if reverseInput else "forward", **_lstm_parameters(params, activations),
        **_lstm_weights(mil, params, weightParams, int(inputVectorSize), size, ""),
    )  # fmt: skip
    return _from_sequence(mil, y), _state_blob(mil, h), _state_blob(mil, c)


@rule("biDirectionalLSTM")
def bi_directional_lstm(
    mil, x, h=None, c=None, h_back=None, c_back=None, *, inputVectorSize, outputVectorSize, activationsForwardLSTM,
    activationsBackwardLSTM, params, weightParams,
):  # fmt: skip
    """MIL concatenates the states of both directions, which share their activations; with different ones, two lstm are used."""
    size, width, x = int(outputVectorSize), int(inputVectorSize), _to_sequence(mil, x)
    forward, backward = (_lstm_parameters(params, names) for names in (activationsForwardLSTM, activationsBackwardLSTM))
    forward_weights, backward_weights = weightParams
    if forward != backward:
        outputs = []
        for direction, parameters, (h0, c0), stored_weights in (
            ("forward", forward, (h, c), forward_weights), ("reverse", backward, (h_back, c_back), backward_weights),
        ):  # fmt: skip
            outputs.append(mil.lstm(
                x=x, initial_h=_state(mil, h0, x, size), initial_c=_state(mil, c0, x, size), direction=direction, **parameters,
                **_lstm_weights(mil, params, stored_weights, width, size, ""),
            ))  # fmt: skip
        (y, h, c), (y_back, h_back, c_back) = outputs
        if params.sequenceOutput:  # MIL's reverse direction returns its last step first
            y_back = mil.reverse(x=y_back, axes=np.array([0]))
        y = mil.concat(values=[y, y_back], axis=2)
        return _from_sequence(mil, y), *(_state_blob(mil, v) for v in (h, c, h_back, c_back))
    initial = [mil.concat(values=[_state(mil, v, x, size) for v in pair], axis=1) for pair in ((h, h_back), (c, c_back))]
    y, *final = mil.lstm(
        x=x, initial_h=initial[0], initial_c=initial[1], direction="bidirectional", **forward,
        **_lstm_weights(mil, params, forward_weights, width, size, ""),
        **_lstm_weights(mil, params, backward_weights, width, size, "_back"),
    )  # fmt: skip
    (h, h_back), (c, c_back) = (mil.split(x=v, axis=1, num_splits=2, outputs=2) for v in final)
    return _from_sequence(mil, y), *(_state_blob(mil, v) for v in (h, c, h_back, c_back))
