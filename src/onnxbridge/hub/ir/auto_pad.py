"""What `auto_pad` of convolutions and pools stands for, in sizes that a target may know only when the model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxbridge.errors import Unsupported

Pads = tuple[list[Any], list[Any]]


def halves(totals: Sequence[Any], auto_pad: str) -> Pads:
    """Padding before and after each axis; of an odd total the rest goes behind for SAME_UPPER, otherwise in front."""
    less = [t // 2 for t in totals]
    more = [t - half for t, half in zip(totals, less, strict=True)]
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def explicit(
    auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    larger: Callable[[Any, Any], Any] = max,
) -> Pads:  # fmt: skip
    """The padding before and after each spatial axis; `larger` is the target's maximum of two sizes.

    Raises:
        Unsupported: if it depends on a size that is None.
    """
    space = len(kernel)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        given = pads if pads and auto_pad != "VALID" else (0,) * (2 * space)
        return list(given[:space]), list(given[space:])
    totals = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        span = (k - 1) * d + 1
        if s != 1 and n is None:
            raise Unsupported(f"auto_pad={auto_pad} with strides and a dynamic size", "give the input a fixed shape")
        totals.append(span - 1 if s == 1 else larger((-(-n // s) - 1) * s + span - n, 0))
    return halves(totals, auto_pad)
