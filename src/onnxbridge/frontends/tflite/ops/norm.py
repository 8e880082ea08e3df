"""Normalization."""

import numpy as np

from onnxbridge.frontends.tensorflow.ops import norm as tf
from onnxbridge.frontends.tflite.ops import rule


@rule("L2_NORMALIZATION")
def l2_normalization(op, input):
    """Along the last axis; TensorFlow Lite limits the norm to 1e-6 from below."""
    norm = op.ReduceL2(input, [-1], keepdims=1)
    return op.Div(input, op.Max(norm, np.array(1e-6, input.dtype.numpy())))


@rule("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(op, input, *, radius=0, bias=0.0, alpha=0.0, beta=0.0):
    return tf.lrn(op, input, depth_radius=radius, bias=bias, alpha=alpha, beta=beta)
