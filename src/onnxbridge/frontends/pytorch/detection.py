"""Keeps code traceable whose sizes depend on data, as detectors' do: counts of boxes stay symbols where Python wants numbers."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


def _batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Suppress boxes within each class, by moving each class to a place of its own; also where there is no box at all."""
    torch = frameworks.torch()
    largest = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    moved = boxes + (idxs.to(boxes) * (largest + 1))[:, None]
    return torch.ops.torchvision.nms(moved, scores, iou_threshold)


@contextlib.contextmanager
def one_way() -> Iterator[None]:
    """While inside, boxes of several classes are suppressed at once.

    torchvision does that for up to a thousand boxes and takes class by class beyond; a trace cannot follow such a choice.
    """
    boxes: Any = sys.modules.get("torchvision.ops.boxes")
    if boxes is None:
        yield
        return
    kept = boxes.batched_nms
    boxes.batched_nms = _batched_nms
    try:
        yield
    finally:
        boxes.batched_nms = kept


@contextlib.contextmanager
def symbolic_lengths() -> Iterator[None]:
    """While inside, `len` of a tensor is its first size, also where that is known only when the model runs.

    Python's own `len` asks such a size for a number, which ends the trace.
    """
    torch = frameworks.torch()
    kept = builtins.len

    def length(x: Any, /) -> Any:
        if isinstance(x, torch.Tensor) and x.dim() and not isinstance(x.shape[0], int):
            return x.shape[0]
        return kept(x)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = kept
