"""Resampling, padding and grids."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, rank

D = ir.DataType
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def smooth(mode, align_corners):
    """Resize's attributes for linear and cubic interpolation as PyTorch does them."""
    attrs = {"mode": mode, "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"}
    return attrs | ({"cubic_coeff_a": -0.75} if mode == "cubic" else {})


def resize(op, x, output_size, scales, attrs):
    """Resize to a size, or by the scales that were given, which then also place the samples."""
    if x.dtype == D.UINT8 and attrs["mode"] != "nearest":
        corners = attrs["coordinate_transformation_mode"] == "align_corners"
        return _bytes(op, x, output_size, scales, attrs["mode"] == "cubic", corners)
    if scales and not all(s is None for s in scales):
        if any(s is None for s in scales) or any(isinstance(s, ir.Value) for s in scales):
            raise Unsupported("scales of which some are not known")
        return op.Resize(x, None, [1.0, 1.0, *map(float, scales)], **attrs)
    lead = [op.size(x, 0), op.size(x, 1)]
    return op.Resize(x, None, None, op.dims([*lead, *output_size]), **attrs)


def _vec(mode, exact=False):
    """The rule of an `upsample` that takes a size or scales."""
    if mode == "nearest":

        def lower(op, input, output_size, scale_factors):
            return resize(op, input, output_size, scale_factors, _NEAREST_EXACT if exact else _NEAREST)
    else:

        def lower(op, input, output_size, align_corners, scale_factors):
            return resize(op, input, output_size, scale_factors, smooth(mode, align_corners))

    return lower


def _plain(axes, mode, exact=False):
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
            return resize(op, self, output_size, scales(given), smooth(mode, align_corners))

    return lower


for _axes, _modes in {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}.items():
    for _mode in _modes:
        _kind = "nearest" if _mode == "nearest" else "cubic" if _mode == "bicubic" else "linear"
        rule(f"aten::upsample_{_mode}{_axes}d.vec")(_vec(_kind))
        rule(f"aten::upsample_{_mode}{_axes}d")(_plain(_axes, _kind))
    rule(f"aten::_upsample_nearest_exact{_axes}d.vec")(_vec("nearest", exact=True))
    rule(f"aten::_upsample_nearest_exact{_axes}d")(_plain(_axes, "nearest", exact=True))


def _weights(size, count, scale, cubic):
    """One axis of antialiased resampling as a matrix: a filter as wide as the source pixels that make one pixel."""
    wide = max(scale, 1.0)
    support = (2.0 if cubic else 1.0) * wide
    matrix = np.zeros((count, size))
    for i in range(count):
        centre = scale * (i + 0.5)
        low, high = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), size)
        away = np.abs((np.arange(low, high) - centre + 0.5) / wide)
        if cubic:  # Keys' filter with a = -0.5
            row = np.where(away < 1, (1.5 * away - 2.5) * away**2 + 1, ((-0.5 * away + 2.5) * away - 4) * away + 2)
            row = np.where(away < 2, row, 0)
        else:
            row = np.maximum(1 - away, 0)
        matrix[i, low:high] = row / row.sum()
    return matrix


def _between(size, count, scale, cubic, align_corners):
    """One axis of resampling as a matrix: each pixel from the 2 or 4 around it, a border's for those beyond."""
    at = scale * np.arange(count) if align_corners else scale * (np.arange(count) + 0.5) - 0.5
    at = at if cubic else np.clip(at, 0, size - 1)
    low = np.floor(at)
    t = at - low
    if cubic:  # Keys' filter with a = -0.75
        far, near = (lambda d: ((-0.75 * d + 3.75) * d - 6) * d + 3), (lambda d: (1.25 * d - 2.25) * d * d + 1)
        taps = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
    else:
        taps = {0: 1 - t, 1: t}
    matrix = np.zeros((count, size))
    for step, weights in taps.items():
        np.add.at(matrix, (np.arange(count), np.clip(low + step, 0, size - 1).astype(int)), weights)
    return matrix


def _steps(sizes, output_size, factors, align_corners):
    """The sizes before and after, and how far apart in the source the pixels are that follow each other, by axis."""
    if output_size is None and all(isinstance(n, int) for n in sizes):
        output_size = [int(n * f) for n, f in zip(sizes, factors, strict=True)]
    if output_size is None or not all(isinstance(n, int) for n in [*sizes, *output_size]):
        raise Unsupported("antialiased resampling, or of bytes, of a dynamic size", "fix the spatial sizes")
    for n, m, factor in zip(sizes, output_size, factors or (None, None), strict=True):
        between_corners = (n - 1) / (m - 1) if m > 1 else 0.0
        yield n, m, between_corners if align_corners else 1 / factor if factor else n / m


def antialiased(op, x, output_size, align_corners, factors, cubic):
    matrices = [_weights(n, m, scale, cubic) for n, m, scale in _steps(list(x.shape)[2:], output_size, factors, align_corners)]
    if x.dtype == D.UINT8:
        return _in_bytes(op, x, matrices)
    rows, columns = (m.astype(x.dtype.numpy()) for m in matrices)
    return op.MatMul(op.MatMul(rows, x), np.ascontiguousarray(columns.T))


def _bytes(op, x, output_size, factors, cubic, align_corners):
    steps = _steps(list(x.shape)[2:], output_size, factors, align_corners)
    return _in_bytes(op, x, [_between(n, m, scale, cubic, align_corners) for n, m, scale in steps])


def _in_bytes(op, x, matrices):
    """Both axes by matrices, the last first, in whole numbers as PyTorch's kernels: weights of 15 bits, each axis rounded."""
    y = op.Cast(x, to=D.INT32)
    for last, matrix in ((True, matrices[1]), (False, matrices[0])):
        if matrix.shape[0] == matrix.shape[1]:
            continue
        bits = next(b for b in range(23) if b == 22 or int(0.5 + matrix.max() * 2.0 ** (b + 1)) >= 1 << 15)
        whole = np.trunc(matrix * 2.0**bits + np.copysign(0.5, matrix)).astype(np.int32)
        y = op.MatMul(y, np.ascontiguousarray(whole.T)) if last else op.MatMul(whole, y)
        y = op.Div(op.Max(op.Add(y, 1 << (bits - 1)), 0), 1 << bits)
        y = op.Min(y, 255)
    return op.Cast(y, to=D.UINT8)


def _antialiased(cubic):
    name = "bicubic" if cubic else "bilinear"

    @rule(f"aten::_upsample_{name}2d_aa.vec")
    def vec(op, input, output_size, align_corners, scale_factors):
        return antialiased(op, input, output_size, align_corners, scale_factors, cubic)

    @rule(f"aten::_upsample_{name}2d_aa")
    def plain(op, self, output_size, align_corners, scales_h=None, scales_w=None):
        return antialiased(op, self, output_size, align_corners, (scales_h, scales_w), cubic)


_antialiased(cubic=False)
_antialiased(cubic=True)


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


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@rule("aten::pad")
def pad_(op, self, pad, mode="constant", value=None):
    return wrapped(op, self, pad) if mode == "circular" else padded(op, self, pad, _MODES[mode], value)


@rule("aten::constant_pad_nd")
def constant_pad(op, self, pad, value=0):
    return padded(op, self, pad, "constant", value)


@rule("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(op, self, padding):
    return padded(op, self, padding, "reflect")


@rule("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(op, self, padding):
    return padded(op, self, padding, "edge")


def wrapped(op, x, pad):
    """Circular padding, axis by axis: ONNX Runtime has no kernel for Pad's mode wrap."""
    for i in range(len(pad) // 2):
        axis, (low, high) = rank(x) - 1 - i, (pad[2 * i], pad[2 * i + 1])
        if not (isinstance(low, int) and isinstance(high, int)):
            raise Unsupported("circular padding by a dynamic size")
        if min(low, high) < 0:  # what is cut off does not come round
            x = op.Slice(x, [max(0, -low)], [high if high < 0 else INT64_MAX], [axis])
        parts = [op.Slice(x, [-low], [INT64_MAX], [axis])] if low > 0 else []
        parts += [x, op.Slice(x, [0], [high], [axis])] if high > 0 else [x]
        x = op.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
    return x


@rule("aten::_pad_circular")
def pad_circular(op, self, pad):
    return wrapped(op, self, pad)


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
    length = op.size(self, axis)
    if isinstance(length, int):
        starts = np.arange((length - size) // step + 1, dtype=np.int64)[:, None] * step
    else:
        starts = op.Unsqueeze(op.Range(np.int64(0), op.Add(op.Sub(length, size), 1), np.int64(step)), [1])
    y = op.Gather(self, op.Add(op.constant(starts), np.arange(size, dtype=np.int64)), axis=axis)
    order = [i for i in range(rank(self) + 1) if i != axis + 1]
    return op.Transpose(y, perm=[*order, axis + 1])


