"""Converts MIL's padding of convolutions and poolings to ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.errors import Unsupported


def split_pads(pad: Sequence[int] | None, space: int) -> tuple[list[int], list[int]]:
    """Split MIL's flat padding (before, after, before, after, ...) to before and after; zeros if there is none."""
    pad = pad or (0,) * (2 * space)
    return list(pad[::2]), list(pad[1::2])


def same_pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], *, lower: bool
) -> tuple[list[int], list[int]]:
    """The padding of `same`; if it is odd, there is one more after or, with `lower`, before."""
    result = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        result.append((total - total // 2, total // 2) if lower else (total // 2, total - total // 2))
    return [f for f, _ in result], [b for _, b in result]


def window(
    x: Any, kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None, pad_type: str,
    pad: Sequence[int] | None,
) -> dict[str, Any]:  # fmt: skip
    """The window attributes of ONNX operators for `x`: strides, dilations, and pads or auto_pad."""
    ones = (1,) * len(kernel)
    strides, dilations = strides or ones, dilations or ones
    result: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if pad_type in ("same", "same_lower"):
        lower = pad_type == "same_lower"
        sizes = list(x.shape)[2:]
        if not all(isinstance(n, int) for n in sizes):
            return result | {"auto_pad": "SAME_LOWER" if lower else "SAME_UPPER"}
        before, after = same_pads(sizes, kernel, strides, dilations, lower=lower)
    elif pad_type in ("valid", "custom"):
        before, after = split_pads(pad if pad_type == "custom" else None, len(kernel))
    else:
        raise Unsupported(f"pad_type {pad_type}")
    return result | {"pads": before + after} if any(before + after) else result
