"""Branches and loops; subgraphs arrive as callables."""

import onnx_ir as ir

from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.rules import Outputs


def _truth(op, x):
    x = op.Reshape(x, []) if x.shape is None or len(x.shape) else x
    return x if x.dtype == ir.DataType.BOOL else op.Cast(x, to=ir.DataType.BOOL)


@rule("IF")
def if_(op, cond, *inputs, then_branch, else_branch, outputs: Outputs):
    return op.If(
        _truth(op, cond), then_branch=lambda: then_branch(*inputs), else_branch=lambda: else_branch(*inputs),
        outputs=len(outputs),
    )  # fmt: skip


@rule("WHILE")
def while_(op, *input, cond, body, shapes):
    """`shapes` are the sizes of each state that the file declares before and after an iteration."""

    def loop_body(iteration, condition, *states):
        for state, start, shape in zip(states, input, shapes, strict=False):
            if start.shape is not None and len(start.shape) == len(shape):
                state.shape = ir.Shape([size if size == first else None for size, first in zip(shape, start.shape, strict=True)])
        results = body(*states)
        return _truth(op, cond(*results)[0]), *results

    return op.Loop(None, _truth(op, cond(*input)[0]), *input, body=loop_body, outputs=len(input))


@rule("STABLEHLO_COMPOSITE")
def stablehlo_composite(
    op, *inputs, decomposition, name="", composite_attributes=(), composite_attributes_format=0, version=0
):
    """The composite's own decomposition."""
    return tuple(decomposition(*inputs))
