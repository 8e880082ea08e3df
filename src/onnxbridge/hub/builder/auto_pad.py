"""Explicit padding for the `auto_pad` attribute of convolutions and pools; sizes may be dynamic values of a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxbridge.errors import Unsupported

Pads = tuple[list[Any], list[Any]]


def split_padding(totals: Sequence[Any], auto_pad: str) -> Pads:
    """Padding before and after each axis; the extra element of an odd total goes at the end for SAME_UPPER, else at the start."""
    smaller = [t // 2 for t in totals]
    larger = [t - half for t, half in zip(totals, smaller, strict=True)]
    return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)


def explicit_pads(
    auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    maximum: Callable[[Any, Any], Any] = max,
) -> Pads:  # fmt: skip
    """The padding before and after each spatial axis; `maximum` is the target's maximum of two sizes.

    Raises:
        Unsupported: if it depends on an unknown size (None).
    """
    rank = len(kernel)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        padding = pads if pads and auto_pad != "VALID" else (0,) * (2 * rank)
        return list(padding[:rank]), list(padding[rank:])
    totals = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        extent = (k - 1) * d + 1
        if s != 1 and n is None:
            raise Unsupported(f"auto_pad={auto_pad} with strides and a dynamic size", "give the input a fixed shape")
        totals.append(extent - 1 if s == 1 else maximum((-(-n // s) - 1) * s + extent - n, 0))
    return split_padding(totals, auto_pad)
