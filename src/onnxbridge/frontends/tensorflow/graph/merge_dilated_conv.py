"""Matches SpaceToBatchND, a convolution and BatchToSpaceND as one dilated convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative"})


@dataclass(frozen=True)
class DilatedConv:
    """The convolution, its original input, the attributes that differ, and whether it has one spatial axis only."""

    conv: Any
    x: Any
    attrs: dict[str, Any]
    one_axis: bool


def match_dilated_conv(op: Any) -> DilatedConv | None:
    """The dilated convolution that ends in a BatchToSpaceND, or None.

    Splitting an image into every d-th pixel, convolving without padding and interleaving the results is a convolution with
    dilation d over the padded image; cropping the result removes padding.
    """
    inner = op.inputs[0].op
    one_axis = inner.type == "Squeeze"
    conv = inner.inputs[0].op if one_axis else inner
    if conv.type not in _CONVOLUTIONS or conv.get_attr("data_format") != b"NHWC" or conv.get_attr("padding") != b"VALID":
        return None
    before = conv.inputs[0].op
    if one_axis:
        if not _adds_height(before) or list(inner.get_attr("squeeze_dims")) not in ([1], [-3]):
            return None
        before = before.inputs[0].op
    is_unit = all(set(conv.get_attr(a)) == {1} for a in ("strides", "dilations"))
    if before.type != "SpaceToBatchND" or not is_unit:
        return None
    block, block_after, pads, crops = map(_constant, (before.inputs[1], op.inputs[1], before.inputs[2], op.inputs[2]))
    if block is None or block_after is None or pads is None or crops is None or len(block) != (1 if one_axis else 2):
        return None
    padding = pads - crops
    if not np.array_equal(block, block_after) or (padding < 0).any():
        return None
    if one_axis:
        block, padding = np.array([1, *block]), np.array([[0, 0], *padding])
    explicit = (0, 0, *(int(p) for p in padding.reshape(-1)), 0, 0)
    attrs = {"padding": "EXPLICIT", "explicit_paddings": explicit, "dilations": (1, *(int(b) for b in block), 1)}
    return DilatedConv(conv, before.inputs[0], attrs, one_axis)


def _adds_height(op: Any) -> bool:
    """Whether an operator inserts an axis before the single spatial axis."""
    dim = _constant(op.inputs[1]) if op.type == "ExpandDims" else None
    return dim is not None and int(dim) in (1, -3)


def _constant(tensor: Any) -> Any:
    from tensorflow.python.framework import tensor_util

    return tensor_util.constant_value(tensor)
