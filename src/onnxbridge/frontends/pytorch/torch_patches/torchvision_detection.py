"""Patch: torchvision's detectors, whose boxes are counted by data: what torchvision does box by box is done for all at once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torch_patches.target import Target, replaced


def _batched_nms(boxes: Any, scores: Any, idxs: Any, iou_threshold: float) -> Any:
    """Non-maximum suppression per class by offsetting each class's boxes; also correct without boxes."""
    torch = frameworks.torch()
    largest = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    moved = boxes + (idxs.to(boxes) * (largest + 1))[:, None]
    return torch.ops.torchvision.nms(moved, scores, iou_threshold)


def _paste_masks_in_image(masks: Any, boxes: Any, img_shape: Any, padding: int = 1) -> Any:
    """Resize all masks into their boxes at once: bilinear weights of mask rows (columns) at image rows (columns), per box."""
    torch = frameworks.torch()
    heads = sys.modules["torchvision.models.detection.roi_heads"]
    masks, scale = heads.expand_masks(masks, padding=padding)
    boxes = heads.expand_boxes(boxes, scale).to(dtype=torch.int64)

    def weights(low: Any, high: Any, size: Any, elements: int) -> Any:
        position = torch.arange(size, device=boxes.device)
        low, length = low[:, None], (high - low + 1)[:, None]
        source = ((position - low).to(masks) + 0.5) * (elements / length.to(masks)) - 0.5
        near = 1 - (source.clamp(0, elements - 1)[..., None] - torch.arange(elements, device=boxes.device)).abs()
        inside = (position >= low) & (position <= high[:, None])
        return near.clamp(min=0) * inside[..., None]

    rows = weights(boxes[:, 1], boxes[:, 3], img_shape[0], masks.shape[-2])
    columns = weights(boxes[:, 0], boxes[:, 2], img_shape[1], masks.shape[-1])
    return (rows @ masks[:, 0] @ columns.mT)[:, None]


def _cubic(size: Any, lengths: Any, elements: int) -> Any:
    """Bicubic resize weights [box, position, element] for each of these lengths, padded to `size` positions."""
    torch = frameworks.torch()
    source = (torch.arange(size, device=lengths.device) + 0.5) * (elements / lengths)[:, None] - 0.5
    first = source.floor()
    t = source - first
    found = 0.0
    for tap in (-1, 0, 1, 2):
        d = (t - tap).abs()
        a = -0.75
        near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
        index = (first + tap).clamp(0, elements - 1)[..., None]
        found = found + (near if tap in (0, 1) else far)[..., None] * (index == torch.arange(elements, device=lengths.device))
    return found


def _heatmaps_to_keypoints(maps: Any, rois: Any) -> Any:
    """Resize all heatmaps to their boxes at once, padded to the largest box, and find the maximum inside each box."""
    torch = frameworks.torch()
    sizes = (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    ceiled = sizes.ceil()
    largest = torch.cat([ceiled, ceiled.new_ones(1, 2)]).amax(0).to(torch.int64)
    width, height = largest[0].item(), largest[1].item()
    for size in (width, height):
        torch._check(size >= 1)
    rows, columns = _cubic(height, ceiled[:, 1], maps.shape[2]), _cubic(width, ceiled[:, 0], maps.shape[3])
    resized = rows[:, None] @ maps @ columns[:, None].mT
    inside = (torch.arange(height, device=maps.device)[:, None] < ceiled[:, 1, None, None]) & (
        torch.arange(width, device=maps.device) < ceiled[:, 0, None, None]
    )
    flat = resized.masked_fill(~inside[:, None], -torch.inf).flatten(2)
    position = flat.argmax(dim=2)
    score = flat.gather(2, position[..., None])[..., 0]
    found = [position % width, torch.div(position, width, rounding_mode="floor")]
    correction, corner = sizes / ceiled, rois[:, :2]
    xy = [(p.float() + 0.5) * correction[:, i, None] + corner[:, i, None] for i, p in enumerate(found)]
    return torch.stack([*xy, torch.ones_like(xy[0])], dim=2), score


def _constant(replacement: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda original: replacement


# Checked on PyTorch 2.13.0 with torchvision 0.28.0: these functions branch on, or loop over, the number of boxes.
_REPLACEMENTS: dict[Target, Callable[..., Any]] = {
    Target("torchvision.ops.boxes", "batched_nms", ("boxes", "scores", "idxs", "iou_threshold")): _batched_nms,
    Target(
        "torchvision.models.detection.transform", "paste_masks_in_image", ("masks", "boxes", "img_shape", "padding")
    ): _paste_masks_in_image,
    Target("torchvision.models.detection.roi_heads", "heatmaps_to_keypoints", ("maps", "rois")): _heatmaps_to_keypoints,
}
TARGETS = tuple(_REPLACEMENTS)


@contextlib.contextmanager
def batched_detection() -> Iterator[None]:
    """Process all boxes of a torchvision detector at once.

    torchvision switches to per-class suppression beyond a thousand boxes, and pastes masks and keypoints box by box; a trace
    cannot follow branches and loops that depend on the number of boxes.
    """
    with contextlib.ExitStack() as stack:
        for target, replacement in _REPLACEMENTS.items():
            stack.enter_context(replaced(target, _constant(replacement)))
        yield
