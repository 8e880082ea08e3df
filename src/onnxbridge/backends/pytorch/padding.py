"""How much a convolution or pool pads, from `auto_pad` and the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxbridge.backends.pytorch.recorder import leaf


@leaf
def at_least(a: Any, b: Any) -> Any:
    """The larger of two sizes, which may be known only when the module runs."""
    return torch.sym_max(a, b)


def same_pads(totals: Sequence[Any], upper: bool) -> tuple[list[Any], list[Any]]:
    """Padding in two halves; of an odd one the rest goes behind for `upper`, otherwise in front."""
    less = [t // 2 for t in totals]
    more = [t - half for t, half in zip(totals, less, strict=True)]
    return (less, more) if upper else (more, less)


def pads_of(
    auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The padding before and after each spatial dimension."""
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            at_least((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        return same_pads(totals, auto_pad == "SAME_UPPER")
    given = pads if pads and auto_pad != "VALID" else (0,) * (2 * rank)
    return given[:rank], given[rank:]


def reach(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Padding as F.pad takes it: the last dimension first."""
    return [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]
