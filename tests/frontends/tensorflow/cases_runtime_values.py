# ruff: noqa: E501  one operator per line
"""Samples of operators whose axes, sizes and paddings are known only when the model runs."""

import numpy as np

from tests.frontends.tensorflow.samples import S, const, f32, fed, flags, i32


def ints(*values):
    return fed(list(values), np.int32)


def number(value):
    return fed(value, np.int32)


for _axis in (0, 2, -1):
    S("ExpandDims", input=f32(2, 3), axis=number(_axis))
S("Squeeze", input=f32(1, 3, 1, dynamic=(0, 1)))
S("Transpose", x=f32(2, 3, 4), perm=ints(2, 0, 1))
S("Transpose", x=f32(2, 3, dynamic=(0,)), perm=ints(1, 0))
S("ConcatOffset", concat_dim=number(1), shape=[ints(2, 2, 7), ints(2, 3, 7), ints(2, 9, 7)])
S("ConcatOffset", concat_dim=-1, shape=[ints(2, 2), ints(2, 3)])
S("SplitV", value=f32(4, 6), size_splits=ints(1, -1, 2), axis=1, num_split=3)
S("SplitV", value=f32(4, 6, dynamic=(1,)), size_splits=[1, -1, 2], axis=-1, num_split=3)
S("Slice", input=f32(4, 5), begin=[1, 2], size=ints(2, -1))
S("Slice", input=f32(4, 5), begin=ints(1, 0), size=ints(-1, 3))
S("Slice", input=f32(4, 5), begin=[1, 0], size=ints(0, 3))
for _steps, _masks in (((1, 2), {}), ((-1, 1), {"begin_mask": 1, "end_mask": 1}), ((2, -2), {"begin_mask": 2, "end_mask": 2})):
    S("StridedSlice", input=f32(5, 6), begin=[4, 1] if _masks.get("begin_mask") != 2 else [0, 3], end=[0, 5] if _steps[0] < 0 else [4, 5], strides=ints(*_steps), **_masks)
for _shift, _axis in ((ints(2), [1]), (ints(-1, 7), [0, -1]), (ints(3, 1), ints(1, 1)), (number(-2), number(0)), (ints(2, 1), ints(-1, 0))):
    S("Roll", input=f32(4, 5, dynamic=(1,)), shift=_shift, axis=_axis)
S("Roll", input=f32(4, 0), shift=ints(2), axis=[1], label="empty")
for _mode in ("REFLECT", "SYMMETRIC"):
    S("MirrorPad", input=f32(3, 4), paddings=fed([[1, 2], [2, 0]], np.int32), mode=_mode)
    S("MirrorPad", input=f32(3, 4, dynamic=(0, 1)), paddings=[[1, 2], [0, 3]], mode=_mode)
S("ReverseV2", tensor=f32(3, 4), axis=ints(-1, 0))
S("ReverseV2", tensor=f32(3, 4), axis=ints(1))
S("Reverse", tensor=f32(3, 4), dims=[True, False])
S("Reverse", tensor=f32(3, 4), dims=flags(2))
S("ReverseSequence", input=f32(2, 3, 5), seq_lengths=fed([2, 5], np.int32), seq_dim=2, batch_dim=0)
S("InvertPermutation", x=ints(2, 0, 3, 1))
S("InvertPermutation", x=fed([1, 0, 2], np.int64, dynamic=(0,)))
S("SpaceToBatchND", input=f32(1, 5, 6, 2), block_shape=ints(2, 3), paddings=fed([[0, 1], [1, 2]], np.int32))
S("SpaceToBatchND", input=f32(2, 4, 6, 2, dynamic=(0, 1, 2)), block_shape=[2, 2], paddings=fed([[0, 0], [2, 0]], np.int32))
S("BatchToSpaceND", input=f32(6, 3, 2, 2), block_shape=ints(2, 3), crops=fed([[0, 1], [1, 0]], np.int32))
S("BatchToSpaceND", input=f32(4, 3, 2, 2, dynamic=(0, 1)), block_shape=[2, 2], crops=[[1, 0], [0, 1]])
S("SpaceToBatch", input=f32(1, 4, 4, 2), paddings=[[0, 0], [2, 0]], block_size=2)
S("BatchToSpace", input=f32(4, 2, 2, 2), crops=[[0, 0], [1, 0]], block_size=2)
S("LinSpace", start=f32(), stop=np.float32(4), num=number(5))
S("LinSpace", start=f32(), stop=np.float32(4), num=number(1))
for _op in ("Sum", "Prod", "Max", "Min", "Mean", "EuclideanNorm"):
    S(_op, input=f32(3, 4, 5), axis=ints(1, -1))
    S(_op, input=f32(3, 4), axis=number(0), keep_dims=True)
S("Sum", input=f32(3, 4), axis=fed([], np.int32), label="no axes")
S("Mean", input=i32(3, 4, dynamic=(0,)), axis=[0])
for _op in ("All", "Any"):
    S(_op, input=flags(3, 4), axis=ints(1))
    S(_op, input=flags(0, 4), axis=[0], label="empty")
for _op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
    S(_op, x=f32(3, 5), axis=number(1))
    S(_op, x=f32(3, 5, dynamic=(0,)), axis=-2, exclusive=True, reverse=True)
S("CumulativeLogsumexp", x=fed([-np.inf, -200, 3, np.inf, 1]), axis=0)
S("ArgMax", input=f32(4, 6), dimension=number(1))
S("ArgMin", input=f32(4, 6), dimension=number(-2), output_type="int32")
S("GatherV2", params=f32(3, 4, 5), indices=ints(2, 0), axis=number(-2))
S("OneHot", indices=number(2), depth=4, on_value=np.float32(2), off_value=np.float32(-1))
for _dtype in (np.float64, np.int32, np.uint8, np.int8):
    S("OneHot", indices=ints(0, 2, -1, 5), depth=4, on_value=_dtype(5), off_value=_dtype(1), axis=0)
S("OneHot", indices=ints(0, 2, -1), depth=3, on_value=fed(False, bool), off_value=True)
S("TopKV2", input=i32(3, 9, low=0, dtype=np.uint16), k=4, outputs=(0,))

for _padding, _size, _stride in (("SAME", (9, 10), 2), ("SAME", (10, 9), 2), ("VALID", (11, 11), 2), ("VALID", (12, 11), 2), ("SAME", (5, 5), 1)):
    S("Conv2DBackpropInput", input_sizes=ints(2, *_size, 3), filter=const(3, 3, 3, 4), out_backprop=f32(2, 5, 5, 4), strides=[1, _stride, _stride, 1], padding=_padding)
S("Conv2DBackpropInput", input_sizes=ints(1, 10, 10, 3), filter=const(1, 1, 3, 4), out_backprop=f32(1, 5, 5, 4, dynamic=(1, 2)), strides=[1, 2, 2, 1], padding="SAME", label="beyond the last window")
S("Conv2DBackpropInput", input_sizes=[1, 10, 10, 3], filter=f32(1, 1, 3, 4), out_backprop=f32(1, 5, 5, 4), strides=[1, 2, 2, 1], padding="SAME", label="filter fed")
S("Conv3DBackpropInputV2", input_sizes=ints(1, 6, 6, 6, 2), filter=const(3, 3, 3, 2, 4), out_backprop=f32(1, 3, 3, 3, 4), strides=[1, 2, 2, 2, 1], padding="SAME")
S("Conv2D", input=f32(1, 9, 9, 3, dynamic=(1, 2)), filter=const(3, 3, 3, 4), strides=[1, 1, 1, 1], padding="SAME", dilations=[1, 2, 2, 1], label="size open")
S("Conv2D", input=f32(1, 9, 8, 3), filter=f32(3, 2, 3, 4, dynamic=(0, 1, 2, 3)), strides=[1, 2, 2, 1], padding="SAME", label="kernel open")
S("Conv", input=f32(1, 9, 8, 3), filter=const(3, 2, 3, 4), strides=[1, 2, 2, 1], padding="SAME")
