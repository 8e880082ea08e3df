"""Control flow, states and classifiers."""

import numpy as np

from onnxbridge.rules import Bool
from onnxbridge.runtime.mil.ops import Values, rule


@rule("cond", kind="move")
def cond(pred: Bool, _true_fn, _false_fn):
    return tuple(_true_fn() if pred else _false_fn())


@rule("while_loop", kind="move")
def while_loop(_cond, _body, loop_vars: Values):
    while np.all(_cond(*loop_vars)[0]):
        loop_vars = _body(*loop_vars)
    return tuple(loop_vars)


@rule("select", kind="move")
def select(cond, a, b):
    return np.where(cond, a, b)


@rule("identity", kind="move")
def identity(x):
    return x


@rule("read_state", kind="move")
def read_state(input):
    return input.value


@rule("write_state", kind="move")
def write_state(input, data):
    input.value = data
    return ()


@rule("coreml_update_state", kind="move")
def coreml_update_state(state, value):
    state.value = value
    return value


@rule("classify")
def classify(probabilities, classes):
    """The most probable class, and the probability of each class."""
    weights = np.ravel(probabilities)
    names = [c.item() if isinstance(c, np.ndarray | np.generic) else c for c in classes]
    return names[int(np.argmax(weights))], dict(zip(names, weights.tolist(), strict=True))
