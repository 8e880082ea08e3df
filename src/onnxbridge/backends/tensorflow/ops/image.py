"""Image sampling, cropping and non-maximum suppression."""

from __future__ import annotations

import itertools
import math

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import known, packed, rank, sizes
from onnxbridge.errors import Unsupported


def _reflected(x, low, high):
    """Coordinates reflected at both bounds."""
    span = high - low
    folded = tf.math.floormod(x - low, 2 * tf.maximum(span, tf.cast(1e-30, x.dtype)))
    return low + tf.minimum(folded, 2 * span - folded)


def _cubic(x, a=-0.75):
    """The weights of the four elements around a coordinate at distance `x` after the second."""

    def near(d):
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d):
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(x + 1), near(x), near(1 - x), far(2 - x)]


@rule("GridSample")
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    spatial = rank(X) - 2
    if mode == "cubic" and spatial != 2:
        raise Unsupported(f"cubic with {spatial} spatial dimensions")
    wide = tf.float32 if X.dtype.size == 2 else X.dtype
    data = tf.cast(tf.transpose(X, [0, *range(2, spatial + 2), 1]), wide)
    grid = tf.cast(grid, wide)
    lengths = sizes(X)[2:]
    choices = []  # for each axis, the coordinates to read and their weights
    bounds = []
    for axis in range(spatial):
        n = tf.cast(lengths[axis], wide)
        g = grid[..., spatial - 1 - axis]
        coordinate = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        low, high = (0 * n, n - 1) if align_corners else (0 * n - 0.5, n - 0.5)
        bounds.append((low, high, n))
        if mode != "cubic":
            coordinate = _bounded(coordinate, padding_mode, low, high, n)
        if mode == "nearest":
            choices.append([(tf.round(coordinate), tf.ones_like(coordinate))])
            continue
        base = tf.floor(coordinate)
        rest = coordinate - base
        weights = _cubic(rest) if mode == "cubic" else [1 - rest, rest]
        start = -1 if mode == "cubic" else 0
        choices.append([(base + start + i, w) for i, w in enumerate(weights)])
    total = 0
    for corner in itertools.product(*choices):
        weight, coordinates, valid = 1, [], True
        for (coordinate, w), (low, high, n) in zip(corner, bounds, strict=True):
            if mode == "cubic":
                coordinate = _bounded(coordinate, padding_mode, low, high, n)
                coordinate = tf.round(coordinate) if padding_mode == "reflection" else coordinate
            weight = weight * w
            valid = valid & (coordinate >= 0) & (coordinate <= n - 1)
            coordinates.append(tf.cast(tf.clip_by_value(coordinate, 0 * n, n - 1), tf.int32))
        found = tf.gather_nd(data, tf.stack(coordinates, -1), batch_dims=1)
        total = total + found * tf.where(valid, weight, tf.zeros_like(weight))[..., None]
    return tf.cast(tf.transpose(total, [0, spatial + 1, *range(1, spatial + 1)]), X.dtype)


def _bounded(coordinate, padding_mode, low, high, n):
    if padding_mode == "border":
        return tf.clip_by_value(coordinate, 0 * n, n - 1)
    if padding_mode == "reflection":
        return tf.clip_by_value(_reflected(coordinate, low, high), 0 * n, n - 1)
    return coordinate


_BYTES = [bytes([i]) for i in range(256)]


def _each(values):
    """The elements of a 1-D tensor, as ints where known."""
    fixed = known(values)
    return list(fixed) if isinstance(fixed, tuple) else tf.unstack(tf.cast(values, tf.int32), values.shape[0])


@rule("Col2Im")
def col2im(input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    if input.dtype == tf.bool:
        counts = col2im(tf.cast(input, tf.int32), image_shape, block_shape, dilations=dilations, pads=pads, strides=strides)
        return counts > 0
    image, block = _each(image_shape), _each(block_shape)
    spatial = len(image)
    dilations, strides, pads = dilations or (1,) * spatial, strides or (1,) * spatial, pads or (0,) * (2 * spatial)
    padded = [n + b + a for n, b, a in zip(image, pads[:spatial], pads[spatial:], strict=True)]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(padded, block, dilations, strides, strict=True)]
    coordinate = tf.zeros([1] * (2 * spatial), tf.int32)
    for axis in range(spatial):
        steps = tf.range(block[axis])[:, None] * dilations[axis] + tf.range(counts[axis])[None] * strides[axis]
        shape = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = block[axis], counts[axis]
        coordinate = coordinate * padded[axis] + tf.reshape(steps, packed(shape))
    batch = sizes(input)[0]
    columns = tf.reshape(input, packed([batch, -1, math.prod([*block, *counts])]))
    channels = tf.shape(columns)[1]
    image_sum = tf.math.unsorted_segment_sum(tf.transpose(columns, [2, 0, 1]), tf.reshape(coordinate, [-1]), math.prod(padded))
    image_sum = tf.reshape(tf.transpose(image_sum, [1, 2, 0]), packed([batch, channels, *padded]))
    return image_sum[(slice(None), slice(None), *(slice(b, b + n) for b, n in zip(pads[:spatial], image, strict=True)))]


@rule("ImageDecoder", limits="JPEG 2000, TIFF and PNM: TensorFlow does not decode them, which is an error when the model runs")
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise Unsupported(f"pixel_format {pixel_format!r}")
    contents = tf.strings.reduce_join(tf.gather(_BYTES, tf.cast(encoded_stream, tf.int32)))
    is_webp = tf.strings.regex_full_match(tf.strings.substr(contents, 0, 12), "RIFF(?s:.*)WEBP")

    def webp():
        return tf.raw_ops.DecodeWebP(contents=contents, channels=3, dtype=tf.uint8)[0]

    def other():
        image = tf.io.decode_image(contents, 3, expand_animations=False)
        is_jpeg = tf.io.is_jpeg(contents)
        return tf.cond(is_jpeg, lambda: tf.io.decode_jpeg(contents, 3, dct_method="INTEGER_ACCURATE"), lambda: image)

    pixels = tf.ensure_shape(tf.cond(is_webp, webp, other), [None, None, 3])
    if pixel_format == "Grayscale":  # the luma of ITU-R 601, as Pillow computes it
        luma = tf.reduce_sum(tf.cast(pixels, tf.int32) * tf.constant([19595, 38470, 7471]), -1, keepdims=True)
        return tf.cast(tf.bitwise.right_shift(luma + (1 << 15), 16), tf.uint8)
    return tf.reverse(pixels, [2]) if pixel_format == "BGR" else pixels


@rule("NonMaxSuppression")
def non_max_suppression(
    boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    if boxes.shape[0] is None or scores.shape[1] is None:
        raise Unsupported("a dynamic number of batches or classes")
    if max_output_boxes_per_class is None:
        return tf.zeros([0, 3], tf.int64)
    if center_point_box:
        x, y, w, h = tf.unstack(boxes, axis=-1)
        w, h = tf.nn.relu(w), tf.nn.relu(h)  # tf.image swaps edges in the wrong order
        boxes = tf.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    most = tf.cast(tf.reshape(max_output_boxes_per_class, []), tf.int32)
    overlap = tf.constant(0.0) if iou_threshold is None else tf.reshape(iou_threshold, [])
    least = tf.constant(-float("inf")) if score_threshold is None else tf.reshape(score_threshold, [])
    rows = []
    for b, c in itertools.product(range(boxes.shape[0]), range(scores.shape[1])):
        found = tf.image.non_max_suppression(boxes[b], scores[b, c], most, overlap, least)
        rows.append(tf.stack([tf.fill(tf.shape(found), b), tf.fill(tf.shape(found), c), found], -1))
    return tf.cast(tf.concat(rows, 0), tf.int64)
