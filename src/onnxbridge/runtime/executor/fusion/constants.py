"""Constant folding, and removal of steps that do nothing at inference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.plan import NOTHING, Step

_MANY = 1 << 16  # elements from which a constant of one value is stored as a broadcast scalar


def fold(rewriter: PlanRewriter) -> None:
    """Fold steps that depend on constants only. A step that fails is left: it fails when it is run."""
    for i, step in rewriter.steps():
        if step.forms:
            step = rewriter.with_constant_forms(i, step)
        if step.op == "Identity" or _does_nothing(rewriter, step):
            rewriter.forward(i)
        elif not step.bodies and not step.forms and step.kind != "random":
            values = [rewriter.constant(s) for s in step.sources]
            if all(v is not None or s == NOTHING for v, s in zip(values, step.sources, strict=True)):
                results = _results(step, values)
                if results is not None:
                    rewriter.set_results(i, results)


def _results(step: Step, values: list[Any]) -> tuple[Any, ...] | None:
    try:
        results = _filled(step, values) or step.run(*values, **step.attrs)
    except Exception:
        return None
    results = results if isinstance(results, tuple) else (results,)
    known = all(isinstance(r, np.ndarray | np.generic) for r in results)
    return tuple(np.asarray(r) for r in results) if known and len(results) >= len(step.targets) else None


def _filled(step: Step, values: list[Any]) -> tuple[Any, ...] | None:
    """A large ConstantOfShape as a broadcast scalar."""
    sizes = values[0] if step.op == "ConstantOfShape" else ()
    if math.prod(sizes) < _MANY:
        return None
    fill = step.attrs.get("value")
    fill = np.zeros((), np.float32) if fill is None else np.asarray(fill).reshape(())
    claim(sizes, fill.dtype)
    return (np.broadcast_to(fill, sizes),)


def _does_nothing(rewriter: PlanRewriter, step: Step) -> bool:
    """Whether a step is a Dropout at inference, without its mask."""
    if step.op != "Dropout" or rewriter.single(step) == NOTHING:
        return False
    mode = step.sources[2] if len(step.sources) > 2 else NOTHING
    training = rewriter.constant(mode)
    return mode == NOTHING or (training is not None and not np.any(training))
