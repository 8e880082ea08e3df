"""Speed of a Keras model converted to ONNX and back, relative to the original model.

    python benchmarks/keras_module.py [NAME ...]

Both models run as `tf.function` in one process with one thread: CPU time, the median of the ratios of alternating
runs. The target is at most 1.05x.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import onnxbridge


def _application(name: str) -> keras.Model:
    return getattr(keras.applications, name)(weights=None)


def lstm() -> keras.Model:
    words = keras.Input((100,), dtype="int32")
    y = layers.Embedding(500, 64)(words)
    for _ in range(2):
        y = layers.Bidirectional(layers.LSTM(128, return_sequences=True))(y)
    return keras.Model(words, layers.Dense(5)(y))


def transformer() -> keras.Model:
    words = keras.Input((128,), dtype="int32")
    y = layers.Embedding(1000, 256)(words)
    for _ in range(4):
        y = layers.LayerNormalization()(y + layers.MultiHeadAttention(4, 64)(y, y))
        y = layers.LayerNormalization()(y + layers.Dense(256)(layers.Dense(1024, activation="gelu")(y)))
    return keras.Model(words, layers.Dense(1000)(y))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "ResNet50": lambda: _application("ResNet50"), "MobileNetV3Large": lambda: _application("MobileNetV3Large"),
    "EfficientNetB0": lambda: _application("EfficientNetB0"), "LSTM": lstm, "transformer": transformer,
}  # fmt: skip


def _samples(model: keras.Model) -> tf.Tensor:
    spec = model.inputs[0]
    shape = [1, *(size or 224 for size in spec.shape[1:])]
    if spec.dtype == "int32":
        return tf.constant(np.random.default_rng(0).integers(0, 500, shape), tf.int32)
    return tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)


def _seconds(function: Callable[[tf.Tensor], object], x: tf.Tensor) -> float:
    start = time.process_time()
    function(x)
    return time.process_time() - start


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for name in sys.argv[1:] or MODELS:
        keras.utils.set_random_seed(0)
        model = MODELS[name]()
        x = _samples(model)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "net.onnx"
            onnxbridge.convert(model, to="onnx", output=file, verify=False)
            back = onnxbridge.convert(file, to="tensorflow", verify=False).model
        original, converted = (tf.function(lambda x, m=m: m(x, training=False)) for m in (model, back))
        difference = float(np.abs(np.asarray(original(x)) - np.asarray(converted(x))).max())
        times = [(_seconds(original, x), _seconds(converted, x)) for _ in range(101)]
        before, after = (statistics.median(t) for t in zip(*times[1:], strict=True))
        ratio = statistics.median(after / before for before, after in times[1:])
        milliseconds = f"{before * 1e3:6.1f} ms, from ONNX {after * 1e3:6.1f} ms = {ratio:.2f}x"
        print(f"{name:18} {milliseconds}, max abs {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
