"""Arithmetic of whole numbers, comparisons and casts, as they count in loops and choose rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.fusion.draft import Draft
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.counting import ORDERS, changed, counted
from onnxbridge.runtime.native.tape import unrecorded
from onnxbridge.runtime.numpy.dtypes import dtype_of
from onnxbridge.runtime.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native loops in the place of comparisons and casts. What else is arithmetic `elementwise` sees to."""
    for i, step in draft.steps(*ORDERS):
        draft.swap(i, _compared(step, pool))
    for i, step in draft.steps("Cast"):
        draft.swap(i, _cast(step, pool))


def _compared(step: Step, pool: Pool) -> Callable[..., Any]:
    plain, op = unrecorded(step.run), step.op

    def run(A: Any, B: Any) -> Any:
        found = counted(op, A, B, pool)
        return plain(A, B) if found is None else found

    return run


def _cast(step: Step, pool: Pool) -> Callable[..., Any]:
    plain, dtype = unrecorded(step.run), dtype_of(step.attrs["to"])

    def run(input: Any, **attrs: Any) -> Any:
        found = changed(input, dtype, pool) if isinstance(input, np.ndarray) else None
        return plain(input, **attrs) if found is None else found

    return run
