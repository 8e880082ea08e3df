"""The networks of keras.applications with random weights to ONNX; ONNX Runtime computes the result."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from session import Session

_NAMES = (
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2", "InceptionV3", "MobileNet",
    "MobileNetV2", "MobileNetV3Large", "MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2", "VGG16", "Xception",
)  # fmt: skip


@dataclass
class Case:
    """A network, its input, and what Keras computes."""

    model: object
    inputs: list
    expected: list


def prepare(folder, match):
    return [name for name in _NAMES if match in name]


def case(name, folder):
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None)
    sizes = [size or 224 for size in model.input_shape[1:]]
    x = np.random.default_rng(0).standard_normal((2, *sizes)).astype(np.float32)
    return Case(model, [x], [np.asarray(model(x, training=False))])


def onnxbridge(one):
    import onnxbridge

    return Session(onnxbridge.convert(one.model, to="onnx", verify=False).model)


def tf2onnx(one):
    import tensorflow as tf
    import tf2onnx

    spec = tf.TensorSpec([None, *one.model.input_shape[1:]], tf.float32, name="x")
    function = tf.function(lambda x: one.model(x, training=False), input_signature=[spec])
    return Session(tf2onnx.convert.from_function(function, input_signature=[spec], opset=18)[0])


ENGINES = {"onnxbridge": onnxbridge, "tf2onnx": tf2onnx}
