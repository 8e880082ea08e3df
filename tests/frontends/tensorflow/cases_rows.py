# ruff: noqa: E501  one operator per line
"""Samples of segments, counts, unique elements, partitions and diagonals."""

import numpy as np

from tests.frontends.tensorflow.samples import S, f32, f64, fed, i32, pos

IDS = fed([0, 0, 2, 2, 3], np.int32)
for _op in ("Sum", "Prod", "Max", "Min", "Mean"):
    S("Segment" + _op, data=f32(5, 2), segment_ids=IDS)
    S("Segment" + _op, data=f32(5, dynamic=(0,)), segment_ids=fed([0, 1, 1, 1, 4], np.int64, dynamic=(0,)))
    S("Segment" + _op, data=i32(5, 2, 3), segment_ids=IDS)
for _op in ("Sum", "Mean", "SqrtN"):
    S("SparseSegment" + _op, data=f32(4, 2), indices=fed([0, 2, 1], np.int32), segment_ids=fed([0, 0, 2], np.int32))
    S(f"SparseSegment{_op}WithNumSegments", data=f64(4, 3), indices=fed([0, 2, 1], np.int32), segment_ids=fed([0, 0, 2], np.int32), num_segments=5)

S("Bincount", arr=fed([[1, 2], [2, 9]], np.int32), size=4, weights=np.zeros(0, np.float32))
S("Bincount", arr=fed([1, 2, 2], np.int32), size=fed(4, np.int32), weights=f32(3))
S("DenseBincount", input=fed([[1, 2, 2, 9], [0, 0, 0, 3]], np.int32), size=fed(4, np.int32), weights=f32(2, 4))
S("DenseBincount", input=fed([[1, 2, 2, 9], [0, 0, 0, 3]], np.int64), size=fed(4, np.int64), weights=fed([], np.float32, dynamic=(0,)), binary_output=True)
S("DenseBincount", input=fed([1, 2, 2, 9], np.int32), size=fed(4, np.int32), weights=fed([], np.int32, dynamic=(0,)))
S("HistogramFixedWidth", values=f32(3, 20), value_range=np.array([-1, 1.5], np.float32), nbins=7)
S("HistogramFixedWidth", values=i32(30), value_range=np.array([-5, 5], np.int32), nbins=fed(4, np.int32), dtype="int64")
for _op in ("LowerBound", "UpperBound"):
    S(_op, sorted_inputs=fed([[0, 1, 1, 4], [-2, 0, 3, 9]]), values=fed([[1, 0.5, 9], [-3, 3, 10]]))
    S(_op, sorted_inputs=fed([[0, 1, 1, 4]], np.int32), values=fed([[1, 3, -1]], np.int32), out_type="int64")
for _op, _k in (("InTopK", 2), ("InTopKV2", 2), ("InTopKV2", fed(1, np.int32))):
    S(_op, predictions=fed([[0.1, 0.9, 0.5], [3, 3, 1], [np.inf, 1, 2], [1, 2, 3]]), targets=fed([2, 1, 1, 7], np.int32), k=_k)
S("NthElement", input=f32(3, 7), n=2)
S("NthElement", input=f32(7), n=fed(0, np.int32), reverse=True)
for _x in (fed([2, 3, 3, 6, 4, 1, 1, 2]), fed([5, 5, -1, 3, 5], np.int32, dynamic=(0,)), fed([5, 5, 1], np.uint8), fed([], np.float32)):
    S("Unique", x=_x)
    S("UniqueWithCounts", x=_x, out_idx="int64")
for _op in ("UniqueV2", "UniqueWithCountsV2"):
    S(_op, x=fed([[1, 0], [2, 3], [1, 0]], np.int32), axis=[0])
    S(_op, x=fed([[1, 1, 2], [3, 3, 3]]), axis=[1])
    S(_op, x=fed([4, 1, 4], np.int64), axis=np.zeros(0, np.int32))
S("ListDiff", x=fed([1, 2, 3, 4, 5, 3], np.int32), y=fed([1, 3], np.int32))
S("ListDiff", x=fed([1.5, 2.5]), y=fed([], np.float32), out_idx="int64")
S("DynamicPartition", data=f32(5, 2), partitions=fed([1, 0, 2, 1, 1], np.int32), num_partitions=4)
S("DynamicPartition", data=f32(2, 3, 2), partitions=fed([[1, 0, 1], [0, 0, 1]], np.int32), num_partitions=2)
for _op in ("DynamicStitch", "ParallelDynamicStitch"):
    S(_op, indices=[fed([0, 4, 1], np.int32), fed([3, 2], np.int32)], data=[f32(3, 2), pos(2, 2)])
S("DynamicStitch", indices=[fed([0, 2, 1], np.int32), fed([[2, 3], [0, 1]], np.int32)], data=[f32(3), pos(2, 2)], label="twice")
for _merge, _blank in ((True, -1), (False, -1), (True, 0)):
    S("CTCGreedyDecoder", inputs=f32(6, 2, 4), sequence_length=fed([6, 4], np.int32), merge_repeated=_merge, blank_index=_blank)

for _k in (0, 1, -2, [-1, 1], [0, 2], [-2, -1]):
    for _align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"):
        S("MatrixDiagPartV3", input=f32(2, 3, 4), k=_k, padding_value=np.float32(9), align=_align)
        _count, _length = (1, 3 - max(0, abs(_k) - (1 if _k > 0 else 0))) if np.ndim(_k) == 0 else (_k[1] - _k[0] + 1, {-1: 3, 0: 3, -2: 2}[_k[0]])
        if np.ndim(_k):
            S("MatrixSetDiagV3", input=f32(2, 3, 4), diagonal=f32(2, _count, _length), k=_k, align=_align)
            S("MatrixDiagV3", diagonal=f32(2, _count, _length), k=_k, num_rows=3, num_cols=4, padding_value=np.float32(9), align=_align)
            S("MatrixDiagV3", diagonal=f32(2, _count, _length), k=fed(_k, np.int32), num_rows=fed(3, np.int32), num_cols=fed(4, np.int32), padding_value=np.float32(9), align=_align, label="fed")
            S("MatrixDiagPartV3", input=f32(2, 3, 4, dynamic=(1, 2)), k=fed(_k, np.int32), padding_value=fed(7.0), align=_align, label="fed")
S("MatrixDiag", diagonal=f32(2, 3, dynamic=(1,)))
S("MatrixDiagPart", input=f32(2, 4, 3))
S("MatrixSetDiag", input=f32(2, 4, 3), diagonal=pos(2, 3))
S("MatrixDiagV2", diagonal=f32(2, 3), k=1, num_rows=-1, num_cols=-1, padding_value=np.float32(0))
S("MatrixDiagV2", diagonal=f32(2, 2), k=[-1, 0], num_rows=-1, num_cols=-1, padding_value=np.float32(0))
S("MatrixDiagV3", diagonal=f32(4), k=-1, num_rows=-1, num_cols=4, padding_value=np.float32(1))
S("MatrixDiagV3", diagonal=f32(4), k=fed(-1, np.int32), num_rows=fed(-1, np.int32), num_cols=fed(6, np.int32), padding_value=np.float32(1))
S("MatrixDiagV3", diagonal=f32(2, 4), k=fed([1, 1], np.int32), num_rows=-1, num_cols=-1, padding_value=np.float32(1), label="k fed")
S("MatrixDiagPartV2", input=f32(3, 4), k=[-1, 1], padding_value=np.float32(2))
S("MatrixSetDiagV2", input=f32(3, 4), diagonal=pos(3), k=1)
S("MatrixBandPart", input=f32(2, 4, 5), num_lower=fed(1, np.int32), num_upper=fed(-1, np.int32))
S("MatrixBandPart", input=i32(4, 5, dtype=np.int8), num_lower=1, num_upper=-1)
S("Diag", diagonal=f32(3))
S("Diag", diagonal=f32(2, 3))
S("DiagPart", input=f32(3, 3))
S("DiagPart", input=f32(2, 3, 2, 3))
