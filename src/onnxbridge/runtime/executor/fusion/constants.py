"""Steps on constants alone are run once; steps that do nothing when a model is used are taken out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.plan import NOTHING, Step

_MANY = 1 << 16  # elements from which a constant of one value is kept as that value


def fold(draft: Draft) -> None:
    """Work out what depends on constants only. A step that fails is left: it fails when it is its turn."""
    for i, step in draft.steps():
        if step.forms:
            step = draft.known(i, step)
        if step.op == "Identity" or _idle(draft, step):
            draft.forward(i)
        elif not step.bodies and not step.forms and step.kind != "random":
            values = [draft.constant(s) for s in step.sources]
            if all(v is not None or s == NOTHING for v, s in zip(values, step.sources, strict=True)):
                results = _results(step, values)
                if results is not None:
                    draft.settle(i, results)


def _results(step: Step, values: list[Any]) -> tuple[Any, ...] | None:
    try:
        results = _uniform(step, values) or step.run(*values, **step.attrs)
    except Exception:
        return None
    results = results if isinstance(results, tuple) else (results,)
    known = all(isinstance(r, np.ndarray | np.generic) for r in results)
    return tuple(np.asarray(r) for r in results) if known and len(results) >= len(step.targets) else None


def _uniform(step: Step, values: list[Any]) -> tuple[Any, ...] | None:
    """One value in every place, without the memory for it, where that is much."""
    sizes = values[0] if step.op == "ConstantOfShape" else ()
    if math.prod(sizes) < _MANY:
        return None
    fill = step.attrs.get("value")
    fill = np.zeros((), np.float32) if fill is None else np.asarray(fill).reshape(())
    claim(sizes, fill.dtype)
    return (np.broadcast_to(fill, sizes),)


def _idle(draft: Draft, step: Step) -> bool:
    """Dropout outside of training, without its mask."""
    if step.op != "Dropout" or draft.single(step) == NOTHING:
        return False
    mode = step.sources[2] if len(step.sources) > 2 else NOTHING
    training = draft.constant(mode)
    return mode == NOTHING or (training is not None and not np.any(training))
