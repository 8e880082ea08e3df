"""Image resizing and patches."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import static_shape
from onnxbridge.rules import Floats, Ints


def _resize(op, images, size, align_corners, half_pixel_centers, mode, **attrs):
    x = first(op, images, "NHWC")
    where = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    known = fold.known_sizes(size) or [None, None]
    if align_corners and any(w in (1, None) and g != 1 for w, g in zip(known, list(x.shape)[2:], strict=True)):
        raise Unsupported("align_corners with an output of one pixel or of unknown size")
    new_sizes = [op.Gather(size, np.array(i)) if s is None else s for i, s in enumerate(known)]
    target = op.dims([op.size(x, 0), op.size(x, 1), *new_sizes])
    return last(op, op.Resize(x, None, None, target, mode=mode, coordinate_transformation_mode=where, **attrs), "NHWC")


def _nearest(old, new, align_corners, half_pixel_centers):
    """The input index of each output element, as TensorFlow and as ONNX compute it in float32."""
    f, x = np.float32, np.arange(new, dtype=np.float32)
    if align_corners and new > 1:
        own = x * (f(old - 1) / f(new - 1))
        indices = np.floor(own.astype(np.float64) + 0.5), np.floor(x * f(old - 1) / f(new - 1) + f(0.5))
    elif half_pixel_centers:
        indices = np.floor((x + f(0.5)) * (f(old) / f(new))), np.floor((x + f(0.5)) / (f(new) / f(old)) - f(0.5) + f(0.5))
    else:
        indices = np.floor(x * (f(old) / f(new))), np.floor(x / (f(new) / f(old)))
    return tuple(np.clip(p, 0, old - 1).astype(np.int64) for p in indices)


@rule("ResizeNearestNeighbor")
def resize_nearest_neighbor(op, images, size, *, align_corners=False, half_pixel_centers=False):
    """TensorFlow uses floor((i + 0.5) * scale); ONNX's half_pixel subtracts another 0.5, so the mode rounds up.

    Where rounding alone would pick another neighbour, the elements are gathered.
    """
    old, new = list(images.shape)[1:3], fold.known_sizes(size) or [None, None]
    if all(isinstance(s, int) for s in (*old, *new)):
        both = [_nearest(o, n, align_corners, half_pixel_centers) for o, n in zip(old, new, strict=True)]
        if not all(np.array_equal(*indices) for indices in both):
            return op.Gather(op.Gather(images, both[0][0], axis=1), both[1][0], axis=2)
    mode = "round_prefer_ceil" if align_corners or half_pixel_centers else "floor"
    return _resize(op, images, size, align_corners, half_pixel_centers, "nearest", nearest_mode=mode)


@rule("ResizeBilinear")
def resize_bilinear(op, images, size, *, align_corners=False, half_pixel_centers=False):
    y = images if images.dtype.name == "FLOAT" else op.Cast(images, to=np.float32)
    return _resize(op, y, size, align_corners, half_pixel_centers, "linear")


def _interpolated(op, images, rows, columns):
    """Resizing as two products with [new, old] matrices, with TensorFlow's exact weights."""
    x = first(op, images if images.dtype == ir.DataType.FLOAT else op.Cast(images, to=ir.DataType.FLOAT), "NHWC")
    return last(op, op.MatMul(op.MatMul(rows.astype(np.float32), x), columns.T.astype(np.float32)), "NHWC")


def _spatial_sizes(x, size):
    old_sizes = list(x.shape)[1:3]
    if not all(isinstance(s, int) for s in old_sizes):
        raise Unsupported("the height and width of the input must be static", "give the input a static height and width")
    return old_sizes, list(size)


def _cubic_table(a, entries=1024):
    """TensorFlow's table of the cubic kernel in steps of 1 / 1024: weights of the near and the far neighbor."""
    x = np.arange(entries + 1, dtype=np.float64) / entries
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = x + 1
    return near, ((a * far - 5 * a) * far + 8 * a) * far - 4 * a


def _cubic_weights(old, new, align_corners, half_pixel_centers):
    """The [new, old] matrix of one axis: coefficient -0.5 with weights renormalized at the border for half pixels, otherwise
    -0.75.
    """
    scale = (old - 1) / (new - 1) if align_corners and new > 1 else old / new
    near, far = _cubic_table(-0.5 if half_pixel_centers else -0.75)
    weights = np.zeros((new, old))
    for i in range(new):
        at = np.float32((i + 0.5) * scale - 0.5 if half_pixel_centers else i * scale)
        base = int(np.floor(at))
        offset = int(np.rint((at - np.float32(base)) * 1024))
        four = np.array([far[offset], near[offset], near[1024 - offset], far[1024 - offset]])
        indices = np.arange(base - 1, base + 3)
        if half_pixel_centers:
            four = np.where((indices >= 0) & (indices < old), four, 0)
            four = four / four.sum() if abs(four.sum()) >= 1000 * np.finfo(np.float32).tiny else four
        np.add.at(weights[i], np.clip(indices, 0, old - 1), four)
    return weights


@rule("ResizeBicubic")
def resize_bicubic(op, images, size: Ints, *, align_corners=False, half_pixel_centers=False):
    old_sizes, new_sizes = _spatial_sizes(images, size)
    return _interpolated(
        op, images, *(_cubic_weights(o, n, align_corners, half_pixel_centers) for o, n in zip(old_sizes, new_sizes, strict=True))
    )


_KERNELS = {
    "triangle": (1.0, lambda x: np.maximum(0, 1 - x)),
    "box": (0.5, lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))),
    "lanczos1": (1.0, lambda x: np.where(x <= 1, np.sinc(x) * np.sinc(x), 0)),
    "lanczos3": (3.0, lambda x: np.where(x <= 3, np.sinc(x) * np.sinc(x / 3), 0)),
    "lanczos5": (5.0, lambda x: np.where(x <= 5, np.sinc(x) * np.sinc(x / 5), 0)),
    "gaussian": (1.5, lambda x: np.where(x < 1.5, np.exp(-(x**2) * 2), 0)),
    "keyscubic": (
        2.0,
        lambda x: np.where(x >= 2, 0, np.where(x >= 1, ((-0.5 * x + 2.5) * x - 4) * x + 2, ((1.5 * x - 2.5) * x) * x + 1)),
    ),
    "mitchellcubic": (
        2.0,
        lambda x: np.where(
            x >= 2, 0,
            np.where(x >= 1, (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9, (((7 / 6) * x - 2) * x) * x + 8 / 9),
        ),
    ),
}  # fmt: skip


def _spans(old, new, scale, translation, kernel, antialias):
    """The [new, old] matrix of one axis: the kernel of each new pixel, widened when downscaling, at the old pixels.

    In float32 as in TensorFlow, since rounding decides whether a pixel on the edge of a kernel is included.
    """
    radius, weigh = _KERNELS[kernel]
    f = np.float32
    inverse = f(1) / f(scale)
    shift = -inverse * f(translation)
    stretch = max(inverse, f(1)) if antialias else f(1)
    weights = np.zeros((new, old), np.float32)
    for i in range(new):
        at = f(i + 0.5) * inverse + shift
        if not 0 <= at <= old:
            continue
        low = max(0, int(np.ceil(at - f(radius) * stretch - f(0.5))))
        high = min(old - 1, int(np.floor(at + f(radius) * stretch - f(0.5))))
        indices = np.arange(low, high + 1)
        row = weigh(np.abs((indices.astype(np.float32) + f(0.5) - at) * (f(1) / stretch)))
        total = row.sum()
        if abs(total) >= 1000 * np.finfo(np.float32).tiny:
            weights[i, indices] = row / total
    return weights


@rule("ScaleAndTranslate")
def scale_and_translate(op, images, size: Ints, scale: Floats, translation: Floats, *, kernel_type="lanczos3", antialias=True):
    old_sizes, new_sizes = _spatial_sizes(images, size)
    axes = zip(old_sizes, new_sizes, scale, translation, strict=True)
    return _interpolated(op, images, *(_spans(*axis, kernel_type, antialias) for axis in axes))


def _area(op, old, new, align_corners):
    """The [new, old] matrix of one axis: the share of each old pixel in the interval that a new pixel covers."""
    if align_corners:
        steps = sizes.maximum(op, sizes.subtract(op, new, 1), 1)
        by_corner = _ratio(op, sizes.subtract(op, old, 1), steps)
        several = op.Greater(sizes.scalar(op, new), 1)
        scale = op.Where(several, by_corner, _ratio(op, old, new))
    else:
        scale = _ratio(op, old, new)
    start = op.Unsqueeze(op.Mul(op.Cast(arange(op, new), to=ir.DataType.FLOAT), scale), [1])
    end = op.Unsqueeze(op.Mul(op.Add(op.Cast(arange(op, new), to=ir.DataType.FLOAT), 1.0), scale), [1])
    pixel = op.Cast(arange(op, old), to=ir.DataType.FLOAT)
    last = op.Equal(pixel, op.Cast(op.Sub(sizes.scalar(op, old), 1), to=ir.DataType.FLOAT))
    pixel_end = op.Where(last, np.float32(np.inf), op.Add(pixel, 1.0))  # the edge is repeated
    return op.Div(op.Max(op.Sub(op.Min(pixel_end, end), op.Max(pixel, start)), 0.0), scale)


def _ratio(op, a, b):
    return op.Div(*(op.Cast(sizes.scalar(op, v), to=ir.DataType.FLOAT) for v in (a, b)))


@rule("ResizeArea")
def resize_area(op, images, size, *, align_corners=False):
    x = first(op, images if images.dtype == ir.DataType.FLOAT else op.Cast(images, to=ir.DataType.FLOAT), "NHWC")
    rows, columns = (
        _area(op, op.size(images, i + 1), n, align_corners) for i, n in enumerate(sizes.elements(op, size, 2))
    )
    return last(op, op.MatMul(op.MatMul(rows, x), op.Transpose(columns, perm=[1, 0])), "NHWC")


def _windows(op, x, kernel, steps, gaps, padding, fill):
    """The pixels at each offset in the window, one value for each, of a value with its channels last."""
    n = len(kernel)
    counts, befores, afters = [], [], []
    for i, (k, t, g) in enumerate(zip(kernel, steps, gaps, strict=True)):
        size = op.size(x, i + 1)
        if padding == "SAME":
            count, before, after = sizes.same_padding(op, size, k, t, g)
        else:
            count, before, after = sizes.add(op, sizes.divide(op, sizes.subtract(op, size, (k - 1) * g + 1), t), 1), 0, 0
        counts.append(count)
        befores.append(before)
        afters.append(after)
    if any(not isinstance(p, int) or p for p in (*befores, *afters)):
        x = op.Pad(x, op.dims([0, *befores, 0, 0, *afters, 0]), fill)
    lengths = [sizes.add(op, sizes.multiply(op, sizes.subtract(op, c, 1), t), 1) for c, t in zip(counts, steps, strict=True)]
    parts = []
    for offset in np.ndindex(*kernel):
        start = [o * g for o, g in zip(offset, gaps, strict=True)]
        ends = [sizes.add(op, length, s) for length, s in zip(lengths, start, strict=True)]
        parts.append(op.Slice(x, start, op.dims(ends), list(range(1, n + 1)), list(steps)))
    return parts


def _patches(op, images, ksizes, strides, rates, padding, layout):
    kernel, steps, gaps = (spatial(v, layout) for v in (ksizes, strides, rates))
    parts = _windows(op, images, kernel, steps, gaps, padding, np.zeros((), images.dtype.numpy()))
    return op.Concat(*parts, axis=len(layout) - 1) if len(parts) > 1 else parts[0]


@rule("ExtractImagePatches")
def extract_image_patches(op, images, *, ksizes, strides, rates, padding):
    """The pixels of each patch as channels, with one slice for each offset in the window."""
    return _patches(op, images, ksizes, strides, rates, padding, "NHWC")


@rule("ExtractVolumePatches")
def extract_volume_patches(op, input, *, ksizes, strides, padding):
    return _patches(op, input, ksizes, strides, (1,) * 5, padding, "NDHWC")


@rule("Dilation2D")
def dilation2d(op, input, filter, *, strides, rates, padding):
    """The largest sum of a pixel and the filter's element; pixels outside of the image do not count."""
    kernel, dtype = static_shape(filter, (0, 1)), np.dtype(input.dtype.numpy())
    lowest = np.array(np.iinfo(dtype).min // 2 if dtype.kind in "iu" else -np.inf, dtype)  # that no sum wraps around
    parts = _windows(op, input, kernel, spatial(strides, "NHWC"), spatial(rates, "NHWC"), padding, lowest)
    offsets = np.ndindex(*kernel)
    weights = (op.Gather(op.Gather(filter, np.int64(i), axis=0), np.int64(j), axis=0) for i, j in offsets)
    sums = [op.Add(x, w) for x, w in zip(parts, weights, strict=True)]
    return op.Max(*sums) if len(sums) > 1 else sums[0]
