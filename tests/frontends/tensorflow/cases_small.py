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
for _mode in ("REFLECT", "SYMMETRIC"):
    S("FusedPadConv2D", input=f32(1, 5, 6, 2), paddings=[[0, 0], [1, 2], [2, 0], [0, 0]], filter=f32(3, 3, 2, 4), mode=_mode, strides=[1, 1, 1, 1], padding="VALID")
S("FusedResizeAndPadConv2D", input=f32(1, 5, 6, 2), size=[7, 4], paddings=[[0, 0], [1, 2], [2, 0], [0, 0]], filter=f32(3, 3, 2, 4), mode="REFLECT", strides=[1, 1, 1, 1], padding="VALID")
S("TridiagonalSolve", diagonals=fed([[1, 2, 3, 9], [7, 8, 9, 7], [5, 1, 2, 3]], np.float32), rhs=f32(4, 2))
S("TridiagonalSolve", diagonals=fed([[[1, 2, 0], [7, -8, 9], [0, 1, 2]]] * 2, np.float64), rhs=f64(2, 3, 1))
S("TridiagonalMatMul", superdiag=f32(2, 1, 4), maindiag=pos(2, 1, 4), subdiag=f32(2, 1, 4), rhs=f32(2, 4, 3))
