"""Swish and HardSwish as exporters write them out: x times a sigmoid of x, or of x times a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import other, scalar
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.convolution import Ending, bent
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside
from onnxbridge.runtime.executor.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """One step for the sigmoid and the product."""
    for i, step in draft.steps("Sigmoid", "HardSigmoid"):
        follow = draft.user(step.targets[0])
        if follow is None or follow[1].op != "Mul":
            continue
        x, places, factor = step.sources[0], [i, follow[0]], 1.0
        taken = other(follow[1], step.targets[0])
        if taken != x:
            scaled = draft.maker(x)
            if scaled is None or scaled[1].op != "Mul" or draft.user(x) is None or taken not in scaled[1].sources:
                continue
            found = scalar(draft.constant(other(scaled[1], taken)))
            if found is None:
                continue
            x, factor = taken, found
            places.append(scaled[0])
        if step.op == "Sigmoid":
            draft.join(places, "Swish", _curve(step, follow[1], "Swish", pool), [x], follow[1].targets, {"alpha": factor})
        elif factor == 1 and math.isclose(step.attrs["alpha"], 1 / 6, rel_tol=1e-6) and step.attrs["beta"] == 0.5:
            draft.join(places, "HardSwish", _curve(step, follow[1], "HardSwish", pool), [x], follow[1].targets)


def _curve(inner: Step, product: Step, curve: str, pool: Pool) -> Callable[..., Any]:
    def run(X: Any, *, alpha: float = 1.0) -> Any:
        if X.dtype == np.float32 and X.size:
            return bent(X, Ending(curve=curve, a=alpha), pool)
        beside()
        scaled = X if alpha == 1 else X * X.dtype.type(alpha)
        return product.run(X, inner.run(scaled, **inner.attrs))

    return run
