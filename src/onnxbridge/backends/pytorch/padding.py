"""Padding: how much a convolution or pool pads, from `auto_pad` and the sizes, and the operator itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.trace.tracer import Value, leaf, read
from onnxbridge.hub.ir.auto_pad import Pads, explicit

_AT_BORDER = {"reflect": "reflect", "edge": "replicate"}
"""The standard's modes that F.pad has too."""


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


@leaf
def padded(data: Any, before: Any, after: Any, axes: Any, mode: str, value: Any) -> Any:
    """Padding in every mode; lengths may be tensors, read when the module runs, and negative ones cut."""
    if isinstance(before, torch.Tensor):
        both = read(before)
        before, after = both[: len(both) // 2], both[len(both) // 2 :]
    axes = list(range(len(before)) if axes is None else axes if isinstance(axes, tuple) else read(axes))
    pads = dict(zip([a % data.ndim for a in axes], zip(before, after, strict=True), strict=True))
    if mode == "constant":
        value = value.item() if isinstance(value, torch.Tensor) else value
        each = [pads.get(d, (0, 0)) for d in range(data.ndim)]
        return F.pad(data, reach([b for b, _ in each], [a for _, a in each]), value=value)
    for axis, (b, a) in pads.items():
        if isinstance(b, int) and isinstance(a, int) and b == a == 0:
            continue
        size = data.shape[axis]
        index = torch.arange(-b, size + a, device=data.device)
        if mode == "edge":
            index = index.clamp(0, size - 1)
        elif mode == "wrap":
            index = torch.remainder(index, size)
        else:
            # Python's max of sizes becomes the least inside the branches of a program
            index = torch.remainder(index, torch.sym_max(2 * (size - 1), 1))
            index = torch.where(index >= size, 2 * (size - 1) - index, index)
        data = data.index_select(axis, index)
    return data


def pad_by_torch(data: Any, before: Any, after: Any, axes: Any, mode: str, value: Any) -> Any:
    """The call of F.pad that does the same, None where none does or sizes that are not known decide."""
    if not data.is_known or not isinstance(before, list) or not (axes is None or isinstance(axes, tuple)):
        return None
    places = range(len(before)) if axes is None else axes
    pads = {a % data.ndim: (b, e) for a, b, e in zip(places, before, after, strict=True) if not _is_none(b, e)}
    first = min(pads, default=data.ndim)
    each = [pads.get(d, (0, 0)) for d in range(first, data.ndim)]
    pairs = reach([b for b, _ in each], [a for _, a in each])
    if mode == "constant":
        if isinstance(value, Value):
            return None
        return F.pad(data, pairs, **({"value": value} if value else {})) if pads else torch.clone(data)
    inside = all(_reaches(data.shape[d], pads.get(d, (0, 0)), mode) for d in range(first, data.ndim))
    fits = mode in _AT_BORDER and 1 <= len(each) <= 3 and data.ndim - len(each) in (1, 2) and data.dtype == torch.float32
    return F.pad(data, pairs, mode=_AT_BORDER[mode]) if inside and fits else None


def _is_none(*lengths: Any) -> bool:
    return all(isinstance(n, int) and n == 0 for n in lengths)


def _reaches(size: Any, pair: Sequence[Any], mode: str) -> bool:
    """Whether F.pad takes so much of a size: an element at least, and no reflection of a reflection."""
    if not isinstance(size, int) or size < 1:
        return False
    return all(isinstance(n, int) and n >= 0 and (n < size or mode == "edge") for n in pair)
