"""Image operators that sample at computed positions: crop_resize, resample and affine."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.ops.image import ALIGN_CORNERS_MODES
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import cast, like, rank, static_shape
from onnxbridge.rules import Bool, Float, Int, Str
from onnxbridge.runtime.mil.ops.image import CORNER_TOLERANCE

FLOAT = ir.DataType.FLOAT


def _points(op, first, size, count, mode):
    """The positions of `count` samples per box, (N, count), from its start and size, (N, 1)."""
    steps = np.arange(count, dtype=np.float32)[None]
    last_offset = op.Sub(size, 1.0)
    if mode in ALIGN_CORNERS_MODES and count == 1:
        return op.Identity(first) if mode == "STRICT_ALIGN_CORNERS" else op.Add(first, op.Div(last_offset, 2.0))
    if mode in ALIGN_CORNERS_MODES:
        return op.Add(first, op.Mul(steps, op.Div(last_offset, float(count - 1))))
    if mode == "DEFAULT":
        return op.Add(first, op.Mul(steps, op.Div(size, float(count))))
    if mode == "OFFSET_CORNERS":
        return op.Add(first, op.Mul(steps + 0.5, op.Div(op.Max(last_offset, 1.0), float(count))))
    if mode == "UNALIGN_CORNERS":
        return op.Sub(op.Add(first, op.Mul(steps + 0.5, op.Div(size, float(count)))), 0.5)
    raise Unsupported(f"sampling_mode {mode}")


def _corners(op, boxes, mode):
    """Top, left, bottom and right of boxes (N, 4), each (N, 1)."""
    a, b, c, d = op.Split(boxes, axis=1, num_outputs=4, outputs=4)
    if mode.endswith("WIDTH_FIRST"):
        a, b, c, d = b, a, d, c
    if mode.startswith("CENTER_SIZE"):
        half_height, half_width = op.Div(c, 2.0), op.Div(d, 2.0)
        return op.Sub(a, half_height), op.Sub(b, half_width), op.Add(a, half_height), op.Add(b, half_width)
    return a, b, c, d


@rule("crop_resize")
def crop_resize(
    op, x, roi=None, boxes=None, box_indices=None, target_height: Int = 1, target_width: Int = 1,
    normalized_coordinates: Bool = False, spatial_scale: Float = 1.0, box_coordinate_mode: Str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: Str = "DEFAULT", pad_value: Float | None = None,
):  # fmt: skip
    """From iOS17 on, `boxes` with an image index each; before, `roi`, whose boxes without an index are cropped from every image.

    Samples outside of the image are `pad_value`; before iOS16, which lacks it, boxes must lie inside. Boxes with an undefined
    result are unsupported if they are constant; otherwise they give NaN.
    """
    (batch,), (height, width) = static_shape(x, [0]), static_shape(x, [2, 3])
    every_image = False
    if boxes is None:
        (count, columns), flat = static_shape(roi, [0, 2]), op.Reshape(roi, [static_shape(roi, [0])[0], -1])
        every_image = columns == 4
        box_indices = None if every_image else op.Cast(op.Slice(flat, [0], [1], [1]), to=ir.DataType.INT64)
        boxes = flat if every_image else op.Slice(flat, [1], [5], [1])
    else:
        (count,) = static_shape(boxes, [0])
        box_indices = op.constant(np.arange(count)) if box_indices is None else box_indices
    boxes = op.Mul(cast(op, boxes, FLOAT), spatial_scale)
    top, left, bottom, right = _corners(op, boxes, box_coordinate_mode)
    if normalized_coordinates:
        top, bottom = (op.Mul(v, float(height - 1)) for v in (top, bottom))
        left, right = (op.Mul(v, float(width - 1)) for v in (left, right))
    outside_tests = [] if pad_value is not None else _outside(op, ((top, bottom), height), ((left, right), width))
    reversed_tests = [] if sampling_mode in ALIGN_CORNERS_MODES else [op.Less(bottom, top), op.Less(right, left)]
    invalid_masks = [
        _invalid_mask(op, outside_tests, "a box that exceeds the image, before iOS16"),
        _invalid_mask(op, reversed_tests, f"{sampling_mode} with a box whose end is before its start"),
    ]
    rows = _points(op, top, op.Add(op.Sub(bottom, top), 1.0), target_height, sampling_mode)
    columns = _points(op, left, op.Add(op.Sub(right, left), 1.0), target_width, sampling_mode)
    if every_image:  # each box for each image: (box, image)
        indices = np.tile(np.arange(batch), count)
        box_of_row = np.repeat(np.arange(count), batch)
        rows, columns, *invalid_masks = (v and op.Gather(v, box_of_row, axis=0) for v in (rows, columns, *invalid_masks))
    else:
        indices = op.Reshape(box_indices, [-1])
    images = op.Gather(x, indices, axis=0)
    down, across = op.Unsqueeze(rows, [2]), op.Unsqueeze(columns, [1])
    shape = op.Shape(op.Add(down, across))
    crops = _grid_sample(op, images, op.Expand(across, shape), op.Expand(down, shape), "bilinear", "border", 0.0)
    if pad_value is not None:
        inside = [
            op.And(op.GreaterOrEqual(v, 0.0), op.LessOrEqual(v, float(n - 1))) for v, n in ((down, height), (across, width))
        ]
        crops = op.Where(op.Unsqueeze(op.And(*inside), [1]), crops, pad_value)
    for invalid in filter(None, invalid_masks):
        crops = op.Where(op.Unsqueeze(invalid, [2, 3]), np.nan, crops)
    if roi is None:
        return crops
    return op.Reshape(crops, [count, -1, *static_shape(x, [1]), target_height, target_width])


def _outside(op, *spans):
    """Tests (N, 1) whether corners lie outside of the image by more than rounding may have moved them."""
    return [
        test for corners, size in spans for v in corners
        for test in (op.Less(v, -CORNER_TOLERANCE), op.Greater(v, size - 1 + CORNER_TOLERANCE))
    ]  # fmt: skip


def _invalid_mask(op, tests, reason):
    """Boxes (N, 1) for which any of the tests is true, None if it is known to be false for all.

    Raises:
        Unsupported: if it is known to be true for one.
    """
    if not tests:
        return None
    found = tests[0]
    for test in tests[1:]:
        found = op.Or(found, test)
    known = fold.constant_array(found)
    if known is not None and known.any():
        raise Unsupported(reason)
    return found if known is None else None


PADDING = {"constant": ("zeros", True), "border": ("border", True), "reflection": ("reflection", True),
           "symmetric": ("reflection", False)}  # fmt: skip


def _grid_sample(op, x, across, down, mode, padding, value):
    """Sample `x` at pixel positions (N, H, W)."""
    height, width = static_shape(x, [2, 3])
    if mode == "nearest":  # MIL reflects before rounding; done in pixels, since grid coordinates do not represent halves exactly
        across, down = (op.Round(_reflect(op, positions, n, padding)) for positions, n in ((across, width), (down, height)))
    name, aligned = PADDING[padding]
    grid = [
        op.Sub(op.Mul(positions, 2.0 / max(1, n - 1)), 1.0) if aligned else op.Sub(op.Mul(op.Add(positions, 0.5), 2.0 / n), 1.0)
        for positions, n in ((across, width), (down, height))
    ]
    grid = op.Concat(*(op.Unsqueeze(g, [3]) for g in grid), axis=3)
    if aligned and 1 in (height, width):  # aligned corners need two elements: duplicate a single one
        x = op.Concat(x, x, axis=2) if height == 1 and padding != "constant" else x
        x = op.Concat(x, x, axis=3) if width == 1 and padding != "constant" else x
        if padding == "constant":
            raise Unsupported("padding_mode constant for an image with a single row or column")
    as_float32 = op.Cast(x, to=FLOAT) if x.dtype != FLOAT else x
    shifted = op.Sub(as_float32, value) if value else as_float32  # GridSample pads with zeros
    y = op.GridSample(
        shifted, cast(op, grid, FLOAT), align_corners=int(aligned), padding_mode=name,
        mode={"bilinear": "linear", "nearest": "nearest"}[mode],
    )  # fmt: skip
    return like(op, op.Add(y, value) if value else y, x)


def _reflect(op, positions, size, padding):
    """Reflect positions into an axis of `size` elements, at its first and last element or (symmetric) at their outer edges."""
    if padding not in ("reflection", "symmetric"):
        return positions
    edge = 0.5 if padding == "symmetric" else 0.0
    length = float(size - 1 + 2 * edge) or 1.0
    offset = op.Sub(op.Mod(op.Abs(op.Add(positions, edge)), 2 * length, fmod=1), length)
    return op.Clip(op.Sub(op.Sub(length, op.Abs(offset)), edge), 0.0, float(size - 1))


@rule("resample")
def resample(
    op, x, coordinates, sampling_mode: Str, padding_mode: Str, padding_value: Float, coordinates_mode: Str, align_corners: Bool
):
    if padding_mode not in PADDING or sampling_mode not in ("bilinear", "nearest"):
        raise Unsupported(f"{sampling_mode} with {padding_mode}")
    height, width = static_shape(x, [2, 3])
    across, down = op.Split(cast(op, coordinates, FLOAT), axis=3, num_outputs=2, outputs=2)
    across, down = (
        _elements(op, op.Squeeze(v, [3]), n, coordinates_mode, align_corners) for v, n in ((across, width), (down, height))
    )
    return _grid_sample(op, x, across, down, sampling_mode, padding_mode, padding_value if padding_mode == "constant" else 0.0)


def _elements(op, points, size, mode, align_corners):
    """Convert coordinates to pixels."""
    if mode == "unnormalized":
        return points
    if mode == "normalized_minus_one_to_one":
        points = op.Div(op.Add(points, 1.0), 2.0)
    elif mode != "normalized_zero_to_one":
        raise Unsupported(f"coordinates_mode {mode}")
    return op.Mul(points, float(size - 1)) if align_corners else op.Sub(op.Mul(points, float(size)), 0.5)


@rule("affine")
def affine(
    op, x, transform_matrix, output_height: Int, output_width: Int, sampling_mode: Str, padding_mode: Str, padding_value: Float,
    coordinates_mode: Str, align_corners: Bool,
):  # fmt: skip
    """Sample at the positions that the matrix maps each output pixel to, in the coordinates of the mode."""
    low, high = {"normalized_minus_one_to_one": (-1, 1), "normalized_zero_to_one": (0, 1)}.get(coordinates_mode, (0, None))
    axes = []
    for n in (output_width, output_height):
        span = n - 1 if high is None else high - low
        step = span / max(1, n - 1) if align_corners or high is None else span / n
        axes.append(low + (0 if align_corners or high is None else step / 2) + np.arange(n) * step)
    across, down = np.meshgrid(*axes)
    pixels = np.stack([across, down, np.ones_like(across)]).reshape(3, -1).astype(np.float32)
    matrices = op.Reshape(cast(op, transform_matrix, FLOAT), [-1, 2, 3])
    grid = op.Transpose(op.MatMul(matrices, pixels), perm=[0, 2, 1])
    grid = op.Reshape(grid, [-1, output_height, output_width, 2])
    if rank(x) and x.shape[0] != grid.shape[0]:
        grid = op.Expand(grid, op.dims([op.size(x, 0), 1, 1, 1]))
    return resample(op, x, grid, sampling_mode, padding_mode, padding_value, coordinates_mode, align_corners)
