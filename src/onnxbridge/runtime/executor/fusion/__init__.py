"""What is done to a compiled plan before it runs: constants worked out once, and steps joined into single kernels.

A pass is a function of the draft of a plan; it looks for steps by their operators and puts one step in the place of several.
Passes never touch the plan that they start from, by which intermediate values stay reachable under their names. What a
pass cannot know when the plan is made (shapes, types) its kernel looks at when it runs, and takes the plain rule if need be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion import (
    attention,
    constants,
    convolutions,
    dynamic_quantization,
    elementwise,
    integers,
    layout,
    loop_bodies,
    norms,
    pools,
    products,
    quant,
    recurrent,
    resampling,
    sums,
    trees,
)
from onnxbridge.runtime.executor.fusion.canonical import canonical
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.plan import Plan

__all__ = ["canonical", "fused"]

# Those that look for what others would take apart come first.
_FAMILIES = (
    convolutions, products, dynamic_quantization, attention, norms, recurrent, trees, pools, sums, resampling, layout, quant,
    elementwise,
)  # fmt: skip


def fused(plan: Plan, defaults: Mapping[int, Any], pool: Pool, compiled: bool) -> Plan:
    """A plan with the same results up to rounding; without compiled kernels only the constants are worked out.

    `defaults` are the values of inputs that have one and are not fed.
    """
    draft = Draft(plan, defaults)
    if compiled:
        integers.join(draft, pool)
    constants.fold(draft)
    if compiled:
        for family in _FAMILIES:
            family.join(draft, pool)
        loop_bodies.join(draft, pool, fused)
    return draft.plan()
