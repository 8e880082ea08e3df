"""Cases of convolution, pooling, resampling and regions of interest."""

from __future__ import annotations

import numpy as np

from tests.hub.decompositions.compare import Constant, StaticAxes, case

R = np.random.default_rng(3)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


BOXES = np.float32([[0, 0.4, 0.3, 4.2, 3.1], [1, 1, 2, 6.5, 5.5], [0, 3, 3, 3, 3], [1, -2, -1, 9, 8]])
ROIS, IMAGES = BOXES[:, 1:].copy(), BOXES[:, 0].astype(np.int64)
CORNERS = R.random((2, 9, 4)).astype(np.float32)
SCORES = R.random((2, 3, 9)).astype(np.float32)
SIZED = np.array([5, 6]), np.array([2, 2])


def _deformed(group, offset_group, mask, bias):
    extra = [f(4) if bias else None, R.random((2, 9 * offset_group, 5, 6)).astype(np.float32) if mask else None]
    return case(
        "DeformConv",
        f(2, 4, 7, 8),
        Constant(f(4, 4 // group, 3, 3)),
        f(2, 18 * offset_group, 5, 6),
        *extra,
        group=group,
        offset_group=offset_group,
        rtol=1e-4,
        atol=1e-4,
    )


CASES = [
    *(case("GlobalLpPool", f(2, 3, 4, 5), p=p, opset=2) for p in (1, 2, 3)),
    case("GlobalAveragePool", f(2, 3, 4, 5)),
    case("GlobalMaxPool", f(2, 3, 4)),
    *(case("LpPool", f(2, 3, 6, 7), kernel_shape=[3, 2], p=p, strides=[2, 1], pads=[1, 0, 1, 1]) for p in (1, 2, 3)),
    case("LpPool", f(1, 2, 8), kernel_shape=[3], auto_pad="SAME_UPPER"),
    case("MaxUnpool", f(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2]),
    case(
        "MaxUnpool",
        f(1, 1, 2, 2),
        np.array([[[[5, 7], [13, 15]]]]),
        Constant(np.array([1, 1, 5, 5])),
        kernel_shape=[2, 2],
        strides=[2, 2],
        reference="executor",
    ),
    *(case("Col2Im", f(1, 8, 20), *(kind(v) for v in SIZED)) for kind in (Constant, StaticAxes)),
    case(
        "Col2Im",
        f(2, 8, 9),
        Constant(np.array([5, 6])),
        Constant(np.array([2, 2])),
        pads=[1, 0, 1, 2],
        dilations=[2, 1],
        strides=[2, 3],
    ),
    case("Col2Im", f(1, 8, 36), Constant(np.array([3, 4, 5])), Constant(np.array([1, 2, 2]))),
    *(
        case(
            "GridSample",
            f(2, 3, 4, 5),
            (R.random((2, 6, 7, 2)) * 2.6 - 1.3).astype(np.float32),
            mode=m,
            padding_mode=p,
            align_corners=a,
            atol=1e-5,
        )
        for m in ("linear", "nearest", "cubic")
        for p in ("zeros", "border", "reflection")
        for a in (0, 1)
    ),
    case("GridSample", f(1, 2, 3, 4, 5), (R.random((1, 2, 3, 4, 3)) * 2 - 1).astype(np.float32)),
    *(
        case(
            "RoiAlign",
            f(2, 3, 7, 8),
            ROIS,
            IMAGES,
            output_height=3,
            output_width=2,
            sampling_ratio=s,
            mode=m,
            spatial_scale=0.9,
            coordinate_transformation_mode=c,
            opset=16,
        )
        for s in (0, 2)
        for m in ("avg", "max")
        for c in ("half_pixel", "output_half_pixel")
    ),
    case("MaxRoiPool", f(2, 3, 7, 8), BOXES, pooled_shape=[3, 2], opset=13),
    case("MaxRoiPool", f(2, 3, 7, 8), BOXES, pooled_shape=[2, 4], opset=13, spatial_scale=0.5),
    *(_deformed(g, o, m, b) for g, o, m, b in ((1, 1, False, False), (2, 1, True, True), (1, 2, True, False))),
    *(
        case(
            "NonMaxSuppression",
            CORNERS,
            SCORES,
            Constant(np.int64(4)),
            Constant(np.float32(0.3)),
            *([Constant(np.float32(0.2))] if t else []),
            center_point_box=c,
        )
        for t in (0, 1)
        for c in (0, 1)
    ),
    *(
        case(
            "Resize",
            f(1, 2, 4, 5),
            None,
            Constant(np.float32([1, 1, 1.5, 2.0])),
            mode=m,
            coordinate_transformation_mode=c,
            rtol=1e-4,
            atol=1e-4,
        )
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    ),
    *(
        case(
            "Resize",
            R.integers(0, 9, (1, 2, 4, 5)).astype(dtype),
            None,
            Constant(np.float32([1, 1, 2, 1.5])),
            mode=mode,
            cubic_coeff_a=-1.0,
            rtol=0,
            atol=0,
            reference="executor",
        )
        for dtype in (np.uint8, np.int32, np.uint64)
        for mode in ("linear", "cubic")
    ),
    case("Resize", f(1, 2, 4, 5), None, None, np.array([1, 2, 7, 3]), mode="linear", rtol=1e-4, atol=1e-4),
    case("Resize", f(1, 2, 8, 9), None, Constant(np.float32([1, 1, 0.5, 0.4])), mode="linear", antialias=1, rtol=1e-4, atol=1e-4),
]
