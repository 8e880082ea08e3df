"""Keeps torchvision's detectors traceable: where they choose between two ways to the same result by the number of boxes."""

from __future__ import annotations

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
