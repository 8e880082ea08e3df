"""Branches and loops."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.mil.network.ops import rule


@rule("branch", limits="both branches give every output")
def branch(mil, condition, *, ifBranch, elseBranch):
    blocks = []
    for network in (ifBranch, elseBranch):
        with mil.inner() as block:
            block.outputs = tuple(network())
        blocks.append(block)
    pred = mil.cast(x=mil.squeeze(x=condition), dtype="bool")
    found = mil.emit("cond", pred=pred, blocks=tuple(blocks), outputs=len(blocks[0].outputs))
    return found if isinstance(found, tuple) else (found,)


@rule("loop", limits="no break, no continue")
def loop(mil, *blobs, maxLoopIterations=0, conditionVar=None, bodyNetwork):
    """`conditionVar` computes the blob that tells whether there is another turn; a number of turns is counted beside it."""
    if conditionVar is None and not maxLoopIterations:
        raise Unsupported("neither a condition nor a number of turns")
    with mil.inner() as cond:
        counter, *states = cond.inputs = tuple(mil.new("loop") for _ in range(len(blobs) + 1))
        truths = [mil.less(x=counter, y=np.int32(maxLoopIterations))] if maxLoopIterations else []
        truths += [mil.cast(x=mil.squeeze(x=conditionVar(*states)[0]), dtype="bool")] if conditionVar is not None else []
        cond.outputs = (truths[0] if len(truths) == 1 else mil.logical_and(x=truths[0], y=truths[1]),)
    with mil.inner() as body:
        counter, *states = body.inputs = tuple(mil.new("loop") for _ in range(len(blobs) + 1))
        body.outputs = (mil.add(x=counter, y=np.int32(1)), *bodyNetwork(*states))
    start = mil.weight(np.int32(0), "turn")
    return mil.while_loop(loop_vars=[start, *blobs], blocks=(cond, body), outputs=len(blobs) + 1)[1:]
