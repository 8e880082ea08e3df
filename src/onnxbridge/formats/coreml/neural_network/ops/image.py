"""Image layers: resize, crop, pad and pixel shuffle."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32
from onnxbridge.formats.coreml.neural_network.ops.conv import border_amounts

SAMPLING = {
    "STRICT_ALIGN_ENDPOINTS_MODE": "STRICT_ALIGN_CORNERS", "ALIGN_ENDPOINTS_MODE": "ALIGN_CORNERS", "UPSAMPLE_MODE": "DEFAULT",
    "ROI_ALIGN_MODE": "OFFSET_CORNERS",
}  # fmt: skip


def _sampling(mode):
    """MIL's name of a sampling method; the first one if the message is missing."""
    index = mode.samplingMethod if mode is not None else 0
    return list(SAMPLING.values())[index]


@rule("upsample")
def upsample(mil, x, *, scalingFactor=(), fractionalScalingFactor=(), mode="NN", linearUpsampleMode="DEFAULT"):
    height, width = fractionalScalingFactor or scalingFactor or (1, 1)
    scales = {"scale_factor_height": float32(height), "scale_factor_width": float32(width)}
    if mode == "NN":
        return mil.upsample_nearest_neighbor(x=x, **scales)
    aligned = linearUpsampleMode == "ALIGN_CORNERS_TRUE"
    half = linearUpsampleMode == "ALIGN_CORNERS_FALSE"
    return mil.upsample_bilinear(x=x, align_corners=aligned, half_pixel_centers=half, **scales)


@rule("resizeBilinear")
def resize_bilinear(mil, x, *, targetSize=(), mode=None):
    height, width = targetSize or (1, 1)
    return mil.resize_bilinear(x=x, target_size_height=int(height), target_size_width=int(width), sampling_mode=_sampling(mode))


@rule("cropResize")
def crop_resize(mil, x, roi, *, targetSize=(), normalizedCoordinates=False, mode=None, boxIndicesMode=None, spatialScale=1.0):
    if not mil.exact:
        raise Unsupported("boxes in a network whose blobs have no batch axis")
    boxes = ["CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"]
    height, width = targetSize or (1, 1)
    return mil.crop_resize(
        x=x, roi=roi, target_height=int(height), target_width=int(width), normalized_coordinates=bool(normalizedCoordinates),
        spatial_scale=float32(spatialScale or 1), sampling_mode=_sampling(mode),
        box_coordinate_mode=boxes[boxIndicesMode.boxMode if boxIndicesMode is not None else 0],
    )  # fmt: skip


@rule("crop")
def crop(mil, x, like=None, *, cropAmounts=None, offset=()):
    """Crops by the amounts at the edges or, with a second blob, to its height and width, starting at the offset."""
    if like is not None:
        shape = mil.shape(x=like)
        for axis, start in zip((-2, -1), [int(n) for n in offset] or [0, 0], strict=True):
            size = mil.squeeze(x=mil.gather(x=shape, indices=np.array([axis], np.int32), axis=0))
            end = mil.add(x=size, y=np.int32(start))
            x = mil.gather(x=x, indices=mil.range_1d(start=np.int32(start), end=end, step=np.int32(1)), axis=axis)
        return x
    top, bottom, left, right = (border_amounts(cropAmounts) if cropAmounts is not None else ()) or (0, 0, 0, 0)
    return mil.crop(x=x, crop_height=np.array([top, bottom]), crop_width=np.array([left, right]))


@rule("padding")
def padding(mil, x, *, constant=None, reflection=None, replication=None, paddingAmounts):
    mode = "reflect" if reflection is not None else "replicate" if replication is not None else "constant"
    value = float32(constant.value if constant is not None else 0)
    return mil.pad(x=x, pad=np.array(border_amounts(paddingAmounts)), mode=mode, constant_val=value)


@rule("reorganizeData")
def reorganize_data(mil, x, *, mode="SPACE_TO_DEPTH", blockSize):
    if mode == "PIXEL_SHUFFLE":
        return mil.pixel_shuffle(x=x, upscale_factor=int(blockSize))
    return mil.emit(mode.lower(), x=x, block_size=int(blockSize))
