"""Every rule of the Core ML backend: run by the interpreter and compared with ONNX Runtime; signatures compared with schemas."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.backends.coreml import backend
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.schemas import schema_of
from onnxbridge.runtime import Executor, devices
from tests.backends.coreml.samples import FAMILIES, WITHOUT_KERNEL

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"}  # tested separately


def model_of_samples(samples):
    """The samples as one model, with its feeds and the names of its outputs by sample."""
    op, feeds, inputs, outputs, names = Builder(), {}, [], [], {}

    def graph_input(array):
        array = np.asarray(array)
        name = f"x{len(inputs)}"
        value = op.input(name, ir.DataType.from_numpy(array.dtype), list(array.shape))
        feeds[name] = array
        inputs.append(value)
        return value

    for name, samples_of in samples.items():
        for n, sample in enumerate(samples_of):
            results = sample(op, graph_input)
            for k, result in enumerate(results if isinstance(results, tuple) else (results,)):
                label = f"{name} {n}.{k}"
                outputs.append(op.output(result, label))
                names.setdefault((name, n), []).append(label)
    return op.model(inputs, outputs), feeds, names


def assert_agree(names, found, expected):
    assert list(found) == list(expected)
    wrong = []
    for (name, n), labels in names.items():
        for label in labels:
            wanted, actual = expected[label], found[label]
            assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, (
                label,
                actual.dtype,
                actual.shape,
                wanted.shape,
            )
            # float32 sums of a few hundred products in another order; float16 differs by one rounding
            tolerance = 2e-3 if wanted.dtype == np.float16 else 2e-5
            if not np.allclose(
                actual.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance, equal_nan=True
            ):
                wrong.append(f"{name} {n}: {np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max()}")
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_against_onnx_runtime(family):
    model, feeds, names = model_of_samples(FAMILIES[family])
    expected = devices.run(devices.session(model, "cpu"), feeds)
    assert_agree(names, backend.runner(backend.from_hub(model))(feeds), expected)


def test_against_the_executor():
    model, feeds, names = model_of_samples(WITHOUT_KERNEL)
    expected = dict(zip([o.name for o in model.graph.outputs], Executor(model).run(None, feeds), strict=True))
    assert_agree(names, backend.runner(backend.from_hub(model))(feeds), expected)


def test_every_rule_has_a_sample():
    sampled = {name for family in (*FAMILIES.values(), WITHOUT_KERNEL) for name in family}
    assert set(backend.rules) - sampled == RANDOM


def rules():
    return [pytest.param(rule, id=name) for name, rule in backend.rules.items() if not rule.plain]


@pytest.mark.parametrize("rule", rules())
def test_signature(rule):
    """Parameters are named as the schema names them, and defaults are the schema's."""
    domain, _, name = rule.op.rpartition("::")
    schema = schema_of(name, domain)
    formal = [i.name for i in schema.inputs]
    for position, param in enumerate(p for p in rule.params if not p.keyword):
        if param.variadic:
            assert position == len(formal) - 1
        else:
            assert param.name.rstrip("_") in (formal[position], formal[position].rstrip("_"))
    for param in rule.params:
        if not param.keyword or param.form == "outputs":
            continue
        declared = schema.attributes[param.name.rstrip("_")]
        if declared.default_value.type and param.default is not None:
            default = ir.serde.deserialize_attribute(declared.default_value).value
            same = tuple(default) if isinstance(default, (list, tuple)) else default
            assert param.default == (pytest.approx(same, rel=1e-6) if isinstance(same, float) else same)


@pytest.mark.parametrize(
    ("write", "low", "high"),
    [
        (lambda op, x: op.Add(op.RandomUniform(shape=[40, 50], low=2.0, high=3.0), x), 2.0, 3.0),
        (lambda op, x: op.Add(op.RandomUniformLike(op.Expand(x, [40, 50]), low=-1.0, high=0.0), x), -1.0, 0.0),
        (lambda op, x: op.Add(op.RandomNormal(shape=[40, 50], mean=5.0, scale=0.1), x), 4.0, 6.0),
        (lambda op, x: op.Add(op.RandomNormalLike(op.Expand(x, [40, 50]), scale=0.1), x), -1.0, 1.0),
        (lambda op, x: op.Bernoulli(op.Expand(op.Add(x, 0.5), [40, 50])), 0.0, 1.0),
    ],
)
def test_random_numbers(write, low, high):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [1])
    model = op.model([x], [op.output(write(op, x), "y")])
    y = backend.runner(backend.from_hub(model))({"x": np.zeros(1, np.float32)})["y"]
    assert y.shape == (40, 50) and low <= y.min() and y.max() <= high
    assert abs(y.mean() - (low + high) / 2) < 0.05  # of 2000 draws: more than four standard errors
