"""Images: boxes cut out and resized, and samples at given coordinates."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.ops.image import ALIGNED
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import cast, fixed, like, rank
from onnxbridge.rules import Bool, Float, Int, Str
from onnxbridge.runtime.mil.ops.image import ROUNDED

FLOAT = ir.DataType.FLOAT

def _points(op, first, size, count, mode):
    """Where `count` samples lie, for each box (N, 1): rows of samples (N, count)."""
    steps = np.arange(count, dtype=np.float32)[None]
    reach = op.Sub(size, 1.0)
    if mode in ALIGNED and count == 1:
        return op.Identity(first) if mode == "STRICT_ALIGN_CORNERS" else op.Add(first, op.Div(reach, 2.0))
    if mode in ALIGNED:
        return op.Add(first, op.Mul(steps, op.Div(reach, float(count - 1))))
    if mode == "DEFAULT":
        return op.Add(first, op.Mul(steps, op.Div(size, float(count))))
    if mode == "OFFSET_CORNERS":
        return op.Add(first, op.Mul(steps + 0.5, op.Div(op.Max(reach, 1.0), float(count))))
    if mode == "UNALIGN_CORNERS":
        return op.Sub(op.Add(first, op.Mul(steps + 0.5, op.Div(size, float(count)))), 0.5)
    raise Unsupported(f"sampling_mode {mode}")


def _corners(op, boxes, mode):
    """Top, left, bottom and right of boxes (N, 4), each (N, 1)."""
    a, b, c, d = op.Split(boxes, axis=1, num_outputs=4, outputs=4)
    if mode.endswith("WIDTH_FIRST"):
        a, b, c, d = b, a, d, c
    if mode.startswith("CENTER_SIZE"):
        tall, wide = op.Div(c, 2.0), op.Div(d, 2.0)
        return op.Sub(a, tall), op.Sub(b, wide), op.Add(a, tall), op.Add(b, wide)
    return a, b, c, d


@rule("crop_resize")
def crop_resize(
    op, x, roi=None, boxes=None, box_indices=None, target_height: Int = 1, target_width: Int = 1,
    normalized_coordinates: Bool = False, spatial_scale: Float = 1.0, box_coordinate_mode: Str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: Str = "DEFAULT", pad_value: Float | None = None,
):  # fmt: skip
    """From iOS17 on `boxes` with an index each, before that `roi`, where boxes without an index are cut from every image.

    Samples outside the image are `pad_value`; before iOS16, which has none, a box must lie inside. A box of which nothing says
    what it gives is refused or, where only a run tells it, gives NaN.
    """
    (batch,), (height, width) = fixed(x, [0]), fixed(x, [2, 3])
    every = False
    if boxes is None:
        (count, columns), flat = fixed(roi, [0, 2]), op.Reshape(roi, [fixed(roi, [0])[0], -1])
        every = columns == 4
        box_indices = None if every else op.Cast(op.Slice(flat, [0], [1], [1]), to=ir.DataType.INT64)
        boxes = flat if every else op.Slice(flat, [1], [5], [1])
    else:
        (count,) = fixed(boxes, [0])
        box_indices = op.constant(np.arange(count)) if box_indices is None else box_indices
    boxes = op.Mul(cast(op, boxes, FLOAT), spatial_scale)
    top, left, bottom, right = _corners(op, boxes, box_coordinate_mode)
    if normalized_coordinates:
        top, bottom = (op.Mul(v, float(height - 1)) for v in (top, bottom))
        left, right = (op.Mul(v, float(width - 1)) for v in (left, right))
    beyond = [] if pad_value is not None else _outside(op, ((top, bottom), height), ((left, right), width))
    turned = [] if sampling_mode in ALIGNED else [op.Less(bottom, top), op.Less(right, left)]
    unsaid = [
        _unsaid(op, beyond, "a box that reaches out of the image, before iOS16"),
        _unsaid(op, turned, f"{sampling_mode} with a box whose end is before its start"),
    ]
    rows = _points(op, top, op.Add(op.Sub(bottom, top), 1.0), target_height, sampling_mode)
    columns = _points(op, left, op.Add(op.Sub(right, left), 1.0), target_width, sampling_mode)
    if every:  # each box for each image: (box, image)
        indices = np.tile(np.arange(batch), count)
        each = np.repeat(np.arange(count), batch)
        rows, columns, *unsaid = (v and op.Gather(v, each, axis=0) for v in (rows, columns, *unsaid))
    else:
        indices = op.Reshape(box_indices, [-1])
    images = op.Gather(x, indices, axis=0)
    down, across = op.Unsqueeze(rows, [2]), op.Unsqueeze(columns, [1])
    shape = op.Shape(op.Add(down, across))
    crops = _sampled(op, images, op.Expand(across, shape), op.Expand(down, shape), "bilinear", "border", 0.0)
    if pad_value is not None:
        inside = [
            op.And(op.GreaterOrEqual(v, 0.0), op.LessOrEqual(v, float(n - 1))) for v, n in ((down, height), (across, width))
        ]
        crops = op.Where(op.Unsqueeze(op.And(*inside), [1]), crops, pad_value)
    for wrong in filter(None, unsaid):
        crops = op.Where(op.Unsqueeze(wrong, [2, 3]), np.nan, crops)
    if roi is None:
        return crops
    return op.Reshape(crops, [count, -1, *fixed(x, [1]), target_height, target_width])


def _outside(op, *spans):
    """Which corners (N, 1) lie outside of their axis, by more than rounding may have moved them."""
    return [
        test for corners, size in spans for v in corners
        for test in (op.Less(v, -ROUNDED), op.Greater(v, size - 1 + ROUNDED))
    ]  # fmt: skip


def _unsaid(op, tests, reason):
    """Which boxes (N, 1) one of the tests is true of, None where that is known to be none.

    Raises:
        Unsupported: if it is known to be one.
    """
    if not tests:
        return None
    found = tests[0]
    for test in tests[1:]:
        found = op.Or(found, test)
    known = fold.static(found)
    if known is not None and known.any():
        raise Unsupported(reason)
    return found if known is None else None


PADDING = {"constant": ("zeros", True), "border": ("border", True), "reflection": ("reflection", True),
           "symmetric": ("reflection", False)}  # fmt: skip


def _sampled(op, x, across, down, mode, padding, value):
    """Samples of `x` at places (N, H, W) counted in elements."""
    height, width = fixed(x, [2, 3])
    if mode == "nearest":  # MIL mirrors first and rounds then; here, where a half is a half, which it need not be in a grid
        across, down = (op.Round(_mirrored(op, at, n, padding)) for at, n in ((across, width), (down, height)))
    name, aligned = PADDING[padding]
    grid = [
        op.Sub(op.Mul(at, 2.0 / max(1, n - 1)), 1.0) if aligned else op.Sub(op.Mul(op.Add(at, 0.5), 2.0 / n), 1.0)
        for at, n in ((across, width), (down, height))
    ]
    grid = op.Concat(*(op.Unsqueeze(g, [3]) for g in grid), axis=3)
    if aligned and 1 in (height, width):  # an axis of one element has no two corners: it is doubled
        x = op.Concat(x, x, axis=2) if height == 1 and padding != "constant" else x
        x = op.Concat(x, x, axis=3) if width == 1 and padding != "constant" else x
        if padding == "constant":
            raise Unsupported("padding_mode constant around an image of one row or column")
    full = op.Cast(x, to=FLOAT) if x.dtype != FLOAT else x
    moved = op.Sub(full, value) if value else full  # zeros outside stand for the value
    y = op.GridSample(
        moved, cast(op, grid, FLOAT), align_corners=int(aligned), padding_mode=name,
        mode={"bilinear": "linear", "nearest": "nearest"}[mode],
    )  # fmt: skip
    return like(op, op.Add(y, value) if value else y, x)


def _mirrored(op, at, size, padding):
    """Places brought back onto an axis of `size` elements by mirrors at its outer elements or (symmetric) at their edges."""
    if padding not in ("reflection", "symmetric"):
        return at
    edge = 0.5 if padding == "symmetric" else 0.0
    turn = float(size - 1 + 2 * edge) or 1.0
    turned = op.Sub(op.Mod(op.Abs(op.Add(at, edge)), 2 * turn, fmod=1), turn)
    return op.Clip(op.Sub(op.Sub(turn, op.Abs(turned)), edge), 0.0, float(size - 1))


@rule("resample")
def resample(
    op, x, coordinates, sampling_mode: Str, padding_mode: Str, padding_value: Float, coordinates_mode: Str, align_corners: Bool
):
    if padding_mode not in PADDING or sampling_mode not in ("bilinear", "nearest"):
        raise Unsupported(f"{sampling_mode} with {padding_mode}")
    height, width = fixed(x, [2, 3])
    across, down = op.Split(cast(op, coordinates, FLOAT), axis=3, num_outputs=2, outputs=2)
    across, down = (
        _elements(op, op.Squeeze(v, [3]), n, coordinates_mode, align_corners) for v, n in ((across, width), (down, height))
    )
    return _sampled(op, x, across, down, sampling_mode, padding_mode, padding_value if padding_mode == "constant" else 0.0)


def _elements(op, points, size, mode, align_corners):
    """Coordinates in elements, from what the mode says that they are."""
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
    """Sample where the matrix takes each pixel of the output, in the same kind of coordinates."""
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
