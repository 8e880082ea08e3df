"""Attention by a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import array_layout
from onnxbridge.runtime.executor.kernels import normalization as native
from onnxbridge.runtime.executor.plan import NOTHING, Step

_ALGORITHM = ("a head at a time", 0)


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace attention in float32 by kernels."""
    for i, step in rewriter.steps("Attention"):
        if rewriter.single(step) and _supported(step):
            rewriter.swap(i, _kernel(pool), _ALGORITHM)


def _supported(step: Step) -> bool:
    """Without caches, windows, caps or a softmax in another type."""
    a = step.attrs
    nothing = all(s == NOTHING for s in step.sources[4:])
    return nothing and not a["softcap"] and a["left_window_size"] < 0 and a["right_window_size"] < 0


def _kernel(pool: Pool) -> Callable[..., Any]:
    def run(Q: Any, K: Any, V: Any, attn_mask: Any = None, *more: Any, **attrs: Any) -> Any:
        q, k, v = Q, K, V
        if Q.ndim == 3:
            counts = attrs["q_num_heads"], attrs["kv_num_heads"], attrs["kv_num_heads"]
            given = [array_layout.plain(x, pool) if x.dtype == np.float32 else x for x in (Q, K, V)]
            q, k, v = (x.reshape(*x.shape[:2], n, -1).transpose(0, 2, 1, 3) for x, n in zip(given, counts, strict=True))
        key = k.swapaxes(-1, -2)
        whole = attn_mask is None or attn_mask.shape[-1:] == key.shape[-1:]
        if not whole or not native.attends(q, key, v, attn_mask) or attrs["softmax_precision"] not in (None, 1):
            return None
        factor = attrs["scale"] if attrs["scale"] is not None else 1 / math.sqrt(q.shape[-1])
        y = native.attention(q, key, v, factor, pool, attn_mask, bool(attrs["is_causal"]), True)
        return y.transpose(0, 2, 1, 3).reshape(*Q.shape[:2], -1) if Q.ndim == 3 else y

    return run
