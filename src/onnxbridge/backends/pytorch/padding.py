"""How much a convolution or pool pads, from `auto_pad` and the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxbridge.backends.pytorch.recorder import leaf
from onnxbridge.hub.padding import Pads, explicit


@leaf
def at_least(a: Any, b: Any) -> Any:
    """The larger of two sizes, which may be known only when the module runs."""
    return torch.sym_max(a, b)


def pads_of(auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Any, strides: Any, dilations: Any) -> Pads:
    """The padding before and after each spatial dimension."""
    return explicit(auto_pad, pads, sizes, kernel, strides, dilations, at_least)


def reach(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Padding as F.pad takes it: the last dimension first."""
    return [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]
