"""The digits network in Keras: `python keras_net.py DIGITS.npz OUT.keras` trains and saves it.

Images are NHWC.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers


def build() -> keras.Model:
    """The untrained network."""
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(image)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.BatchNormalization()(layers.Conv2D(16, 1, use_bias=False)(y))
    x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.MaxPooling2D(2)(x)
    x = layers.AveragePooling2D(2)(layers.Conv2D(32, 3, padding="same", activation="relu")(x))
    return keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(layers.Flatten()(x)))


def main(digits: str, out: str) -> None:
    keras.utils.set_random_seed(0)
    net = build()
    net.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    with np.load(digits) as data:
        net.fit(data["x_train"].transpose(0, 2, 3, 1), data["y_train"], batch_size=64, epochs=20, verbose=0)
    net.save(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
