"""Padding amounts of convolutions and pools, and padding itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from onnxbridge.backends.tensorflow.sizes import is_fixed, packed, size
from onnxbridge.hub.builder.auto_pad import Pads, explicit_pads


def larger(a: Any, b: Any) -> Any:
    return max(a, b) if is_fixed(a, b) else tf.maximum(a, b)


def pads_of(auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Any, strides: Any, dilations: Any) -> Pads:
    """The padding before and after each spatial dimension."""
    return explicit_pads(auto_pad, pads, sizes, kernel, strides, dilations, larger)


def padded(x: Any, before: Sequence[Any], after: Sequence[Any], value: Any = 0, start: int = 2) -> Any:
    """`x` with its dimensions from `start` on padded; negative amounts crop."""
    if all(is_fixed(p) and p == 0 for p in (*before, *after)):
        return x
    if any(not is_fixed(p) or p < 0 for p in (*before, *after)):
        cuts = [slice(None)] * start
        for d, (b, a) in enumerate(zip(before, after, strict=True)):
            end = size(x, start + d) + (min(a, 0) if is_fixed(a) else tf.minimum(a, 0))
            cuts.append(slice(larger(-b, 0), end))
        x = x[tuple(cuts)]
    pairs = [packed([0, 0])] * start + [packed([larger(b, 0), larger(a, 0)]) for b, a in zip(before, after, strict=True)]
    pairs += [packed([0, 0])] * (len(x.shape) - len(pairs))
    filling = "" if x.dtype == tf.string else tf.cast(value, x.dtype)
    return tf.pad(x, tf.stack(pairs), constant_values=filling)
