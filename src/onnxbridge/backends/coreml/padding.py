"""Padding of convolutions and pools, from ONNX's terms in MIL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.backends.coreml.sizes import fixed
from onnxbridge.errors import Unsupported

Pads = tuple[Sequence[int], Sequence[int]]


def extent(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """How many elements a dilated kernel spans."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def explicit(
    auto_pad: str, pads: Sequence[int] | None, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Pads:
    """The padding before and after each spatial axis, with `auto_pad` worked out.

    Raises:
        Unsupported: if it depends on a size that only the running model knows.
    """
    space = len(kernel)
    if auto_pad in ("NOTSET", ""):
        pads = pads or (0,) * (2 * space)
        return pads[:space], pads[space:]
    if auto_pad == "VALID":
        return (0,) * space, (0,) * space
    spans = extent(kernel, dilations)
    if all(s == 1 for s in strides):
        totals = [k - 1 for k in spans]
    elif fixed(x, range(2, x.rank)):
        totals = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(x.shape[2:], strides, spans, strict=True)]
    else:
        raise Unsupported(f"auto_pad={auto_pad} with strides and a dynamic size", "give the input a fixed shape")
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (less, more) if auto_pad == "SAME_UPPER" else (more, less)


def flat(pads: Pads) -> list[int]:
    """As MIL writes it: before, after, before, after, ..."""
    return [int(p) for pair in zip(*pads, strict=True) for p in pair]
