"""Keeps code traceable whose sizes depend on data, as detectors' do: counts of boxes stay symbols where Python wants numbers, and
what torchvision does box by box is done for all boxes at once."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from onnxbridge import frameworks


def _batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Suppress boxes within each class, by moving each class to a place of its own; also where there is no box at all."""
    torch = frameworks.torch()
    largest = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    moved = boxes + (idxs.to(boxes) * (largest + 1))[:, None]
    return torch.ops.torchvision.nms(moved, scores, iou_threshold)


def _paste_masks_in_image(masks: Any, boxes: Any, img_shape: Any, padding: int = 1) -> Any:
    """Every mask resized into its box at once: for each box, the linear weights of a mask's rows at the rows of the image."""
    torch = frameworks.torch()
    heads = sys.modules["torchvision.models.detection.roi_heads"]
    masks, scale = heads.expand_masks(masks, padding=padding)
    boxes = heads.expand_boxes(boxes, scale).to(dtype=torch.int64)

    def weights(low: Any, high: Any, size: Any, held: int) -> Any:
        place = torch.arange(size, device=boxes.device)
        low, length = low[:, None], (high - low + 1)[:, None]
        source = ((place - low).to(masks) + 0.5) * (held / length.to(masks)) - 0.5
        near = 1 - (source.clamp(0, held - 1)[..., None] - torch.arange(held, device=boxes.device)).abs()
        inside = (place >= low) & (place <= high[:, None])
        return near.clamp(min=0) * inside[..., None]

    rows = weights(boxes[:, 1], boxes[:, 3], img_shape[0], masks.shape[-2])
    columns = weights(boxes[:, 0], boxes[:, 2], img_shape[1], masks.shape[-1])
    return (rows @ masks[:, 0] @ columns.mT)[:, None]


def _cubic(size: Any, lengths: Any, held: int) -> Any:
    """The weights of bicubic resizing to each of these lengths, written out to the same size: at [box, place, element]."""
    torch = frameworks.torch()
    source = (torch.arange(size, device=lengths.device) + 0.5) * (held / lengths)[:, None] - 0.5
    first = source.floor()
    t = source - first
    found = 0.0
    for tap in (-1, 0, 1, 2):
        d = (t - tap).abs()
        a = -0.75
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
        index = (first + tap).clamp(0, held - 1)[..., None]
        found = found + (near if tap in (0, 1) else far)[..., None] * (index == torch.arange(held, device=lengths.device))
    return found


def _heatmaps_to_keypoints(maps: Any, rois: Any) -> Any:
    """Every heatmap resized to its box at once, in an array as large as the largest, and the place of its maximum in the box."""
    torch = frameworks.torch()
    sizes = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    whole = sizes.ceil()
    most = torch.cat([whole, whole.new_ones(1, 2)]).amax(0).to(torch.int64)
    width, height = most[0].item(), most[1].item()
    for size in (width, height):
        torch._check(size >= 1)
    rows, columns = _cubic(height, whole[:, 1], maps.shape[2]), _cubic(width, whole[:, 0], maps.shape[3])
    resized = rows[:, None] @ maps @ columns[:, None].mT
    inside = (torch.arange(height, device=maps.device)[:, None] < whole[:, 1, None, None]) & (
        torch.arange(width, device=maps.device) < whole[:, 0, None, None]
    )
    flat = resized.masked_fill(~inside[:, None], -torch.inf).flatten(2)
    place = flat.argmax(dim=2)
    score = flat.gather(2, place[..., None])[..., 0]
    found = [place % width, torch.div(place, width, rounding_mode="floor")]
    correction, corner = sizes / whole, rois[:, :2]
    xy = [(p.float() + 0.5) * correction[:, i, None] + corner[:, i, None] for i, p in enumerate(found)]
    return torch.stack([*xy, torch.ones_like(xy[0])], dim=2), score


_ONE_WAY: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("torchvision.ops.boxes", "batched_nms", _batched_nms),
    ("torchvision.models.detection.transform", "paste_masks_in_image", _paste_masks_in_image),
    ("torchvision.models.detection.roi_heads", "heatmaps_to_keypoints", _heatmaps_to_keypoints),
)


@contextlib.contextmanager
def one_way() -> Iterator[None]:
    """While inside, all boxes of a detector are treated at once.

    torchvision suppresses boxes of several classes at once up to a thousand of them, class by class beyond, and pastes masks and
    places keypoints box by box; a trace can follow no choice or loop that the number of boxes decides.
    """
    kept: list[tuple[Any, str, Any]] = []
    for path, name, instead in _ONE_WAY:
        if (module := sys.modules.get(path)) is not None:
            kept.append((module, name, getattr(module, name)))
            setattr(module, name, instead)
    try:
        yield
    finally:
        for module, name, own in kept:
            setattr(module, name, own)


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
