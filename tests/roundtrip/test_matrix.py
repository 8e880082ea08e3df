"""A trained network from every framework to every target and back: equal outputs, equal accuracy."""

from __future__ import annotations

import numpy as np
import pytest

import onnxbridge
from onnxbridge import plugins

SOURCES = ["pytorch", "tensorflow", "mxnet", "onnx", "coreml"]
TARGETS = ["onnx", "pytorch", "tensorflow", "mxnet", "coreml"]


def accuracy(run, name, x, y):
    """The accuracy on the test split, in batches of at most 64."""
    correct = 0
    for i in range(0, len(x), 64):
        (scores,) = run({name: x[i : i + 64]}).values()
        correct += int(np.sum(np.argmax(scores, axis=1) == y[i : i + 64]))
    return correct / len(x)


def input_of(conversion):
    """The name of the only input, and its shape without the batch axis."""
    (value,) = conversion.hub.graph.inputs
    return value.name, tuple(value.shape[1:])


def save(conversion, folder):
    path = folder / plugins.backend(conversion.target).filename("net")
    paths = conversion.save(path)
    return tuple(paths) if conversion.target == "mxnet" else paths[0]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_conversion_preserves_outputs_and_accuracy(trained, test_split, tmp_path, source, target):
    model = trained(source)
    converted = onnxbridge.convert(model.source, target, inputs=model.inputs)
    assert converted.report.passed and converted.report.samples == 3
    assert len({s[next(iter(s))][0] for s in converted.report.sizes}) == 2, "two sizes of the dynamic batch"
    x, y = test_split
    name, shape = input_of(converted)
    images = x.reshape(len(x), *shape)
    reader = plugins.frontend(converted.source)
    before = accuracy(reader.runner(model.source), name, images, y)
    after = accuracy(plugins.backend(target).runner(converted.artifact), name, images, y)
    assert before > 0.93 and after == before
    assert save(converted, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_round_trip(trained, tmp_path, source, target):
    model = trained(source)
    converted = onnxbridge.convert(model.source, target, inputs=model.inputs, verify=False)
    files = save(converted, tmp_path)
    (value,) = converted.hub.graph.inputs
    specs = {value.name: ((*("N" if not isinstance(d, int) else d for d in value.shape),), "float32")}
    converted_back = onnxbridge.convert(files, source, inputs=specs if target == "mxnet" else None)
    assert converted_back.report.passed
    back_folder = tmp_path / "home"
    back_folder.mkdir()
    first, last = model.source, save(converted_back, back_folder)
    report = onnxbridge.verify(first, last, inputs=model.inputs or (specs if source == "mxnet" else None))
    assert report.passed, str(report)


def test_saved_core_ml_package_is_verified_against_its_source(trained, tmp_path):
    converted = onnxbridge.convert(trained("onnx").source, "coreml", verify=False)
    report = onnxbridge.verify(trained("onnx").source, save(converted, tmp_path))
    assert report.passed and report.candidate == "Core ML"
