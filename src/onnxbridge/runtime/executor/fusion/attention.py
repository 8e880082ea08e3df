"""Attention, as an operator and as exporters write it out: products, a factor, a mask, a softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import other, scalar
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import array_layout
from onnxbridge.runtime.executor.kernels import normalization as native
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, unrecorded
from onnxbridge.runtime.executor.plan import NOTHING, Step

_HOW = ("a head at a time", 0)


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of attention in float32."""
    for i, step in draft.steps("Attention"):
        if draft.single(step) and _usual(step):
            draft.swap(i, _operator(step, pool), _HOW)
    for i, step in draft.steps("Softmax"):
        _written_out(draft, i, step, pool)


def _usual(step: Step) -> bool:
    """Without caches, windows, caps or a softmax in another type."""
    a = step.attrs
    nothing = all(s == NOTHING for s in step.sources[4:])
    return nothing and not a["softcap"] and a["left_window_size"] < 0 and a["right_window_size"] < 0


def _operator(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(Q: Any, K: Any, V: Any, attn_mask: Any = None, *more: Any, **attrs: Any) -> Any:
        q, k, v = Q, K, V
        if Q.ndim == 3:
            counts = attrs["q_num_heads"], attrs["kv_num_heads"], attrs["kv_num_heads"]
            given = [array_layout.plain(x, pool) if x.dtype == np.float32 else x for x in (Q, K, V)]
            q, k, v = (x.reshape(*x.shape[:2], n, -1).transpose(0, 2, 1, 3) for x, n in zip(given, counts, strict=True))
        key = k.swapaxes(-1, -2)
        whole = attn_mask is None or attn_mask.shape[-1:] == key.shape[-1:]
        if not whole or not native.attends(q, key, v, attn_mask) or attrs["softmax_precision"] not in (None, 1):
            return plain(Q, K, V, attn_mask, *more, **attrs)
        factor = attrs["scale"] if attrs["scale"] is not None else 1 / math.sqrt(q.shape[-1])
        y = native.attention(q, key, v, factor, pool, attn_mask, bool(attrs["is_causal"]), True)
        return y.transpose(0, 2, 1, 3).reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y

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


def _scores(draft: Draft, slot: int) -> tuple[tuple[int, Step], list[int], float, int] | None:
    """The product that scores are made of, the steps behind it, their factor, and the mask or NOTHING."""
    found = draft.maker(slot)
    ways: list[tuple[int, list[int], int]] = [(slot, [], NOTHING)]
    if found is not None and found[1].op == "Add" and draft.user(slot) is not None:
        a, b = found[1].sources
        ways = [(a, [found[0]], b), (b, [found[0]], a)]
    for before, also, mask in ways:
        product, places, factor = _scaled(draft, before)
        made = draft.maker(product)
        if made is not None and made[1].op == "MatMul" and draft.user(product) is not None:
            return made, [*places, *also], factor, mask
    return None


def _written_out(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """MatMul, a factor, a mask that is added, Softmax and MatMul as one."""
    begun, used = _scores(draft, step.sources[0]), draft.user(step.targets[0])
    if begun is None or used is None or step.attrs["axis"] not in (-1, 3):
        return
    (j, first), places, factor, mask = begun
    k, second = used
    if second.op != "MatMul" or second.sources[0] != step.targets[0] or not other(second, step.targets[0]):
        return
    query, before, by = _scaled(draft, first.sources[0])
    key, also, again = _scaled(draft, first.sources[1])
    sources = [query, key, second.sources[1]]
    if any(draft.constant(s) is not None for s in sources):
        return
    whole, plain = factor * by * again, (first.run, step.run, second.run)

    def run(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        alike = query.shape[:-2] == key.shape[:-2] and (mask is None or mask.dtype == query.dtype)
        if alike and native.attends(query, key, value, mask):
            return native.attention(query, key, value, whole, pool, mask)
        beside()
        scores = plain[0](query, key) * query.dtype.type(whole)
        return plain[2](plain[1](scores if mask is None else scores + mask, axis=-1), value)

    given = [*sources, mask] if mask != NOTHING else sources
    draft.join([*before, *also, j, *places, i, k], "Attention", run, given, second.targets, how=_HOW)
