"""Padding amounts from `auto_pad` and sizes, and the Pad operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.trace.tracer import Value, opaque_call, read_ints
from onnxbridge.hub.builder.auto_pad import Pads, explicit_pads

_AT_BORDER = {"reflect": "reflect", "edge": "replicate"}
"""ONNX padding modes that F.pad also supports."""


@opaque_call
def maximum_size(a: Any, b: Any) -> Any:
    """The larger of two sizes, which may be symbolic."""
    return torch.sym_max(a, b)


def pads_of(auto_pad: str, pads: Any, sizes: Sequence[Any], kernel: Any, strides: Any, dilations: Any) -> Pads:
    """The padding before and after each spatial dimension."""
    return explicit_pads(auto_pad, pads, sizes, kernel, strides, dilations, maximum_size)


def f_pad_order(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Padding in the order of F.pad: the last dimension first."""
    return [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]


@opaque_call
def padded(data: Any, before: Any, after: Any, axes: Any, mode: str, value: Any) -> Any:
    """Padding in every mode. Lengths may be tensors, which are read at run time; negative lengths crop."""
    if isinstance(before, torch.Tensor):
        both = read_ints(before)
        before, after = both[: len(both) // 2], both[len(both) // 2 :]
    axes = list(range(len(before)) if axes is None else axes if isinstance(axes, tuple) else read_ints(axes))
    pads = dict(zip([a % data.ndim for a in axes], zip(before, after, strict=True), strict=True))
    if mode == "constant":
        value = value.item() if isinstance(value, torch.Tensor) else value
        pairs_by_dim = [pads.get(d, (0, 0)) for d in range(data.ndim)]
        return F.pad(data, f_pad_order([b for b, _ in pairs_by_dim], [a for _, a in pairs_by_dim]), value=value)
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
            # Python's max on symbolic sizes specializes inside the branches of an exported program
            index = torch.remainder(index, torch.sym_max(2 * (size - 1), 1))
            index = torch.where(index >= size, 2 * (size - 1) - index, index)
        data = data.index_select(axis, index)
    return data


def pad_by_torch(data: Any, before: Any, after: Any, axes: Any, mode: str, value: Any) -> Any:
    """The equivalent call of F.pad, or None if there is none or if it depends on unknown sizes."""
    if not data.is_known or not isinstance(before, list) or not (axes is None or isinstance(axes, tuple)):
        return None
    dims = range(len(before)) if axes is None else axes
    pads = {a % data.ndim: (b, e) for a, b, e in zip(dims, before, after, strict=True) if not _all_zero(b, e)}
    first = min(pads, default=data.ndim)
    pairs_by_dim = [pads.get(d, (0, 0)) for d in range(first, data.ndim)]
    pairs = f_pad_order([b for b, _ in pairs_by_dim], [a for _, a in pairs_by_dim])
    if mode == "constant":
        if isinstance(value, Value):
            return None
        return F.pad(data, pairs, **({"value": value} if value else {})) if pads else torch.clone(data)
    in_range = all(_in_range(data.shape[d], pads.get(d, (0, 0)), mode) for d in range(first, data.ndim))
    supported = (
        mode in _AT_BORDER
        and 1 <= len(pairs_by_dim) <= 3
        and data.ndim - len(pairs_by_dim) in (1, 2)
        and data.dtype == torch.float32
    )
    return F.pad(data, pairs, mode=_AT_BORDER[mode]) if in_range and supported else None


def _all_zero(*lengths: Any) -> bool:
    return all(isinstance(n, int) and n == 0 for n in lengths)


def _in_range(size: Any, pair: Sequence[Any], mode: str) -> bool:
    """Whether F.pad supports this amount on a dimension: a non-empty one, and at most one reflection."""
    if not isinstance(size, int) or size < 1:
        return False
    return all(isinstance(n, int) and n >= 0 and (n < size or mode == "edge") for n in pair)
