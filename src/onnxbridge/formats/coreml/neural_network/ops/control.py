"""Branches and loops."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule


def _scalar(mil, blob, dtype):
    return mil.cast(x=mil.squeeze(x=blob), dtype=dtype)


@rule("branch", limits="what only one way writes was there before")
def branch(mil, condition, *, ifBranch, elseBranch):
    blocks = []
    for network in (ifBranch, elseBranch):
        with mil.inner() as block:
            block.outputs = tuple(network())
        blocks.append(block)
    if not blocks[0].outputs:
        return ()
    pred = _scalar(mil, condition, "bool")
    found = mil.emit("cond", pred=pred, blocks=tuple(blocks), outputs=len(blocks[0].outputs))
    return found if isinstance(found, tuple) else (found,)


@rule("loopContinue", limits="inside of a loop")
def loop_continue(mil):
    """The number that says how the turn ends; the layers behind it are in the other way of a branch."""
    return mil.weight(np.int32(1), "left")


@rule("loopBreak", limits="inside of a loop")
def loop_break(mil):
    return mil.weight(np.int32(2), "left")


@rule("loop", limits="a blob that is used behind it is there before it")
def loop(mil, *blobs, maxLoopIterations=0, conditionVar=None, bodyNetwork, leaving=False):
    """`conditionVar` computes the blob that tells whether there is another turn; a number of turns is counted beside it.

    Where the body may leave the loop (`leaving`), its last result is how a turn ended: 2 where the loop ends with it.
    """
    counted = not isinstance(maxLoopIterations, int)
    if conditionVar is None and not counted and not maxLoopIterations:
        raise Unsupported("neither a condition nor a number of turns")
    most = _scalar(mil, maxLoopIterations, "int32") if counted else np.int32(min(maxLoopIterations, 2**31 - 1))
    size = 1 + len(blobs) + leaving
    with mil.inner() as cond:
        counter, *states = cond.inputs = tuple(mil.new("loop") for _ in range(size))
        truths = [mil.less(x=counter, y=most)] if counted or maxLoopIterations else []
        truths += [mil.less(x=states[-1], y=np.int32(2))] if leaving else []
        truths += [_scalar(mil, conditionVar(*states[: len(blobs)])[0], "bool")] if conditionVar is not None else []
        whole = truths[0]
        for truth in truths[1:]:
            whole = mil.logical_and(x=whole, y=truth)
        cond.outputs = (whole,)
    with mil.inner() as body:
        counter, *states = body.inputs = tuple(mil.new("loop") for _ in range(size))
        start = [mil.weight(np.int32(0), "left")] if leaving else []
        body.outputs = (mil.add(x=counter, y=np.int32(1)), *bodyNetwork(*states[: len(blobs)], *start))
    zero = mil.weight(np.int32(0), "turn")
    found = mil.while_loop(loop_vars=[zero, *blobs, *([zero] if leaving else [])], blocks=(cond, body), outputs=size)
    return found[1 : len(blobs) + 1] if size > 1 else ()
