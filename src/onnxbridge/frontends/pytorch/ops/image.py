"""Resampling, padding and grids."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, rank

_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def smooth(mode, align_corners, antialias=False):
    """Resize's attributes for linear and cubic interpolation as PyTorch does them."""
    attrs = {"mode": mode, "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"}
    if mode == "cubic":
        attrs["cubic_coeff_a"] = -0.5 if antialias else -0.75
    return attrs | ({"antialias": 1} if antialias else {})


def resize(op, x, output_size, scales, attrs):
    """Resize to a size, or by the scales that were given, which then also place the samples."""
    if scales and not all(s is None for s in scales):
        if any(s is None for s in scales) or any(isinstance(s, ir.Value) for s in scales):
            raise Unsupported("scales of which some are not known")
        return op.Resize(x, None, [1.0, 1.0, *map(float, scales)], **attrs)
    lead = [op.size(x, 0), op.size(x, 1)]
    return op.Resize(x, None, None, op.dims([*lead, *output_size]), **attrs)


def _vec(rank_, mode, exact=False, antialias=False):
    """The rule of an `upsample` that takes a size or scales."""
    if mode == "nearest":

        def lower(op, input, output_size, scale_factors):
            return resize(op, input, output_size, scale_factors, _NEAREST_EXACT if exact else _NEAREST)
    else:

        def lower(op, input, output_size, align_corners, scale_factors):
            return resize(op, input, output_size, scale_factors, smooth(mode, align_corners, antialias))

    return lower


def _plain(axes, mode, exact=False, antialias=False):
    """The rule of an `upsample` that takes a size, and the scales by name."""
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[axes]

    def scales(given):
        found = [given.get(n) for n in names]
        return found if all(s is not None for s in found) else None

    if mode == "nearest":

        def lower(op, self, output_size, **given):
            return resize(op, self, output_size, scales(given), _NEAREST_EXACT if exact else _NEAREST)
    else:

        def lower(op, self, output_size, align_corners, **given):
            return resize(op, self, output_size, scales(given), smooth(mode, align_corners, antialias))

    return lower


for _axes, _modes in {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}.items():
    for _mode in _modes:
        _kind = "nearest" if _mode == "nearest" else "cubic" if _mode == "bicubic" else "linear"
        rule(f"aten::upsample_{_mode}{_axes}d.vec")(_vec(_axes, _kind))
        rule(f"aten::upsample_{_mode}{_axes}d")(_plain(_axes, _kind))
    rule(f"aten::_upsample_nearest_exact{_axes}d.vec")(_vec(_axes, "nearest", exact=True))
    rule(f"aten::_upsample_nearest_exact{_axes}d")(_plain(_axes, "nearest", exact=True))
for _mode in ("bilinear", "bicubic"):
    _kind = "cubic" if _mode == "bicubic" else "linear"
    rule(f"aten::_upsample_{_mode}2d_aa.vec")(_vec(2, _kind, antialias=True))
    rule(f"aten::_upsample_{_mode}2d_aa")(_plain(2, _kind, antialias=True))


@rule("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(op, input, grid, interpolation_mode, padding_mode, align_corners):
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return op.GridSample(input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@rule("aten::affine_grid_generator")
def affine_grid(op, theta, size, align_corners):
    return op.AffineGrid(theta, op.dims(size), align_corners=int(align_corners))


def padded(op, x, pad, mode, value=None):
    """x with (before, after) pairs counted from the last axis, as PyTorch gives them; negative ones cut."""
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    before, after = [0] * rank(x), [0] * rank(x)
    for i, (low, high) in enumerate(pairs):
        before[-1 - i], after[-1 - i] = low, high
    fixed = all(isinstance(p, int) for p in [*before, *after])
    if fixed and min([*before, *after], default=0) < 0:
        cut = [i for i in range(rank(x)) if before[i] < 0 or after[i] < 0]
        starts = [max(0, -before[i]) for i in cut]
        ends = [after[i] if after[i] < 0 else INT64_MAX for i in cut]
        if mode != "constant":
            raise Unsupported(f"negative padding in mode {mode}")
        x = op.Slice(x, starts, ends, cut)
        before, after = [max(0, b) for b in before], [max(0, a) for a in after]
    if fixed and not any([*before, *after]):
        return x
    if x.dtype == ir.DataType.BOOL and mode == "constant":
        y = op.Pad(op.Cast(x, to=ir.DataType.INT32), op.dims([*before, *after]), int(bool(value or 0)), mode=mode)
        return op.Cast(y, to=x.dtype)
    fill_with = None if mode != "constant" or not value else value
    return op.Pad(x, op.dims([*before, *after]), fill_with, mode=mode)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@rule("aten::pad")
def pad_(op, self, pad, mode="constant", value=None):
    return padded(op, self, pad, _MODES[mode], value)


@rule("aten::constant_pad_nd")
def constant_pad(op, self, pad, value=0):
    return padded(op, self, pad, "constant", value)


@rule("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(op, self, padding):
    return padded(op, self, padding, "reflect")


@rule("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(op, self, padding):
    return padded(op, self, padding, "edge")


@rule("aten::_pad_circular")
def pad_circular(op, self, pad):
    return padded(op, self, pad, "wrap")


@rule("aten::im2col")
def im2col(op, self, kernel_size, dilation, padding, stride):
    x = self if rank(self) == 4 else op.Unsqueeze(self, [0])
    if not all(isinstance(d, int) for d in x.shape[1:]):
        raise Unsupported("unfold of a dynamic size", "fix channels, height and width")
    channels, height, width = x.shape[1:]
    x = padded(op, x, [padding[1], padding[1], padding[0], padding[0]], "constant")
    size = (height, width)
    counts = [(size[i] + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    starts = [(i * dilation[0], j * dilation[1]) for i in range(kernel_size[0]) for j in range(kernel_size[1])]
    parts = []
    for start in starts:
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(start, counts, stride, strict=True)]
        cut = op.Slice(x, list(start), ends, [2, 3], list(stride))
        parts.append(op.reshape(cut, [op.size(x, 0), channels, 1, counts[0] * counts[1]]))
    y = op.Concat(*parts, axis=2)
    y = op.reshape(y, [op.size(x, 0), channels * len(starts), counts[0] * counts[1]])
    return y if x is self or rank(self) == 4 else op.Squeeze(y, [0])


@rule("aten::unfold")
def unfold(op, self, dimension, size, step):
    if rank(self) == 0:
        return op.reshape(self, [1])
    axis = dimension % rank(self)
    length = self.shape[axis]
    if not isinstance(length, int):
        raise Unsupported("unfold of a dynamic size", "fix that size")
    count = (length - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)[None]
    y = op.Gather(self, places.astype(np.int64), axis=axis)
    order = [i for i in range(rank(self) + 1) if i != axis + 1]
    return op.Transpose(y, perm=[*order, axis + 1])


