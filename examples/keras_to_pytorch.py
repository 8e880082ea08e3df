"""A trained Keras model goes on training in PyTorch, layer by layer, under its own names.

    python keras_to_pytorch.py

`fold_batch_norm=False` keeps batch normalization as layers, so that training goes on with their statistics.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import torch
from sklearn.datasets import load_digits

import onnxbridge


def trained_in_keras(images: np.ndarray, classes: np.ndarray) -> keras.Model:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    net = keras.Sequential([
        keras.Input((8, 8, 1)), layers.Conv2D(8, 3, activation="relu"), layers.BatchNormalization(), layers.Flatten(),
        layers.Dense(10, name="scores"),
    ])  # fmt: skip
    net.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    net.fit(images, classes, epochs=1, verbose=0)
    return net


def main() -> None:
    images, classes = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    made = onnxbridge.convert(trained_in_keras(images, classes), to="pytorch", fold_batch_norm=False)
    print(made.report)
    module = made.model.train()
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    x, y = torch.from_numpy(images), torch.from_numpy(classes.astype(np.int64))
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        scores = module(x)
        loss = torch.nn.functional.cross_entropy(scores if torch.is_tensor(scores) else scores[0], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss of the Keras model {losses[0]:.3f}, after 40 steps in PyTorch {losses[-1]:.3f}")
    print("parameters:", ", ".join(name for name, _ in module.named_parameters()))
    assert losses[-1] < losses[0] / 2


if __name__ == "__main__":
    main()
