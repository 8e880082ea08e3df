"""Control flow, states and classifiers."""

import numpy as np

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Outputs


@rule("cond")
def cond(op, pred, *, _true_fn, _false_fn, outputs: Outputs):
    pred = op.Reshape(pred, []) if rank(pred) else pred
    return op.If(pred, then_branch=_true_fn, else_branch=_false_fn, outputs=len(outputs))


@rule("while_loop")
def while_loop(op, loop_vars, *, _cond, _body):
    def condition_of(states):
        (result,) = _cond(*states)
        return op.Reshape(result, []) if rank(result) else op.Identity(result)

    def body(iteration, condition, *states):
        results = _body(*states)
        return condition_of(results), *results

    return op.Loop(None, condition_of(loop_vars), *loop_vars, body=body, outputs=len(loop_vars))


@rule("select")
def select(op, cond, a, b):
    return op.Where(cond, a, b)


@rule("identity")
def identity(op, x):
    return x


@rule("read_state")
def read_state(op, input):
    return input.value


@rule("write_state")
def write_state(op, input, data):
    input.value = data
    return ()


@rule("coreml_update_state")
def coreml_update_state(op, state, value):
    state.value = value
    return value


@rule("classify")
def classify(op, probabilities, classes):
    """The most probable class, if labels are integers, and the probability of each class. String labels, which other frameworks
    do not support, are omitted; they are in the model's metadata."""
    probabilities = op.Reshape(probabilities, [-1])
    names = np.array([np.asarray(c).item() for c in classes])
    if names.dtype.kind not in "iu":
        return None, probabilities
    return op.Gather(op.constant(names.astype(np.int64)), op.ArgMax(probabilities, axis=0, keepdims=0), axis=0), probabilities
