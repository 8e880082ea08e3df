# ruff: noqa: E501  one operator per line
"""Samples of gradients of convolutions, pools, normalizations, resizing and slices."""

from __future__ import annotations

import numpy as np

from tests.frontends.tensorflow.samples import Input, S, f32, pos

ONES = [1, 1, 1, 1]
for _padding in ("SAME", "VALID"):
    _g = f32(2, 3, 2, 4) if _padding == "VALID" else f32(2, 4, 3, 4)
    S("Conv2DBackpropFilter", input=f32(2, 7, 6, 3), filter_sizes=[3, 3, 3, 4], out_backprop=_g, strides=[1, 2, 2, 1], padding=_padding)
    S("DepthwiseConv2dNativeBackpropInput", input_sizes=[2, 7, 6, 2], filter=f32(3, 3, 2, 2), out_backprop=_g, strides=[1, 2, 2, 1], padding=_padding)
    S("DepthwiseConv2dNativeBackpropFilter", input=f32(2, 7, 6, 2), filter_sizes=[3, 3, 2, 2], out_backprop=_g, strides=[1, 2, 2, 1], padding=_padding)
    _p = f32(2, 3, 2, 3) if _padding == "VALID" else f32(2, 4, 3, 3)
    S("MaxPoolGrad", orig_input=f32(2, 7, 6, 3), orig_output=_p, grad=_p, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=_padding)
    S("MaxPoolGradV2", orig_input=f32(2, 7, 6, 3, dynamic=(0, 1)), orig_output=_p, grad=_p, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=_padding)
    S("AvgPoolGrad", orig_input_shape=[2, 7, 6, 3], grad=_p, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=_padding)
S("Conv2DBackpropFilter", input=f32(2, 7, 6, 3, dynamic=(0, 1, 2)), filter_sizes=[2, 3, 3, 4], out_backprop=f32(2, 7, 6, 4), strides=ONES, padding="SAME")
S("Conv3DBackpropFilterV2", input=f32(1, 5, 4, 4, 2), filter_sizes=[2, 2, 2, 2, 3], out_backprop=f32(1, 4, 3, 3, 3), strides=[1] * 5, padding="VALID")
_x = f32(1, 4, 4, 4, 2)
S("MaxPool3DGrad", orig_input=_x, orig_output=Input(_x.value.reshape(1, 2, 2, 2, 2, 2, 2, 2).max((2, 4, 6))), grad=f32(1, 2, 2, 2, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="VALID")
S("AvgPool3DGrad", orig_input_shape=[1, 4, 4, 5, 2], grad=f32(1, 2, 2, 3, 2), ksize=[1, 2, 2, 2, 1], strides=[1, 2, 2, 2, 1], padding="SAME")
for _training in (False, True):
    _statistics = {"reserve_space_1": f32(3), "reserve_space_2": pos(3), "is_training": _training, "outputs": (0, 1, 2)}
    S("FusedBatchNormGrad", y_backprop=f32(2, 4, 4, 3), x=f32(2, 4, 4, 3), scale=f32(3), **_statistics)
    S("FusedBatchNormGradV3", y_backprop=f32(2, 4, 4, 3), x=f32(2, 4, 4, 3), scale=f32(3), reserve_space_3=f32(3), **_statistics)
S("FusedBatchNormGradV2", y_backprop=f32(2, 4, 4, 3), x=f32(2, 4, 4, 3), scale=f32(3), **_statistics)
for _mode in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
    S("ResizeNearestNeighborGrad", grads=f32(1, 7, 4, 2), size=[3, 5], **_mode)
    S("ResizeBilinearGrad", grads=f32(1, 7, 4, 2), original_image=f32(1, 3, 5, 2), **_mode)
    S("ResizeBicubicGrad", grads=f32(1, 7, 4, 2), original_image=f32(1, 3, 5, 2, dynamic=(1, 2)), **_mode)
S("StridedSliceGrad", shape=[4, 5, 6], begin=[1, -1, 0], end=[4, 0, 0], strides=[2, -2, 1], dy=f32(2, 2), shrink_axis_mask=4)
for _mode in ("REFLECT", "SYMMETRIC"):
    S("MirrorPadGrad", input=f32(5, 8), paddings=[[1, 1], [2, 1]], mode=_mode)
    S("MirrorPadGrad", input=f32(5, 8, dtype=np.float16), paddings=[[1, 1], [0, 2]], mode=_mode)
