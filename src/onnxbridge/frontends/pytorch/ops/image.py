"""Resampling, padding and grids."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, rank

D = ir.DataType
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}


def interpolation_attrs(mode, align_corners):
    """Resize's attributes for PyTorch's linear and cubic interpolation."""
    attrs = {"mode": mode, "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel"}
    return attrs | ({"cubic_coeff_a": -0.75} if mode == "cubic" else {})


def resize(op, x, output_size, scales, attrs):
    """Resize to a size, or by the given scales, which then also determine the sampling positions."""
    if x.dtype == D.UINT8 and attrs["mode"] != "nearest":
        corners = attrs["coordinate_transformation_mode"] == "align_corners"
        return _resize_uint8(op, x, output_size, scales, attrs["mode"] == "cubic", corners)
    if scales and not all(s is None for s in scales):
        if any(s is None for s in scales) or any(isinstance(s, ir.Value) for s in scales):
            raise Unsupported("scales that are partly unknown")
        return op.Resize(x, None, [1.0, 1.0, *map(float, scales)], **attrs)
    lead = [op.size(x, 0), op.size(x, 1)]
    return op.Resize(x, None, None, op.dims([*lead, *output_size]), **attrs)


def _vec_rule(mode, exact=False):
    """The rule of an `upsample` overload with a size or scales (.vec)."""
    if mode == "nearest":

        def lower(op, input, output_size, scale_factors):
            return resize(op, input, output_size, scale_factors, _NEAREST_EXACT if exact else _NEAREST)
    else:

        def lower(op, input, output_size, align_corners, scale_factors):
            return resize(op, input, output_size, scale_factors, interpolation_attrs(mode, align_corners))

    return lower


def _named_scales_rule(axes, mode, exact=False):
    """The rule of an `upsample` overload with a size and named scales."""
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}[axes]

    def scales(named_scales):
        found = [named_scales.get(n) for n in names]
        return found if all(s is not None for s in found) else None

    if mode == "nearest":

        def lower(op, self, output_size, **named_scales):
            return resize(op, self, output_size, scales(named_scales), _NEAREST_EXACT if exact else _NEAREST)
    else:

        def lower(op, self, output_size, align_corners, **named_scales):
            return resize(op, self, output_size, scales(named_scales), interpolation_attrs(mode, align_corners))

    return lower


for _axes, _modes in {1: ("nearest", "linear"), 2: ("nearest", "bilinear", "bicubic"), 3: ("nearest", "trilinear")}.items():
    for _mode in _modes:
        _kind = "nearest" if _mode == "nearest" else "cubic" if _mode == "bicubic" else "linear"
        rule(f"aten::upsample_{_mode}{_axes}d.vec")(_vec_rule(_kind))
        rule(f"aten::upsample_{_mode}{_axes}d")(_named_scales_rule(_axes, _kind))
    rule(f"aten::_upsample_nearest_exact{_axes}d.vec")(_vec_rule("nearest", exact=True))
    rule(f"aten::_upsample_nearest_exact{_axes}d")(_named_scales_rule(_axes, "nearest", exact=True))


def _antialias_matrix(size, count, scale, cubic):
    """One axis of antialiased resampling as a matrix: the filter covers the source pixels of each output pixel."""
    filter_scale = max(scale, 1.0)
    support = (2.0 if cubic else 1.0) * filter_scale
    matrix = np.zeros((count, size))
    for i in range(count):
        center = scale * (i + 0.5)
        low, high = max(int(center - support + 0.5), 0), min(int(center + support + 0.5), size)
        distance = np.abs((np.arange(low, high) - center + 0.5) / filter_scale)
        if cubic:  # Keys' filter with a = -0.5
            row = np.where(
                distance < 1, (1.5 * distance - 2.5) * distance**2 + 1, ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
            )
            row = np.where(distance < 2, row, 0)
        else:
            row = np.maximum(1 - distance, 0)
        matrix[i, low:high] = row / row.sum()
    return matrix


def _interpolation_matrix(size, count, scale, cubic, align_corners):
    """One axis of resampling as a matrix: each pixel from 2 or 4 neighbors, with the border replicated."""
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
    """Input size, output size and step in the source between adjacent output pixels, by axis."""
    if output_size is None and all(isinstance(n, int) for n in sizes):
        output_size = [int(n * f) for n, f in zip(sizes, factors, strict=True)]
    if output_size is None or not all(isinstance(n, int) for n in [*sizes, *output_size]):
        raise Unsupported("antialiased or uint8 resampling with a dynamic size", "fix the spatial sizes")
    for n, m, factor in zip(sizes, output_size, factors or (None, None), strict=True):
        between_corners = (n - 1) / (m - 1) if m > 1 else 0.0
        yield n, m, between_corners if align_corners else 1 / factor if factor else n / m


def resize_antialiased(op, x, output_size, align_corners, factors, cubic):
    matrices = [
        _antialias_matrix(n, m, scale, cubic) for n, m, scale in _steps(list(x.shape)[2:], output_size, factors, align_corners)
    ]
    if x.dtype == D.UINT8:
        return _resample_uint8(op, x, matrices)
    rows, columns = (m.astype(x.dtype.numpy()) for m in matrices)
    return op.MatMul(op.MatMul(rows, x), np.ascontiguousarray(columns.T))


def _resize_uint8(op, x, output_size, factors, cubic, align_corners):
    steps = _steps(list(x.shape)[2:], output_size, factors, align_corners)
    return _resample_uint8(op, x, [_interpolation_matrix(n, m, scale, cubic, align_corners) for n, m, scale in steps])


def _resample_uint8(op, x, matrices):
    """Resample both axes with matrices, the last first, in integers as PyTorch's kernels: 15-bit weights, rounded per axis."""
    y = op.Cast(x, to=D.INT32)
    for last, matrix in ((True, matrices[1]), (False, matrices[0])):
        if matrix.shape[0] == matrix.shape[1]:
            continue
        bits = next(b for b in range(23) if b == 22 or int(0.5 + matrix.max() * 2.0 ** (b + 1)) >= 1 << 15)
        integer_weights = np.trunc(matrix * 2.0**bits + np.copysign(0.5, matrix)).astype(np.int32)
        y = op.MatMul(y, np.ascontiguousarray(integer_weights.T)) if last else op.MatMul(integer_weights, y)
        y = op.Div(op.Max(op.Add(y, 1 << (bits - 1)), 0), 1 << bits)
        y = op.Min(y, 255)
    return op.Cast(y, to=D.UINT8)


def _register_antialiased(cubic):
    name = "bicubic" if cubic else "bilinear"

    @rule(f"aten::_upsample_{name}2d_aa.vec")
    def vec(op, input, output_size, align_corners, scale_factors):
        return resize_antialiased(op, input, output_size, align_corners, scale_factors, cubic)

    @rule(f"aten::_upsample_{name}2d_aa")
    def plain(op, self, output_size, align_corners, scales_h=None, scales_w=None):
        return resize_antialiased(op, self, output_size, align_corners, (scales_h, scales_w), cubic)


_register_antialiased(cubic=False)
_register_antialiased(cubic=True)


@rule("aten::grid_sampler", "aten::grid_sampler_2d", "aten::grid_sampler_3d")
def grid_sampler(op, input, grid, interpolation_mode, padding_mode, align_corners):
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return op.GridSample(input, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@rule("aten::affine_grid_generator")
def affine_grid(op, theta, size, align_corners):
    return op.AffineGrid(theta, op.dims(size), align_corners=int(align_corners))


def pad_nd(op, x, pad, mode, value=None):
    """Pad x by (before, after) pairs from the last axis on, as in torch; negative pads crop."""
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    before, after = [0] * rank(x), [0] * rank(x)
    for i, (low, high) in enumerate(pairs):
        before[-1 - i], after[-1 - i] = low, high
    static = all(isinstance(p, int) for p in [*before, *after])
    if static and min([*before, *after], default=0) < 0:
        cropped = [i for i in range(rank(x)) if before[i] < 0 or after[i] < 0]
        starts = [max(0, -before[i]) for i in cropped]
        ends = [after[i] if after[i] < 0 else INT64_MAX for i in cropped]
        if mode != "constant":
            raise Unsupported(f"negative padding in mode {mode}")
        x = op.Slice(x, starts, ends, cropped)
        before, after = [max(0, b) for b in before], [max(0, a) for a in after]
    if static and not any([*before, *after]):
        return x
    if x.dtype == ir.DataType.BOOL and mode == "constant":
        y = op.Pad(op.Cast(x, to=ir.DataType.INT32), op.dims([*before, *after]), int(bool(value or 0)), mode=mode)
        return op.Cast(y, to=x.dtype)
    fill_with = None if mode != "constant" or not value else value
    return op.Pad(x, op.dims([*before, *after]), fill_with, mode=mode)


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@rule("aten::pad")
def pad_(op, self, pad, mode="constant", value=None):
    return pad_circularly(op, self, pad) if mode == "circular" else pad_nd(op, self, pad, _MODES[mode], value)


@rule("aten::constant_pad_nd")
def constant_pad(op, self, pad, value=0):
    return pad_nd(op, self, pad, "constant", value)


@rule("aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d")
def reflection_pad(op, self, padding):
    return pad_nd(op, self, padding, "reflect")


@rule("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d")
def replication_pad(op, self, padding):
    return pad_nd(op, self, padding, "edge")


def pad_circularly(op, x, pad):
    """Circular padding, axis by axis: ONNX Runtime has no kernel for Pad with mode wrap."""
    for i in range(len(pad) // 2):
        axis, (low, high) = rank(x) - 1 - i, (pad[2 * i], pad[2 * i + 1])
        if not (isinstance(low, int) and isinstance(high, int)):
            raise Unsupported("circular padding by a dynamic size")
        if min(low, high) < 0:  # cropped elements do not wrap around
            x = op.Slice(x, [max(0, -low)], [high if high < 0 else INT64_MAX], [axis])
        parts = [op.Slice(x, [-low], [INT64_MAX], [axis])] if low > 0 else []
        parts += [x, op.Slice(x, [0], [high], [axis])] if high > 0 else [x]
        x = op.Concat(*parts, axis=axis) if len(parts) > 1 else parts[0]
    return x


@rule("aten::_pad_circular")
def pad_circular(op, self, pad):
    return pad_circularly(op, self, pad)


@rule("aten::im2col")
def im2col(op, self, kernel_size, dilation, padding, stride):
    x = self if rank(self) == 4 else op.Unsqueeze(self, [0])
    if not all(isinstance(d, int) for d in x.shape[1:]):
        raise Unsupported("unfold of a dynamic size", "fix channels, height and width")
    channels, height, width = x.shape[1:]
    x = pad_nd(op, x, [padding[1], padding[1], padding[0], padding[0]], "constant")
    size = (height, width)
    counts = [(size[i] + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    starts = [(i * dilation[0], j * dilation[1]) for i in range(kernel_size[0]) for j in range(kernel_size[1])]
    parts = []
    for start in starts:
        ends = [s + (n - 1) * t + 1 for s, n, t in zip(start, counts, stride, strict=True)]
        cropped = op.Slice(x, list(start), ends, [2, 3], list(stride))
        parts.append(op.reshape(cropped, [op.size(x, 0), channels, 1, counts[0] * counts[1]]))
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
