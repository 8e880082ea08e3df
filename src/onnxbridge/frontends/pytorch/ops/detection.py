"""torchvision operators on boxes and regions of interest."""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule

D = ir.DataType


@rule("torchvision::nms")
def nms(op, dets, scores, iou_threshold):
    all_boxes = cast(op, op.size(dets, 0), D.INT64)
    boxes, ranks = (op.Unsqueeze(cast(op, x, D.FLOAT), axes) for x, axes in ((dets, [0]), (scores, [0, 1])))
    found = op.NonMaxSuppression(boxes, ranks, op.reshape(all_boxes, [1]), [float(iou_threshold)])
    return op.Squeeze(op.Slice(found, [2], [3], [1]), [1])


def _regions(op, rois):
    """Split regions given as (image, x1, y1, x2, y2) into boxes and image indices."""
    images, boxes = op.Split(rois, [1, 4], axis=1, outputs=2)
    return boxes, cast(op, op.Squeeze(images, [1]), D.INT64)


@rule("torchvision::roi_align")
def roi_align(op, input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    boxes, images = _regions(op, rois)
    return op.RoiAlign(
        input, boxes, images, coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel", mode="avg",
        output_height=pooled_height, output_width=pooled_width, sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=float(spatial_scale),
    )  # fmt: skip


@rule("torchvision::deform_conv2d")
def deform_conv2d(
    op, input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups,
    use_mask,
):  # fmt: skip
    if not all(isinstance(n, int) for n in (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w)):
        raise Unsupported("strides or padding of dynamic sizes")
    return op.DeformConv(
        input, weight, offset, bias, mask if use_mask else None, strides=[stride_h, stride_w], pads=[pad_h, pad_w] * 2,
        dilations=[dilation_h, dilation_w], group=groups, offset_group=offset_groups, kernel_shape=list(weight.shape[2:]),
    )  # fmt: skip
