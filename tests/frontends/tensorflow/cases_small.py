# ruff: noqa: E501  one operator per line
"""Samples of operators that older graphs and rarer functions have."""

from __future__ import annotations

import numpy as np

from tests.frontends.tensorflow.samples import S, f32, f64, fed, i32, pos

S("ToBool", input=fed(0.0))
S("ToBool", input=i32(3))
S("ToBool", input=f32(0, 2))
for _dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint32, np.uint64):
    S("PopulationCount", x=fed([0, 1, 5, 127, np.iinfo(_dtype).max, np.iinfo(_dtype).min], _dtype))
S("GuaranteeConst", input=f32(3))
S("DeepCopy", x=f32(3))
S("Empty", shape=[2, 3], dtype="float32", init=True)
S("Empty", shape=i32(2, low=1, high=4), dtype="int32", init=True)
S("UnravelIndex", indices=fed([0, 5, 23], np.int32), dims=np.array([2, 3, 4], np.int32))
S("UnravelIndex", indices=fed(17, np.int64), dims=fed([2, 3, 4], np.int64))
S("DataFormatVecPermute", x=i32(4))
S("DataFormatVecPermute", x=i32(4, 2), src_format="NCHW", dst_format="NHWC")
S("DataFormatVecPermute", x=i32(2))
for _op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
    S(_op, x=f32(4, 3), i=fed([2, 0], np.int32), v=f32(2, 3))
    S(_op, x=f32(4, 3), i=fed([2, -4, 5], np.int32), v=f32(3, 3))
for _op in ("InplaceAdd", "InplaceSub"):
    S(_op, x=f32(4, 3), i=fed([2, 0, 2], np.int32), v=f32(3, 3))
for _mode in ("REFLECT", "SYMMETRIC"):
    S("FusedPadConv2D", input=f32(1, 5, 6, 2), paddings=[[0, 0], [1, 2], [2, 0], [0, 0]], filter=f32(3, 3, 2, 4), mode=_mode, strides=[1, 1, 1, 1], padding="VALID")
S("FusedResizeAndPadConv2D", input=f32(1, 5, 6, 2), size=[7, 4], paddings=[[0, 0], [1, 2], [2, 0], [0, 0]], filter=f32(3, 3, 2, 4), mode="REFLECT", strides=[1, 1, 1, 1], padding="VALID")
S("TridiagonalSolve", diagonals=fed([[1, 2, 3, 9], [7, 8, 9, 7], [5, 1, 2, 3]], np.float32), rhs=f32(4, 2))
S("TridiagonalSolve", diagonals=fed([[[1, 2, 0], [7, -8, 9], [0, 1, 2]]] * 2, np.float64), rhs=f64(2, 3, 1))
S("TridiagonalMatMul", superdiag=f32(2, 1, 4), maindiag=pos(2, 1, 4), subdiag=f32(2, 1, 4), rhs=f32(2, 4, 3))
S("Reshape", tensor=f32(0, 3), shape=[2, 0])
S("Mean", input=i32(2, 0), axis=[1])
S("Sum", input=f32(2, 0, 3), axis=[-1, -2], keep_dims=True)
for _dtype in (np.uint64, np.int16, np.uint16):
    S("Max", input=fed([[1, 7], [np.iinfo(_dtype).max, 3]], _dtype), axis=[-1])
    S("Pad", input=i32(2, 3, dtype=_dtype, low=0), paddings=[[1, 0], [0, 2]])
    S("SelectV2", condition=fed([True, False], np.bool_), t=i32(2, dtype=_dtype, low=0), e=i32(2, dtype=_dtype, low=0))
S("SelectV2", condition=fed([True, False, True], np.bool_), t=fed([True, False, False], np.bool_), e=fed([False, True, True], np.bool_))
S("TopKV2", input=fed([1, (1 << 64) - 1, 5], np.uint64), k=2)
S("TruncateMod", x=fed([(1 << 62) + 3, -7], np.int64), y=fed([10, 3], np.int64))
S("StridedSlice", input=f32(4), begin=[-6], end=[0], strides=[-1], end_mask=1)
S("StridedSlice", input=f32(4, dynamic=(0,)), begin=[-6], end=[0], strides=[-1], end_mask=1)
S("StridedSlice", input=f32(8, dynamic=(0,)), begin=[-6], end=[0], strides=[-1], end_mask=1)
S("TensorStridedSliceUpdate", input=f32(4, 3), begin=[1, 0], end=[4, 1], strides=[2, 1], value=f32(2), shrink_axis_mask=2)
S("TensorStridedSliceUpdate", input=f32(4, 3, dynamic=(0, 1)), begin=[-1, 1], end=[0, 3], strides=[-2, 1], value=f32(2, 2), begin_mask=1, end_mask=3)
S("TensorStridedSliceUpdate", input=f32(3, 4), begin=fed([1], np.int32), end=fed([3], np.int32), strides=[1], value=f32(2, 4))
S("EuclideanNorm", input=i32(2, 3), axis=[1])
S("TensorScatterSub", tensor=i32(4, low=9, dtype=np.uint8), indices=np.array([[1], [1]]), updates=fed([2, 3], np.uint8))
S("Slice", input=f32(4, 5), begin=i32(2, low=1, high=2, dynamic=(0,)), size=[2, -1])
S("ResizeBilinear", images=f32(1, 5, 6, 3), size=[5, 6], half_pixel_centers=True)
for _op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
    S(_op, images=f32(1, 5, 6, 3, dynamic=(1, 2)), size=fed([7, 4], np.int32), align_corners=True)
    S(_op, images=f32(1, 5, 6, 3), size=[1, 4], align_corners=True)
S("ScaleAndTranslate", images=f32(1, 5, 6, 3, dynamic=(1,)), size=fed([7, 4], np.int32), scale=fed([1.3, 0.7]), translation=fed([0.3, -1]), kernel_type="lanczos5")
S("ScaleAndTranslate", images=f32(1, 5, 6, 3), size=[7, 4], scale=fed([1.3, 0.7]), translation=[0.3, -1.0], kernel_type="box", antialias=False)
S("CombinedNonMaxSuppression", boxes=pos(1, 6, 1, 4, dynamic=(2,)), scores=pos(1, 6, 2), max_output_size_per_class=3, max_total_size=4, iou_threshold=0.5, score_threshold=0.2)
for _dtype in (np.float32, np.float64):
    _tiny = np.finfo(_dtype).smallest_subnormal
    S("NextAfter", x1=fed([0, -0.0, 1, -1, 2.5, np.inf, -np.inf, np.nan, 1, 3, _tiny, -_tiny, np.finfo(_dtype).max], _dtype), x2=fed([1, -1, 2, 0, np.inf, 0, 0, 1, np.nan, 3, 0, 1, np.inf], _dtype))
for _lower in (True, False):
    for _adjoint in (True, False):
        S("BandedTriangularSolve", matrix=pos(3, 5), rhs=f32(5, 2), lower=_lower, adjoint=_adjoint)
        S("BandedTriangularSolve", matrix=pos(2, 2, 4, dtype=np.float64), rhs=f64(2, 4, 3), lower=_lower, adjoint=_adjoint)
S("BandedTriangularSolve", matrix=pos(1, 4), rhs=f32(4, 2))
for _start in ([1, 0, 2], [-1, 9, 1]):
    S("XlaDynamicSlice", input=f32(4, 3, 5), start_indices=fed(_start, np.int32), size_indices=np.array([2, 3, 1], np.int32))
    S("XlaDynamicUpdateSlice", input=f32(4, 3, 5), update=f32(2, 3, 1), indices=fed(_start, np.int64))
S("XlaDynamicUpdateSlice", input=f32(2, 3), update=f32(2, 3), indices=fed([1, 1], np.int32))
S("XlaDynamicUpdateSlice", input=f32(4, 3, dynamic=(0,)), update=f32(2, 2, dynamic=(0, 1)), indices=fed([1, 0], np.int32))
S("Split", axis=0, value=f32(0, 3), num_split=2)
S("Einsum", inputs=[f32(2, 3, 4), f32(2, 4, 3)], equation="i...,j...k->...ijk")
S("Einsum", inputs=[f32(3, 4), f32(2, 3, 4, 5)], equation="...i,...ij->...j")
S("Einsum", inputs=[f32(2, 3, 4), f32(4, 5)], equation="...i,ij->...j")
