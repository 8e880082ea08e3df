"""Image resizing and patches."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir import fold
from onnxbridge.rules import Floats, Ints


def _resize(op, images, size, align_corners, half_pixel_centers, mode, **attrs):
    x = first(op, images, "NHWC")
    where = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    sizes = fold.known_sizes(size) or [None, None]
    if align_corners and any(w in (1, None) and g != 1 for w, g in zip(sizes, list(x.shape)[2:], strict=True)):
        raise Unsupported("align_corners with an output of one pixel or of unknown size")
    new_sizes = [op.Gather(size, np.array(i)) if s is None else s for i, s in enumerate(sizes)]
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


@rule("AdjustContrastv2")
def adjust_contrastv2(op, images, contrast_factor):
    mean = op.ReduceMean(images, [-3, -2], keepdims=1)
    return op.Add(op.Mul(op.Sub(images, mean), contrast_factor), mean)


@rule("ExtractImagePatches", limits="VALID padding")
def extract_image_patches(op, images, *, ksizes, strides, rates, padding):
    """The pixels of each patch as channels, with one slice for each offset in the window."""
    kernel, steps, gaps = (spatial(v, "NHWC") for v in (ksizes, strides, rates))
    height, width = list(images.shape)[1:3]
    if padding != "VALID" or not isinstance(height, int) or not isinstance(width, int):
        raise Unsupported("patches with padding SAME, or of an image of unknown size")
    count = [(s - (k - 1) * g - 1) // t + 1 for s, k, g, t in zip((height, width), kernel, gaps, steps, strict=True)]
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            start = [i * gaps[0], j * gaps[1]]
            ends = [s + (c - 1) * t + 1 for s, c, t in zip(start, count, steps, strict=True)]
            parts.append(op.Slice(images, start, ends, [1, 2], list(steps)))
    return op.Concat(*parts, axis=3) if len(parts) > 1 else parts[0]
