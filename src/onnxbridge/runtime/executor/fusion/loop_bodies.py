"""Bodies of control flow: optimized as the main graph, and those of loops recorded when they repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.loop_replay import LoopReplay
from onnxbridge.runtime.executor.plan import Plan

Fused = Callable[[Plan, Any, Pool, bool], Plan]

_LOOPS = ("Loop", "Scan")


def rewrite(rewriter: PlanRewriter, pool: Pool, fused: Fused) -> None:
    """Replace the bodies by plans whose steps are fused by `fused`."""
    for i, step in rewriter.steps():
        if step.bodies:
            bodies = ((name, _fused_body(body, rewriter, step.op in _LOOPS, pool, fused)) for name, body in step.bodies)
            rewriter.set_bodies(i, tuple(bodies))


def _fused_body(body: Plan, rewriter: PlanRewriter, repeats: bool, pool: Pool, fused: Fused) -> Plan:
    """The optimized plan of a body, in which captured constants are constants."""
    known = {here: value for there, here in body.captured if (value := rewriter.constant(there)) is not None}
    captured = [(there, here) for there, here in body.captured if here not in known]
    found = fused(_without_identities(replace(body, captured=captured)), known, pool, True)
    if repeats and any(step.native for step in found.steps):
        found.replay = LoopReplay()
    return found


def _without_identities(body: Plan) -> Plan:
    """The plan without Identity steps before its outputs."""
    copies = {step.targets[0]: step.sources[0] for step in body.steps if step.op == "Identity"}

    def origin(slot: int) -> int:
        while slot in copies:
            slot = copies[slot]
        return slot

    outputs = tuple(map(origin, body.outputs))
    return replace(body, outputs=outputs).pruned(outputs)
