"""Branch and loop layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule


def _scalar(mil, blob, dtype):
    return mil.cast(x=mil.squeeze(x=blob), dtype=dtype)


@rule("branch", limits="blobs that only one branch writes must be defined before")
def branch(mil, condition, *, ifBranch, elseBranch):
    blocks = []
    for network in (ifBranch, elseBranch):
        with mil.inner() as block:
            block.outputs = tuple(network())
        blocks.append(block)
    if not blocks[0].outputs:
        return ()
    pred = _scalar(mil, condition, "bool")
    results = mil.emit("cond", pred=pred, blocks=tuple(blocks), outputs=len(blocks[0].outputs))
    return results if isinstance(results, tuple) else (results,)


@rule("loopContinue", limits="inside of a loop")
def loop_continue(mil):
    """The exit code of an iteration; the layers that follow are in the other branch."""
    return mil.weight(np.int32(1), "exit_code")


@rule("loopBreak", limits="inside of a loop")
def loop_break(mil):
    return mil.weight(np.int32(2), "exit_code")


@rule("loop", limits="blobs that are read after the loop must be defined before it")
def loop(mil, *blobs, maxLoopIterations=0, conditionVar=None, bodyNetwork, may_exit=False):
    """`conditionVar` computes the loop condition; `maxLoopIterations` limits the number of iterations.

    If the body may exit the loop (`may_exit`), its last result is the exit code of the iteration: 2 ends the loop.
    """
    dynamic_count = not isinstance(maxLoopIterations, int)
    if conditionVar is None and not dynamic_count and not maxLoopIterations:
        raise Unsupported("neither a condition nor a number of iterations")
    max_iterations = _scalar(mil, maxLoopIterations, "int32") if dynamic_count else np.int32(min(maxLoopIterations, 2**31 - 1))
    size = 1 + len(blobs) + may_exit
    with mil.inner() as cond:
        counter, *states = cond.inputs = tuple(mil.new("loop") for _ in range(size))
        conditions = [mil.less(x=counter, y=max_iterations)] if dynamic_count or maxLoopIterations else []
        conditions += [mil.less(x=states[-1], y=np.int32(2))] if may_exit else []
        conditions += [_scalar(mil, conditionVar(*states[: len(blobs)])[0], "bool")] if conditionVar is not None else []
        all_conditions = conditions[0]
        for term in conditions[1:]:
            all_conditions = mil.logical_and(x=all_conditions, y=term)
        cond.outputs = (all_conditions,)
    with mil.inner() as body:
        counter, *states = body.inputs = tuple(mil.new("loop") for _ in range(size))
        initial_exit_code = [mil.weight(np.int32(0), "exit_code")] if may_exit else []
        body.outputs = (mil.add(x=counter, y=np.int32(1)), *bodyNetwork(*states[: len(blobs)], *initial_exit_code))
    zero = mil.weight(np.int32(0), "iteration")
    results = mil.while_loop(loop_vars=[zero, *blobs, *([zero] if may_exit else [])], blocks=(cond, body), outputs=size)
    return results[1 : len(blobs) + 1] if size > 1 else ()
