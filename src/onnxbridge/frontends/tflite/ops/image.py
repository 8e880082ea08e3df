"""Image resizing and detection."""

from onnxbridge.frontends.tensorflow.ops import image as tf
from onnxbridge.frontends.tflite.ops import rule


@rule("RESIZE_BILINEAR")
def resize_bilinear(op, images, size, *, align_corners=False, half_pixel_centers=False):
    return tf.resize_bilinear(op, images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers)


@rule("RESIZE_NEAREST_NEIGHBOR", kind="move")
def resize_nearest_neighbor(op, images, size, *, align_corners=False, half_pixel_centers=False):
    return tf.resize_nearest_neighbor(op, images, size, align_corners=align_corners, half_pixel_centers=half_pixel_centers)
