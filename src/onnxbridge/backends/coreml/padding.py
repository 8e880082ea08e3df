"""Converts ONNX padding of convolutions and poolings to MIL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from onnxbridge.hub.builder.auto_pad import Pads, explicit_pads


def extent(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The size of a dilated kernel along each axis."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def pads_of(auto_pad: str, pads: Any, x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Pads:
    """The padding before and after each spatial axis.

    Raises:
        Unsupported: if it depends on a dynamic size.
    """
    sizes = [None if is_symbolic(n) else n for n in x.shape[2:]]
    return explicit_pads(auto_pad, pads, sizes, kernel, strides, dilations)


def is_same(auto_pad: str, x: Any, strides: Sequence[int] | None, dilations: Sequence[int] | None) -> bool:
    """Whether the padding is that of MIL's pad_type `same` and depends on a dynamic size."""
    dynamic = any(is_symbolic(n) for n in x.shape[2:])
    return auto_pad == "SAME_UPPER" and dynamic and max(strides or (1,)) > 1 and max(dilations or (1,)) == 1


def flat(pads: Pads) -> list[int]:
    """In MIL's order: before, after, before, after, ..."""
    return [int(p) for pair in zip(*pads, strict=True) for p in pair]
