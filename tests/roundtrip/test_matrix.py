"""A trained network from every framework to every target, and back again: the same numbers, the same accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from onnxbridge import plugins

SOURCES = ["pytorch", "tensorflow", "mxnet", "onnx", "coreml"]
TARGETS = ["onnx", "pytorch", "tensorflow", "mxnet", "coreml"]



def accuracy(run, name, x, y):
    """The share of the test split that the model gets right, in batches that a fixed upper bound on the batch allows."""
    right = 0
    for i in range(0, len(x), 64):
        (scores,) = run({name: x[i : i + 64]}).values()
        right += int(np.sum(np.argmax(scores, axis=1) == y[i : i + 64]))
    return right / len(x)


def input_of(conversion):
    """The name of the one input, and the test images in the layout that it takes."""
    (value,) = conversion.hub.graph.inputs
    return value.name, tuple(value.shape[1:])


def saved(conversion, folder):
    path = folder / plugins.backend(conversion.target).filename("net")
    paths = conversion.save(path)
    return tuple(paths) if conversion.target == "mxnet" else paths[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_there(trained, test_split, tmp_path, source, target):
    model = trained(source)
    made = onnxbridge.convert(model.source, target, inputs=model.inputs)
    assert made.report.passed and made.report.samples == 3
    assert len({s[next(iter(s))][0] for s in made.report.sizes}) == 2, "two sizes of the dynamic batch"
    x, y = test_split
    name, shape = input_of(made)
    images = x.reshape(len(x), *shape)
    reader = plugins.frontend(made.source)
    before = accuracy(reader.runner(model.source), name, images, y)
    after = accuracy(plugins.backend(target).runner(made.artifact), name, images, y)
    assert before > 0.93 and after == before
    assert saved(made, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_there_and_back(trained, tmp_path, source, target):
    model = trained(source)
    there = onnxbridge.convert(model.source, target, inputs=model.inputs, verify=False)
    files = saved(there, tmp_path)
    (value,) = there.hub.graph.inputs
    specs = {value.name: ((*("N" if not isinstance(d, int) else d for d in value.shape),), "float32")}
    back = onnxbridge.convert(files, source, inputs=specs if target == "mxnet" else None)
    assert back.report.passed
    home = tmp_path / "home"
    home.mkdir()
    first, last = model.source, saved(back, home)
    report = onnxbridge.verify(first, last, inputs=model.inputs or (specs if source == "mxnet" else None))
    assert report.passed, str(report)


def test_a_saved_core_ml_package_is_verified_against_its_source(trained, tmp_path):
    made = onnxbridge.convert(trained("onnx").source, "coreml", verify=False)
    report = onnxbridge.verify(trained("onnx").source, saved(made, tmp_path))
    assert report.passed and report.candidate == "Core ML"
