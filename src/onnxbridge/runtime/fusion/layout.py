"""Concatenation and shuffling of channels without leaving the layout with channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.limits import claim
from onnxbridge.runtime.fusion.draft import Draft
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import address
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.plan import Step


def join(draft: Draft, pool: Pool) -> None:
    """Concat along the channels, and Reshape, Transpose, Reshape that interleaves groups of channels."""
    for i, step in draft.steps("Concat"):
        if step.attrs["axis"] in (1, -3):
            draft.swap(i, _concat(step, pool))
    for i, step in draft.steps("Transpose"):
        if tuple(step.attrs["perm"] or ()) == (0, 2, 1, 3, 4):
            _shuffle(draft, i, step, pool)


def _last(x: Any) -> bool:
    return bool(x.ndim == 4 and x.transpose(0, 2, 3, 1).flags.c_contiguous)


def _concat(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = step.run

    def run(*inputs: Any, axis: int) -> Any:
        if not any(_last(x) and not x.flags.c_contiguous for x in inputs) or any(x.ndim != 4 for x in inputs):
            return plain(*inputs, axis=axis)
        seen = [x.transpose(0, 2, 3, 1) for x in inputs]
        shape = (*seen[0].shape[:3], sum(x.shape[3] for x in seen))
        claim(shape, inputs[0].dtype)
        y = np.concatenate(seen, axis=3, out=pool.empty(shape, inputs[0].dtype))
        return y.transpose(0, 3, 1, 2)

    return run


def _shuffle(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    made, used = draft.maker(step.sources[0]), draft.user(step.targets[0])
    if made is None or used is None or draft.user(step.sources[0]) is None:
        return
    (j, split), (k, whole) = made, used
    if split.op != "Reshape" or whole.op != "Reshape" or split.forms or whole.forms:
        return
    five, four = draft.constant(split.sources[1]), draft.constant(whole.sources[1])
    if five is None or four is None or len(five) != 5 or len(four) != 4:
        return
    plain, attrs = (split.run, step.run, whole.run), (split.attrs, step.attrs, whole.attrs)

    def run(x: Any) -> Any:
        groups, each = five[1], five[2]
        kept = x.ndim == 4 and (*five[:1], *five[3:]) == (x.shape[0], *x.shape[2:]) and four == x.shape
        if not kept or not _last(x) or groups * each != x.shape[1] or x.dtype != np.float32:
            return plain[2](plain[1](plain[0](x, five, **attrs[0]), **attrs[1]), four, **attrs[2])
        seen = x.transpose(0, 2, 3, 1)
        y = pool.empty(seen.shape)
        loop("layout", "interleaved", "iiiii")(address(seen), address(y), y.size // (groups * each), groups, each)
        return y.transpose(0, 3, 1, 2)

    draft.join([j, i, k], "Shuffle", run, [split.sources[0]], whole.targets)
