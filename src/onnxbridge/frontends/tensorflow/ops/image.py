"""Resizing by ONNX's Resize, and patches of images."""

import numpy as np

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import static_shape


def _resize(op, images, size, align_corners, half_pixel_centers, mode, **attrs):
    x = first(op, images, "NHWC")
    where = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    known = fold.known_sizes(size) or [None, None]
    if None not in known and known == list(images.shape)[1:3]:
        return images
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
