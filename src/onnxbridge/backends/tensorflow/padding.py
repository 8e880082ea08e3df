"""How much a convolution or pool pads, and padding itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from onnxbridge.backends.tensorflow.sizes import is_fixed, packed, size


def larger(a: Any, b: Any) -> Any:
    return max(a, b) if is_fixed(a, b) else tf.maximum(a, b)


def same_pads(totals: Sequence[Any], upper: bool) -> tuple[list[Any], list[Any]]:
    """Padding in two halves; of an odd one the rest goes behind for `upper`, otherwise in front."""
    less = [t // 2 for t in totals]
    more = [t - half for t, half in zip(totals, less, strict=True)]
    return (less, more) if upper else (more, less)


def pads_of(
    auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """The padding before and after each spatial dimension."""
    count = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            larger((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        return same_pads(totals, auto_pad == "SAME_UPPER")
    given = pads if pads and auto_pad != "VALID" else (0,) * (2 * count)
    return list(given[:count]), list(given[count:])


def padded(x: Any, before: Sequence[Any], after: Sequence[Any], value: Any = 0, start: int = 2) -> Any:
    """`x` with its dimensions from `start` on padded; negative lengths cut."""
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
    return tf.pad(x, tf.stack(pairs), constant_values=tf.cast(value, x.dtype))
