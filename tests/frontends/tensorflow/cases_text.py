# ruff: noqa: E501  one operator per line
"""Samples of strings, ragged and sparse tensors, and sets."""

import numpy as np

from tests.frontends.tensorflow.samples import S, f32, f64, fed, i32

WORDS = fed(["HeLLo Wörld", "", " a  b\tc\nd\x0be\x0cf\rg ", "a,b,,c", ",", "Straße É"], object)
NONE = fed([], object, dynamic=(0,))
for _op in ("StringLower", "StringUpper"):
    S(_op, input=WORDS)
    S(_op, input=fed([["Ab", "cD"], ["É", "z"]], object, dynamic=(0,)))
    S(_op, input=fed("Ab", object))
    S(_op, input=NONE)
S("StringJoin", inputs=[WORDS, WORDS, fed("xé", object)], separator="±")
S("StringJoin", inputs=[WORDS, fed("x", object)])
for _axes in ([1], [0], [0, 1], [1, 0], [-1], np.zeros(0, np.int32)):
    for _x in (fed([["a", "bé"], ["c", ""], ["e", "f"]], object), fed([["a", "bé"], ["c", ""]], object, dynamic=(0, 1)), fed(np.zeros((2, 0), object), object, dynamic=(0, 1))):
        S("ReduceJoin", inputs=_x, reduction_indices=np.array(_axes, np.int32), separator="±", keep_dims=len(_axes) == 2)
for _words in (WORDS, NONE, fed(["", ""], object)):
    S("StringSplitV2", input=_words, sep="")
    S("StringSplitV2", input=_words, sep=",")
    S("StringSplitV2", input=_words, sep="é")
    S("StringSplitV2", input=_words, sep=",", maxsplit=1)
    S("StringSplitV2", input=_words, sep=",", maxsplit=0)
    S("StringSplit", input=_words, delimiter=", ")
S("StringSplitV2", input=fed(["1<>2<><>3", "<>", "4<"], object), sep="<>")
for _axis in (0, 1, -1):
    S("GatherV2", params=fed([[["a", "b"], ["c", "d"]], [["e", "f"], ["g", "é"]]], object), indices=fed([1, 0, 1], np.int32), axis=_axis)
S("Gather", params=fed([["a", "b"], ["c", "d"]], object), indices=fed([[1], [0]], np.int64))
S("StringToNumber", string_tensor=fed(["1.5", "-3e4", "0.1", "nan", "inf"], object))
S("StringToNumber", string_tensor=fed(["12", "-3"], object), out_type="int32")
S("StringToNumber", string_tensor=fed(["9007199254740993"], object), out_type="int64")
S("AsString", input=i32(2, 3))
S("AsString", input=fed([-(2**63), 2**63 - 1], np.int64))
S("AsString", input=fed([True, False], bool))
S("AsString", input=fed([1.5, -0.0, 0.0, np.nan, np.inf, -np.inf, 1e10, 2.5e-7, 1.5e-6, 0.9999996, -0.9999999, 16777216.0, 0.0000005, 123.4567895, -7.0000015]))
S("RegexFullMatch", input=WORDS, pattern="[a-z,]*")
S("StaticRegexFullMatch", input=WORDS, pattern=r".*\d|.*é?É")
S("RegexReplace", input=WORDS, pattern=",", rewrite="<>")
S("StaticRegexReplace", input=WORDS, pattern=r"\.|x"[:2], rewrite="", label="dot")
S("StaticRegexReplace", input=fed([["a.b", "!c"], ["", "d-e"]], object, dynamic=(0,)), pattern=r"[!,-.\]]", rewrite="")
S("StaticRegexReplace", input=NONE, pattern="a", rewrite="b")

SPLITS, MORE = fed([0, 1, 1, 5], np.int32), fed([0, 3, 3, 5, 9, 10], np.int32)
for _kinds, _parts in ((["ROW_SPLITS"], [MORE]), (["ROW_SPLITS", "ROW_SPLITS"], [SPLITS, MORE]), (["FIRST_DIM_SIZE", "VALUE_ROWIDS"], [4, fed([0, 0, 0, 0, 1, 1, 3, 3, 3, 3], np.int64)])):
    for _inner in ((), (2,)):
        S("RaggedTensorToTensor", shape=np.int64(-1), values=f32(10, *_inner), default_value=np.float32(7), row_partition_tensors=_parts if isinstance(_parts[0], type(MORE)) else [fed(4, np.int64), *_parts[1:]], row_partition_types=_kinds)
S("RaggedTensorToTensor", shape=[4, 2], values=f32(10), default_value=np.float32(-1), row_partition_tensors=[MORE], row_partition_types=["ROW_SPLITS"], label="cut")
S("RaggedTensorToTensor", shape=fed([-1, 6], np.int64), values=f32(10), default_value=np.float32(-1), row_partition_tensors=[MORE], row_partition_types=["ROW_SPLITS"], label="given")
S("RaggedTensorToTensor", shape=np.int64(-1), values=fed(["a", "b"], object), default_value="é", row_partition_tensors=[fed([0, 2, 2], np.int64)], row_partition_types=["ROW_SPLITS"])
S("RaggedTensorToTensor", shape=np.int64(-1), values=fed([], np.float32, dynamic=(0,)), default_value=np.float32(1), row_partition_tensors=[fed([0, 0, 0], np.int64, dynamic=(0,))], row_partition_types=["ROW_SPLITS"], label="empty")
S("RaggedTensorToSparse", rt_nested_splits=[SPLITS, MORE], rt_dense_values=f32(10))
S("RaggedTensorToSparse", rt_nested_splits=[fed([0, 3, 3, 5], np.int64)], rt_dense_values=f32(5, 2))
S("RaggedRange", starts=fed([0, 1, 3, 0, 0, 0], np.int32), limits=fed([-6, -5, -4, -1, 0, 6], np.int32), deltas=fed([-5, -5, -5, -5, 5, 4], np.int32), Tsplits="int64")
S("RaggedRange", starts=fed(0.5), limits=fed([5, -1, 2]), deltas=fed(1.25), Tsplits="int32")
S("RaggedGather", params_nested_splits=[MORE], params_dense_values=f32(10, 2), indices=fed([1, 3, 2, 0, 1, 4], np.int32), OUTPUT_RAGGED_RANK=1)
S("RaggedGather", params_nested_splits=[SPLITS, MORE], params_dense_values=f32(10), indices=fed([[2, 0], [1, 2]], np.int64), OUTPUT_RAGGED_RANK=3)

POINTS = fed([[1, 0, 0], [1, 0, 2], [1, 1, 3], [3, 2, 2], [3, 2, 3]], np.int64)
SHAPE = fed([5, 3, 4], np.int64)
S("SparseToDense", sparse_indices=POINTS, output_shape=SHAPE, sparse_values=f32(5), default_value=np.float32(2.5))
S("SparseToDense", sparse_indices=fed([1, 3], np.int32), output_shape=[6], sparse_values=fed("é", object), default_value="")
S("SparseReshape", input_indices=POINTS, input_shape=SHAPE, new_shape=[2, -1, 1, 3])
S("SparseReshape", input_indices=fed(np.zeros((0, 2), np.int64), np.int64, dynamic=(0,)), input_shape=fed([2, 3], np.int64), new_shape=fed([3, 2], np.int64))
S("SparseFillEmptyRows", indices=POINTS, values=f32(5), dense_shape=SHAPE, default_value=fed(2.5))
S("SparseFillEmptyRows", indices=fed(np.zeros((0, 2), np.int64), np.int64, dynamic=(0,)), values=fed([], object, dynamic=(0,)), dense_shape=[3, 4], default_value="x", label="empty")
S("SparseReorder", input_indices=fed([[1, 2], [0, 1], [1, 0]], np.int64), input_values=f32(3), input_shape=[2, 3])
for _a, _b in ((False, False), (True, False), (False, True), (True, True)):
    S("SparseTensorDenseMatMul", a_indices=fed([[0, 1], [1, 0], [1, 2]], np.int64), a_values=f64(3), a_shape=[2, 3] if not _a else [2, 3], b=f64(*((2, 4) if _a else (3, 4))[:: -1 if _b else 1]), adjoint_a=_a, adjoint_b=_b)
S("SparseTensorDenseAdd", a_indices=POINTS, a_values=f32(5), a_shape=[5, 3, 4], b=f32(5, 3, 4))
for _op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
    S(_op, sp_indices=POINTS, sp_values=f32(5), sp_shape=[5, 3, 4], dense=f32(3, 1))
S("SparseReduceSum", input_indices=POINTS, input_values=f32(5), input_shape=SHAPE, reduction_axes=[1, -1], keep_dims=True)

for _op in ("a-b", "b-a", "intersection", "union"):
    S("DenseToDenseSetOperation", set1=fed([[10, 2, 30, 2, 5], [10, 9, 1, 9, 3]], np.int32), set2=fed([[4, 5, 10, 8, 9, 5], [1, 4, 1, 1, 5, 0]], np.int32), set_operation=_op)
    S("DenseToDenseSetOperation", set1=fed([[["b", "a"], ["é", "c"]]], object), set2=fed([[["c"], ["c"]]], object), set_operation=_op)
S("UnicodeTranscode", input=fed(["héllo", "", "日本"], object), input_encoding="UTF-8", output_encoding="UTF-8")
