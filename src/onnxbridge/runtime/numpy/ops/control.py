"""Control flow; subgraphs are callables that see the values around them."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.limits import claim, current
from onnxbridge.rules import Bool, Int
from onnxbridge.runtime.numpy.ops import rule


@rule("If")
def if_(cond: Bool, *, then_branch, else_branch):
    return then_branch() if cond else else_branch()


@rule("Loop")
def loop(M: Int | None = None, cond: Bool | None = None, *v_initial, body):
    """Runs while `cond` holds and at most M times; what the body gives beyond the carried values is stacked."""
    budget = current()
    state, going = v_initial, True if cond is None else cond
    # the executor's bodies say what they give, for the case that they never run; the walker's do not
    declared = getattr(body, "declared", ())[1 + len(v_initial) :]
    scanned = [[] for _ in declared]
    trip = 0
    while going and (M is None or trip < M):
        budget.trip()
        flag, *results = body(np.array(trip, np.int64), np.array(going), *state)
        going = bool(flag)
        state = results[: len(state)]
        scanned = scanned or [[] for _ in results[len(state) :]]
        for made, value in zip(scanned, results[len(state) :], strict=True):
            budget.claim((trip + 1, *value.shape), value.dtype)
            made.append(value)
        trip += 1
    return (*state, *(_stacked(made, 0, d) for made, d in zip(scanned, declared or [None] * len(scanned), strict=True)))


def _stacked(values, axis, declared):
    """The values along a new axis; of none, the declared type and sizes."""
    if not values:
        dtype, sizes = declared
        empty = np.zeros((0, *sizes), dtype)
        return np.moveaxis(empty, 0, axis)
    claim((len(values), *values[0].shape), values[0].dtype)
    return np.stack(values, axis)


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
    for slices in zip(*rows, strict=True):
        budget.trip()
        results = body(*state, *map(np.asarray, slices))
        state = results[:states]
        for made, value in zip(scanned, results[states:], strict=True):
            budget.claim((len(made) + 1, *value.shape), value.dtype)
            made.append(value)
    out_axes, reverse = scan_output_axes or (0,) * len(scanned), scan_output_directions or (0,) * len(scanned)
    stacks = [
        _stacked(made[:: -1 if back else 1], axis, d)
        for made, axis, back, d in zip(scanned, out_axes, reverse, declared, strict=True)
    ]
    return (*state, *stacks)
