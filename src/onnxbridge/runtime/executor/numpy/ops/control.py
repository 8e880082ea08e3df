"""Control flow; subgraphs are callables that may read values of the outer graph."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.io.resource_limits import claim, current
from onnxbridge.rules import Bool, Int
from onnxbridge.runtime.executor.loop_spec import LoopSpec
from onnxbridge.runtime.executor.numpy.ops import rule


@rule("If")
def if_(cond: Bool, *, then_branch, else_branch):
    return then_branch() if cond else else_branch()


@rule("Loop")
def loop(M: Int | None = None, cond: Bool | None = None, *v_initial, body):
    """Runs while `cond` is true and at most M times; results of the body other than carried values are stacked."""
    budget = current()
    state, condition = v_initial, True if cond is None else cond
    states = len(state)
    # bodies of the executor declare their results, for the case of no iteration; those of the lowering do not
    declared = getattr(body, "declared", ())[1 + states :]
    scanned = [[] for _ in declared]
    iteration = 0
    while condition and (M is None or iteration < M):
        inputs = (np.array(iteration, np.int64), np.array(condition), *state)
        batch = (
            None if M is None else _run_several(body, inputs, iteration, M - iteration, 1, states, len(declared), (), counter=0)
        )
        if batch is not None:
            iteration, state = iteration + batch.done, [batch.carried[1 + i] for i in range(states)]
            for parts, values in zip(scanned, batch.scanned, strict=True):
                parts.append(values)
            continue
        budget.count_iterations()
        flag, *results = body(*inputs)
        condition = bool(flag)
        state = results[:states]
        scanned = scanned or [[] for _ in results[states:]]
        for parts, value in zip(scanned, results[states:], strict=True):
            budget.claim((iteration + 1, *value.shape), value.dtype)
            parts.append(value[None])
        iteration += 1
    return (*state, *(_stacked(parts, 0, d) for parts, d in zip(scanned, declared or [None] * len(scanned), strict=True)))


_SINGLE = 3  # iterations before it is checked whether several can be run at once


def _run_several(body, inputs, iteration, iterations, flags, states, scanned, rows, counter=-1):
    """Several iterations at once from this one on, within the budget, if the body supports it.

    Its inputs and outputs start with these flags and states.
    """
    if iteration < _SINGLE or not getattr(body, "ready", False):
        return None
    budget, before = current(), flags + (counter >= 0)
    spec = LoopSpec(
        dict(enumerate(rows, before + states)), {flags + i: before + i for i in range(states)},
        range(flags + states, flags + states + scanned), counter, flags - 1, before - 1, iteration,
    )  # fmt: skip
    found = body.run_iterations(inputs, spec, min(iterations, budget.iterations_left()))
    if found is not None:
        budget.count_iterations(found.done)
    return found


def _stacked(values, axis, declared):
    """Blocks of values concatenated along a new axis; without values, empty of the declared type and sizes."""
    if not values:
        dtype, sizes = declared
        empty = np.zeros((0, *sizes), dtype)
        return np.moveaxis(empty, 0, axis)
    first = values[0]
    claim((sum(map(len, values)), *first.shape[1:]), first.dtype)
    return np.moveaxis(np.concatenate(values) if len(values) > 1 else first, 0, axis)


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    """Runs the body on each slice of the scan inputs, carrying state; its other results are stacked."""
    budget = current()
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    state, sources = initial_state_and_scan_inputs[:states], initial_state_and_scan_inputs[states:]
    axes, backwards = scan_input_axes or (0,) * num_scan_inputs, scan_input_directions or (0,) * num_scan_inputs
    rows = [np.moveaxis(x, axis, 0)[:: -1 if back else 1] for x, axis, back in zip(sources, axes, backwards, strict=True)]
    if len({len(r) for r in rows}) > 1:
        raise ValueError(f"the scan inputs have different lengths: {[len(r) for r in rows]}")
    declared = body.declared[states:]
    scanned = [[] for _ in declared]
    iteration, iterations = 0, len(rows[0])
    while iteration < iterations:
        inputs = (*state, *(r[iteration, ...] for r in rows))  # views, of scalars too
        batch = _run_several(body, inputs, iteration, iterations - iteration, 0, states, len(declared), rows)
        if batch is not None:
            iteration, state = iteration + batch.done, [batch.carried[i] for i in range(states)]
            for parts, values in zip(scanned, batch.scanned, strict=True):
                parts.append(values)
            continue
        budget.count_iterations()
        results = body(*inputs)
        state = results[:states]
        for parts, value in zip(scanned, results[states:], strict=True):
            budget.claim((iteration + 1, *value.shape), value.dtype)
            parts.append(value[None])
        iteration += 1
    out_axes, reverse = scan_output_axes or (0,) * len(scanned), scan_output_directions or (0,) * len(scanned)
    stacks = []
    for parts, axis, back, d in zip(scanned, out_axes, reverse, declared, strict=True):
        values = [v[::-1] for v in parts[::-1]] if back else parts
        stacks.append(_stacked(values, axis, d))
    return (*state, *stacks)
