"""Branches and loops. The frontend passes bodies as callables, and omits loop states that do not change."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Outputs


def _truth(op, x):
    if x.dtype == ir.DataType.STRING:
        raise Unsupported("a string as a condition")
    if rank(x):  # a non-scalar is true if it has elements
        return op.Greater(op.Size(x), np.array(0, np.int64))
    return x if x.dtype == ir.DataType.BOOL else op.Cast(x, to=ir.DataType.BOOL)


def _branch(op, chosen, then_branch, else_branch, outputs):
    known = constant_array(chosen)
    if known is not None:  # such as the learning phase of Keras 2, a placeholder with a default
        return (then_branch if known else else_branch)()
    return op.If(chosen, then_branch=then_branch, else_branch=else_branch, outputs=len(outputs))


@rule("If")
def if_(op, cond, *, then_branch, else_branch, outputs: Outputs):
    return _branch(op, _truth(op, cond), then_branch, else_branch, outputs)


@rule("Case")
def case(op, branch_index, *, index, then_branch, else_branch, outputs: Outputs):
    chosen = op.Equal(branch_index, np.array(index, branch_index.dtype.numpy()))
    return _branch(op, chosen, then_branch, else_branch, outputs)


@rule("While")
def while_(op, input, *, cond, body, shapes):
    """`shapes` are the static shapes of each state in every iteration."""

    def loop_body(iteration, condition, *states):
        for state, shape in zip(states, shapes, strict=True):
            if shape is not None:
                state.shape = ir.Shape(list(shape))
        results = body(*states)
        return _truth(op, cond(*results)[0]), *results

    return op.Loop(None, _truth(op, cond(*input)[0]), *input, body=loop_body, outputs=len(input))
