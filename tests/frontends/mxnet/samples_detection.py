"""Samples of MXNet's operators on boxes and regions of interest."""

from __future__ import annotations

import numpy as np


def detection(s, r):
    """Add the samples by `s`, with arrays from the random state `r`."""

    def f(*shape, low=-2.0, high=2.0):
        return r.uniform(low, high, shape).astype(np.float32)

    for kind in ("corner", "center"):
        s("_contrib_box_iou", np.sort(f(3, 4), -1), np.sort(f(2, 5, 4), -1), format=kind)
        anchors = np.sort(f(1, 3, 4, low=0.1, high=0.9), -1)
        s("_contrib_box_decode", f(2, 3, 4) * np.float32(0.2), anchors, format=kind, std0=0.1, clip=0.3)
    boxes = rows(r, 2, 9, grid=False)
    names = "_contrib_box_nms _contrib_box_non_maximum_suppression"
    s(names, boxes, overlap_thresh=0.3)
    for extra in ({"id_index": 0}, {"id_index": 0, "background_id": 1}, {"topk": 4}, {"id_index": 0, "force_suppress": True}):
        s("_contrib_box_nms", boxes, overlap_thresh=0.2, valid_thresh=0.15, **extra)
        s("_contrib_box_nms", rows(r, 2, 30, grid=True), overlap_thresh=0.25, valid_thresh=0.125, **extra)
    s("_contrib_box_nms", boxes[0], overlap_thresh=0.3, in_format="center", out_format="corner")
    s("_contrib_box_nms", boxes, overlap_thresh=0.3, out_format="center")
    s("_contrib_box_nms", boxes - np.float32(0.3), overlap_thresh=0.3, in_format="center", topk=6)
    s("_contrib_box_nms", boxes.astype(np.float16), overlap_thresh=0.3, id_index=0)
    s("_contrib_box_nms", boxes, overlap_thresh=0.3, valid_thresh=2)
    s("_contrib_box_nms", boxes, topk=0)

    shape = np.zeros((2, 4, 6, 6), np.float32)
    s("_contrib_MultiBoxPrior _npx_multibox_prior", shape, sizes=(0.5, 0.25), ratios=(1, 2, 0.5))
    s("_contrib_MultiBoxPrior", shape[:1, :, :3, :5], sizes=(0.7,), ratios=(2,), clip=True, steps=(0.3, 0.2), offsets=(0.4, 0.6))
    chances = r.uniform(0, 1, (2, 3, 7))
    chances = (chances / chances.sum(1, keepdims=True)).astype(np.float32)
    anchors = np.sort(r.uniform(0, 1, (1, 7, 2, 2)), -2).reshape(1, 7, 4).astype(np.float32)
    for extra in (
        {}, {"threshold": 0.4, "nms_threshold": 0.2}, {"force_suppress": True, "nms_threshold": 0.1, "clip": False},
        {"nms_topk": 2, "nms_threshold": 0.1}, {"nms_threshold": 0}, {"background_id": 1},
    ):  # fmt: skip
        s("_contrib_MultiBoxDetection", chances, f(2, 28) * np.float32(0.1), anchors, **extra)
    s("_npx_multibox_detection", chances, f(2, 28) * np.float32(0.1), anchors)

    for ascending in (False, True):
        s("_contrib_bipartite_matching", f(2, 3, 4), heads=2, is_ascend=ascending, threshold=0.5)
    s("_contrib_bipartite_matching", r.randint(0, 4, (5, 3)).astype(np.float32), heads=2, threshold=0.5, topk=1)
    scores, deltas, sizes = (
        f(2, 6, 5, 6, low=0),
        f(2, 12, 5, 6, low=-0.5, high=0.5),
        np.array([[72, 90, 1], [80, 96, 0.5]], np.float32),
    )
    shared = {"scales": (2.0,), "ratios": (0.5, 1.0, 2.0), "feature_stride": 16, "rpn_post_nms_top_n": 30, "output_score": True}
    s("_contrib_MultiProposal", scores, deltas, sizes, heads=2, **shared)
    s("_contrib_MultiProposal", scores, deltas, sizes, heads=2, iou_loss=True, **shared)
    s(
        "_contrib_Proposal",
        scores[:1],
        deltas[:1],
        sizes[:1],
        heads=2,
        rpn_pre_nms_top_n=25,
        threshold=0.3,
        rpn_min_size=24,
        **shared,
    )

    image = f(2, 18, 9, 11)
    regions = np.array([[0, 0, 0, 4, 4], [1, 1.5, 1, 5, 8.5], [0, -2, 3, 20, 7]], np.float32)
    for pooled, ratio in (((3, 3), 2), ((2, 1), -1)):
        s("_contrib_ROIAlign", image, regions, pooled_size=pooled, spatial_scale=0.7, sample_ratio=ratio)
        s("_contrib_ROIAlign", image, regions, pooled_size=pooled, spatial_scale=0.7, position_sensitive=True)
    s("_contrib_ROIAlign", image, regions[[0, 1]], pooled_size=(3, 3), spatial_scale=1.0, aligned=True)
    unused = regions * np.array([-1, 1, 1, 1, 1], np.float32)
    s("_contrib_ROIAlign", image, unused, pooled_size=(3, 2), spatial_scale=1.0)
    for groups, pooled in ((3, 3), (0, 3), (3, 4)):
        s("_contrib_PSROIPooling", image, regions, spatial_scale=0.5, output_dim=2, pooled_size=pooled, group_size=groups)
    double = [x.astype(np.float64) for x in (image, regions)]
    s("_contrib_PSROIPooling", *double, spatial_scale=0.5, output_dim=2, pooled_size=3)
    for extra in ({"kernel_size": 3, "stride1": 2}, {"stride2": 2, "is_multiply": False}):
        s("Correlation", f(2, 3, 8, 9), f(2, 3, 8, 9), max_displacement=2, pad_size=3, **extra)

    image, weight, bias = f(2, 4, 8, 9), f(4, 2, 3, 3), f(4)
    layer = {"kernel": (3, 3), "stride": (1, 2), "pad": (1, 1), "num_filter": 4, "num_group": 2, "num_deformable_group": 2}
    offset = f(2, 36, 8, 5, low=-3, high=3)
    s("_contrib_DeformableConvolution", image, offset, weight, bias, **layer)
    s("_contrib_DeformableConvolution", image, np.round(offset), weight, no_bias=True, **layer)


def rows(r, batch, count, grid):
    """Rows of class, score and corners; on a grid, many scores, corners and overlaps are equal."""
    if grid:
        low = r.randint(0, 8, (batch, count, 2)) / 8
        edges = np.concatenate([low, low + r.randint(-1, 5, (batch, count, 2)) / 8], -1)
        scores = r.randint(0, 8, (batch, count, 1)) / 8
    else:
        edges = np.sort(r.uniform(0, 1, (batch, count, 2, 2)), -2).reshape(batch, count, 4)
        scores = r.uniform(0, 1, (batch, count, 1))
    return np.concatenate([r.randint(-1, 3, (batch, count, 1)), scores, edges], -1).astype(np.float32)
