"""LayerNormalization with the sum before it, softmax, and attention as exporters write it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.fusion.draft import Draft
from onnxbridge.runtime.fusion.endings import other, scalar, single
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native import normalization as native
from onnxbridge.runtime.native.tape import beside, unrecorded
from onnxbridge.runtime.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of attention, LayerNormalization and Softmax along the last axis."""
    for i, step in draft.steps("Softmax"):
        _attention(draft, i, step, pool)
    for i, step in draft.steps("Softmax"):
        draft.swap(i, _softmax(step, pool))
    for i, step in draft.steps("LayerNormalization"):
        if draft.single(step) and step.attrs["axis"] == -1 and single(draft.constant(step.sources[1])):
            shift = draft.constant(step.sources[2]) if len(step.sources) > 2 else None
            if len(step.sources) < 3 or step.sources[2] == NOTHING or single(shift):
                draft.swap(i, _layer(step, pool))


def _layer(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(X: Any, Scale: Any, B: Any = None, **attrs: Any) -> Any:
        fits = Scale.shape == X.shape[-1:] and (B is None or B.shape == Scale.shape)
        if not fits or X.dtype != np.float32 or not X.size:
            return plain(X, Scale, B, **attrs)
        return native.normalized(X, None, Scale, B, attrs["epsilon"], pool)[0]

    return run


def _softmax(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(input: Any, *, axis: int) -> Any:
        if input.dtype == np.float32 and input.size and axis % input.ndim == input.ndim - 1:
            return native.softmax(input, pool)
        return plain(input, axis=axis)

    return run


def _scaled(draft: Draft, slot: int) -> tuple[int, list[int], float]:
    """A value without the constant factor that it is made with: the value, the steps, the factor."""
    found = draft.maker(slot)
    if found is None or draft.user(slot) is None or found[1].op not in ("Mul", "Div"):
        return slot, [], 1.0
    i, step = found
    for k in (0, 1) if step.op == "Mul" else (1,):
        factor = scalar(draft.constant(step.sources[k]))
        if factor is not None:
            return step.sources[1 - k], [i], factor if step.op == "Mul" else 1 / factor
    return slot, [], 1.0


def _attention(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """MatMul, a factor, Softmax and MatMul as one."""
    scores, places, factor = _scaled(draft, step.sources[0])
    made, used = draft.maker(scores), draft.user(step.targets[0])
    if made is None or used is None or draft.user(scores) is None or step.attrs["axis"] not in (-1, 3):
        return
    (j, first), (k, second) = made, used
    if first.op != "MatMul" or second.op != "MatMul":
        return
    if second.sources[0] != step.targets[0] or not other(second, step.targets[0]):
        return
    query, before, by = _scaled(draft, first.sources[0])
    key, also, again = _scaled(draft, first.sources[1])
    sources = [query, key, second.sources[1]]
    if any(draft.constant(s) is not None for s in sources):
        return
    whole, plain = factor * by * again, (first.run, step.run, second.run)

    def run(query: Any, key: Any, value: Any) -> Any:
        q, k, v = query.shape, key.shape, value.shape
        kinds = query.dtype == key.dtype == value.dtype == np.float32
        if kinds and len(q) in (3, 4) and q[:-2] == k[:-2] == v[:-2] and query.size and key.size and value.size:
            return native.attention(query, key, value, whole, pool)
        beside()
        scores = plain[0](query, key) * query.dtype.type(whole)
        return plain[2](plain[1](scores, axis=-1), value)

    draft.join([*before, *also, j, *places, i, k], "Attention", run, sources, second.targets, how=("a head at a time", 0))
