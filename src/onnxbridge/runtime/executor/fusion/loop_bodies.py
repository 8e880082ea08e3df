"""Bodies of control flow: joined as the graph around them, and those of loops recorded when they repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.loop_replay import Again
from onnxbridge.runtime.executor.plan import Plan

Fused = Callable[[Plan, Any, Pool, bool], Plan]

_LOOPS = ("Loop", "Scan")


def join(draft: Draft, pool: Pool, fused: Fused) -> None:
    """Replace the bodies by plans whose steps are fused by `fused`."""
    for i, step in draft.steps():
        if step.bodies:
            bodies = ((name, _joined(body, draft, step.op in _LOOPS, pool, fused)) for name, body in step.bodies)
            draft.rebody(i, tuple(bodies))


def _joined(body: Plan, draft: Draft, repeats: bool, pool: Pool, fused: Fused) -> Plan:
    """The plan with its steps joined; what is constant around it is constant in it."""
    known = {here: value for there, here in body.captured if (value := draft.constant(there)) is not None}
    captured = [(there, here) for there, here in body.captured if here not in known]
    found = fused(_straight(replace(body, captured=captured)), known, pool, True)
    if repeats and any(step.native for step in found.steps):
        found.again = Again()
    return found


def _straight(body: Plan) -> Plan:
    """The plan with what outputs are copies of as the outputs themselves."""
    copies = {step.targets[0]: step.sources[0] for step in body.steps if step.op == "Identity"}

    def origin(slot: int) -> int:
        while slot in copies:
            slot = copies[slot]
        return slot

    outputs = tuple(map(origin, body.outputs))
    return replace(body, outputs=outputs).pruned(outputs)
