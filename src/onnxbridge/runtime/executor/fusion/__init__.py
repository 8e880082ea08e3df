"""Optimization of a compiled plan: constant folding, and fusion of steps into kernels.

A pass is a function of a `PlanRewriter`; it finds steps by their operators and replaces several by one.
Passes do not change the original plan, which is used where intermediate values are requested by name. What a
pass cannot know when the plan is made (shapes, dtypes) its kernel checks when it runs; it falls back to the rule if need be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion import constants, elementwise, layout, loop_bodies, sums
from onnxbridge.runtime.executor.fusion.canonical import canonical
from onnxbridge.runtime.executor.fusion.layers import (
    attention,
    convolutions,
    norms,
    pools,
    products,
    recurrent,
    resampling,
    trees,
)
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.fusion.quantized import dynamic_quantization, integers, quant
from onnxbridge.runtime.executor.plan import Plan

__all__ = ["canonical", "fused"]

# Passes whose patterns others would break come first.
_FAMILIES = (
    convolutions, products, dynamic_quantization, attention, norms, recurrent, trees, pools, sums, resampling, layout, quant,
    elementwise,
)  # fmt: skip


def fused(plan: Plan, defaults: Mapping[int, Any], pool: Pool, compiled: bool) -> Plan:
    """A plan with the same results up to rounding; without compiled kernels only constants are folded.

    `defaults` are the values of inputs that have one and are not fed.
    """
    rewriter = PlanRewriter(plan, defaults)
    if compiled:
        integers.rewrite(rewriter, pool)
    constants.fold(rewriter)
    if compiled:
        for family in _FAMILIES:
            family.rewrite(rewriter, pool)
        loop_bodies.rewrite(rewriter, pool, fused)
    return rewriter.plan()
