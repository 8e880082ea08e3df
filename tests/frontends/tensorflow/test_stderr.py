"""The command line's standard error on TensorFlow files has our messages and none of TensorFlow's."""

from __future__ import annotations

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models for which TensorFlow or Keras logs: compiled models, masks, an invalid fingerprint, TensorFlow 1."""
    path = tmp_path_factory.mktemp("models")
    image, words = layers.Input((4,), name="image"), layers.Input((5, 3), name="words")
    gates = layers.Bidirectional(layers.GRU(4))(layers.Masking()(words))
    model = keras.Model({"image": image, "words": words}, {"y": layers.Dense(2)(layers.concatenate([image, gates]))})
    model.compile("adam", "mse")
    model.fit({"image": np.zeros((2, 4)), "words": np.zeros((2, 5, 3))}, {"y": np.zeros((2, 2))}, verbose=0)
    model.save(path / "net.keras")
    small = keras.Sequential([layers.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Flatten()])
    small.compile("adam", "mse", metrics=["mae"])
    small.save(path / "net.h5")
    small.export(path / "saved", verbose=False)
    (path / "saved" / "fingerprint.pb").write_bytes(b"garbage")
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = x @ v1.get_variable("w", [3, 2])
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path / "first"), {"x": x}, {"y": y})
    return path


def _stderr(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_CPP", "TF_ENABLE"))}
    command = [sys.executable, "-m", "onnxbridge", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["net.keras", "net.h5", "saved", "first"])
def test_convert_and_verify_are_silent(folder, name):
    assert _stderr(folder, "convert", name, "-o", f"{name}.onnx", "-q") == (0, "")
    if name == "saved":
        assert _stderr(folder, "verify", name, f"{name}.onnx") == (0, "")


@pytest.mark.slow
def test_inspect_is_silent(folder):
    assert _stderr(folder, "inspect", "saved") == (0, "")


@pytest.mark.slow
def test_an_error_is_one_line(folder):
    (folder / "damaged").mkdir()
    for entry in (folder / "saved").rglob("*"):
        target = folder / "damaged" / entry.relative_to(folder / "saved")
        target.mkdir() if entry.is_dir() else target.write_bytes(entry.read_bytes()[: 100 if "data" in entry.name else None])
    code, text = _stderr(folder, "inspect", "damaged")
    assert code == 4 and text.startswith("error: damaged: its variables are missing or damaged") and text.count("\n") == 1
