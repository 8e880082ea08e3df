"""MIL's paddings of convolutions and pools in ONNX's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.errors import Unsupported


def ends(pad: Sequence[int] | None, space: int) -> tuple[list[int], list[int]]:
    """MIL's flat padding (before, after, before, after, ...) as what is before and what is after; none is zeros."""
    pad = pad or (0,) * (2 * space)
    return list(pad[::2]), list(pad[1::2])


def same_ends(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], *, lower: bool
) -> tuple[list[int], list[int]]:
    """The padding with which there is one window for each stride; what is odd goes behind, with `lower` in front."""
    found = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total - total // 2, total // 2) if lower else (total // 2, total - total // 2))
    return [f for f, _ in found], [b for _, b in found]


def window(
    x: Any, kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None, pad_type: str,
    pad: Sequence[int] | None,
) -> dict[str, Any]:  # fmt: skip
    """The attributes that ONNX's windows take for `x`: strides, dilations, and pads or auto_pad."""
    ones = (1,) * len(kernel)
    strides, dilations = strides or ones, dilations or ones
    found: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if pad_type in ("same", "same_lower"):
        lower = pad_type == "same_lower"
        sizes = list(x.shape)[2:]
        if not all(isinstance(n, int) for n in sizes):
            return found | {"auto_pad": "SAME_LOWER" if lower else "SAME_UPPER"}
        before, after = same_ends(sizes, kernel, strides, dilations, lower=lower)
    elif pad_type in ("valid", "custom"):
        before, after = ends(pad if pad_type == "custom" else None, len(kernel))
    else:
        raise Unsupported(f"pad_type {pad_type}")
    return found | {"pads": before + after} if any(before + after) else found
