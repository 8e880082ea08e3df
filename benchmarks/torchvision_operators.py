"""torchvision's detection operators in Python, for when its compiled ones do not load (its wheel is built for CUDA).

They follow the operators' definitions and are independent of the conversion rules. Call `ensure()` before importing torchvision.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, int sampling_ratio, "
    "bool aligned) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",  # torch.jit.script needs the schema
)
_libraries: list[Any] = []


def ensure() -> None:
    """Make torchvision and its detectors usable; does nothing if its own operators load."""
    if _libraries or importlib.util.find_spec("torchvision") is None or _loads():
        return
    definitions = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            definitions.define(schema)
    extension = importlib.import_module("torchvision.extension")
    kernels = torch.library.Library("torchvision", "IMPL")
    kernels.impl("nms", nms, "CPU")
    kernels.impl("roi_align", roi_align, "CPU")
    torch.library.register_fake("torchvision::roi_align", _roi_align_shape, lib=definitions)
    importlib.import_module("torchvision.ops")
    for module in (extension, sys.modules["torchvision.ops.roi_align"]):
        setattr(module, "_has_ops", _has_ops)  # noqa: B010  # mypy reads the module's own definition
    _libraries.extend((definitions, kernels))


def _has_ops() -> bool:
    return True


def _loads() -> bool:
    """Whether torchvision's own operators load."""
    folder = Path(importlib.util.find_spec("torchvision").submodule_search_locations[0])
    for library in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
        return True
    return False


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """The indices of the boxes that non-maximum suppression keeps, by descending score."""
    left, top, right, bottom = dets.unbind(1)
    area = (right - left) * (bottom - top)
    suppressed = torch.zeros(len(dets), dtype=torch.bool)
    kept = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if suppressed[i]:
            continue
        kept.append(i)
        width = (torch.minimum(right, right[i]) - torch.maximum(left, left[i])).clamp(min=0)
        height = (torch.minimum(bottom, bottom[i]) - torch.maximum(top, top[i])).clamp(min=0)
        intersection = width * height
        suppressed |= intersection / (area + area[i] - intersection) > iou_threshold
    return torch.tensor(kept, dtype=torch.int64)


def roi_align(
    input: torch.Tensor, rois: torch.Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> torch.Tensor:  # fmt: skip
    """The mean of bilinear samples in each cell of a grid over each region."""
    out = input.new_zeros(len(rois), input.shape[1], pooled_height, pooled_width)
    for n, (image, *edges) in enumerate(rois.tolist()):
        left, top, right, bottom = (edge * spatial_scale - 0.5 * aligned for edge in edges)
        width, height = right - left, bottom - top
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        ys = _points(top, height, pooled_height, sampling_ratio, input)
        xs = _points(left, width, pooled_width, sampling_ratio, input)
        rows, columns = _weights(ys, input.shape[2]), _weights(xs, input.shape[3])
        # bilinear sampling is a matrix product along each axis; averaging the points of a cell is another
        rows, columns = (w.view(p, -1, w.shape[1]).mean(1) for w, p in ((rows, pooled_height), (columns, pooled_width)))
        out[n] = rows @ input[int(image)] @ columns.T
    return out


def _points(start: float, size: float, cells: int, ratio: int, like: torch.Tensor) -> torch.Tensor:
    """The sampling coordinates along an axis, equally many in each cell."""
    points_per_cell = ratio if ratio > 0 else max(-int(-size // cells), 1)
    return start + (torch.arange(cells * points_per_cell, dtype=like.dtype) + 0.5) * (size / cells / points_per_cell)


def _weights(points: torch.Tensor, size: int) -> torch.Tensor:
    """Interpolation weights (points, pixels); zero for points more than one pixel outside."""
    inside = (points >= -1) & (points <= size)
    at = points.clamp(0, size - 1)
    distance = (at[:, None] - torch.arange(size, dtype=points.dtype)).abs()
    return (1 - distance).clamp(min=0) * inside[:, None]


def _roi_align_shape(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, aligned: bool
) -> Any:
    return input.new_empty((rois.shape[0], input.shape[1], pooled_height, pooled_width))
