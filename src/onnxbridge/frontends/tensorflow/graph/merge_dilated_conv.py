"""Matches SpaceToBatchND, a convolution and BatchToSpaceND as one dilated convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_CONVOLUTIONS = {"Conv2D": b"NHWC", "DepthwiseConv2dNative": b"NHWC", "Conv3D": b"NDHWC"}


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
    if conv.type not in _CONVOLUTIONS or conv.get_attr("padding") != b"VALID":
        return None
    if conv.get_attr("data_format") != _CONVOLUTIONS[conv.type]:
        return None
    before = conv.inputs[0].op
    if one_axis:
        if not _adds_height(before) or list(inner.get_attr("squeeze_dims")) not in ([1], [-3]):
            return None
        before = before.inputs[0].op
    is_unit = all(set(conv.get_attr(a)) == {1} for a in ("strides", "dilations"))
    if before.type != "SpaceToBatchND" or not is_unit:
        return None
    block, block_after = _constant(before.inputs[1]), _constant(op.inputs[1])
    if block is None or block_after is None or len(block) != (1 if one_axis else len(conv.inputs[0].shape) - 2):
        return None
    padding = _difference(before.inputs[2], op.inputs[2], len(block))
    if padding is None or not np.array_equal(block, block_after) or (padding < 0).any():
        return None
    if one_axis:
        block, padding = np.array([1, *block]), np.array([[0, 0], *padding])
    explicit = (0, 0, *(int(p) for p in padding.reshape(-1)), 0, 0)
    attrs = {"padding": "EXPLICIT", "explicit_paddings": explicit, "dilations": (1, *(int(b) for b in block), 1)}
    return DilatedConv(conv, before.inputs[0], attrs, one_axis)


def _difference(pads: Any, crops: Any, axes: int) -> Any:
    """Paddings minus crops, [axes, 2]; None where they differ by what is not known.

    Sizes that are not known are padded to a multiple of the block, and the result is cropped by as much.
    """
    found = np.zeros((axes, 2), np.int64)
    for index in np.ndindex(axes, 2):
        (padded, more), (cropped, less) = _entry(pads, index), _entry(crops, index)
        if more != less:
            return None
        found[index] = padded - cropped
    return found


def _entry(tensor: Any, index: tuple[int, ...]) -> tuple[int, Any]:
    """An element of an integer tensor as a number plus, if it is not known, what an element of another tensor is."""
    known, op = _constant(tensor), tensor.op
    if known is not None:
        return int(known[index]), None
    if op.type == "Identity":
        return _entry(op.inputs[0], index)
    if op.type == "Pack" and not op.get_attr("axis"):
        return _entry(op.inputs[index[0]], index[1:])
    if op.type == "StridedSlice" and (source := _source_index(op, index)) is not None:
        return _entry(op.inputs[0], source)
    if op.type == "AddV2" and op.inputs[0].shape.is_fully_defined() and op.inputs[0].shape == op.inputs[1].shape:
        (a, more), (b, rest) = (_entry(v, index) for v in op.inputs)
        if more is None or rest is None:
            return a + b, more or rest
    return 0, (tensor.name, index)


def _source_index(op: Any, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where a StridedSlice has an element from."""
    bounds = [_constant(v) for v in op.inputs[1:]]
    shape = op.inputs[0].shape
    if any(b is None for b in bounds) or not shape.is_fully_defined():
        return None
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return None
    begin_mask, end_mask, shrunk = (op.get_attr(f"{name}_mask") for name in ("begin", "end", "shrink_axis"))
    key: list[int | slice] = []
    for i, (begin, end, stride) in enumerate(zip(*bounds, strict=True)):
        if shrunk >> i & 1:
            key.append(int(begin))
        else:
            key.append(slice(None if begin_mask >> i & 1 else begin, None if end_mask >> i & 1 else end, stride))
    sizes = shape.as_list()
    at = np.arange(np.prod(sizes)).reshape(sizes)[tuple(key)][index]
    return tuple(int(i) for i in np.unravel_index(at, sizes))


def _adds_height(op: Any) -> bool:
    """Whether an operator inserts an axis before the single spatial axis."""
    dim = _constant(op.inputs[1]) if op.type == "ExpandDims" else None
    return dim is not None and int(dim) in (1, -3)


def _constant(tensor: Any) -> Any:
    from tensorflow.python.framework import tensor_util

    return tensor_util.constant_value(tensor)
