"""Branches and loops. The frontend gives the bodies as callables, and leaves out of a loop what it does not change."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Outputs


def _truth(op, x):
    if x.dtype == ir.DataType.STRING:
        raise Unsupported("a condition that is a text")
    if rank(x):  # anything but a scalar is true where it has elements
        return op.Greater(op.Size(x), np.array(0, np.int64))
    return x if x.dtype == ir.DataType.BOOL else op.Cast(x, to=ir.DataType.BOOL)


@rule("If")
def if_(op, cond, *, then_branch, else_branch, outputs: Outputs):
    return op.If(_truth(op, cond), then_branch=then_branch, else_branch=else_branch, outputs=len(outputs))


@rule("Case")
def case(op, branch_index, *, index, then_branch, else_branch, outputs: Outputs):
    chosen = op.Equal(branch_index, np.array(index, branch_index.dtype.numpy()))
    return op.If(chosen, then_branch=then_branch, else_branch=else_branch, outputs=len(outputs))


@rule("While")
def while_(op, input, *, cond, body, shapes):
    """`shapes` is what TensorFlow promises of each state in every turn."""

    def turn(iteration, condition, *states):
        for state, shape in zip(states, shapes, strict=True):
            if shape is not None:
                state.shape = ir.Shape(list(shape))
        results = body(*states)
        return _truth(op, cond(*results)[0]), *results

    return op.Loop(None, _truth(op, cond(*input)[0]), *input, body=turn, outputs=len(input))
