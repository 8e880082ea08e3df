"""Random operators have the expected shape, type and distribution; runtimes differ in the numbers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from onnx import parser
from onnx.backend.test.loader import load_model_tests

from onnxbridge.runtime import Executor
from tests.runtime.executor import node_cases

COUNT = 4000
KINDS = {"float": np.float32, "float16": np.float16, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}
# The mean of COUNT numbers of standard deviation s is within 5 s / sqrt(COUNT), except for one seed in two million.
NEAR = 5 / math.sqrt(COUNT)


def run(body: str, inputs: str = "", feeds: dict | None = None, out: str = "float[n]"):
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> agraph ({inputs}) => ({out} y) {{ {body} }}')
    return Executor(model).run(None, feeds or {})[0]


BERNOULLI = {c.name: c for c in load_model_tests(kind="node") if "bernoulli" in c.name}


@pytest.mark.parametrize("name", BERNOULLI)
def test_bernoulli_case_has_the_shape_and_type_and_only_two_values(name):
    case = BERNOULLI[name]
    model = node_cases.model_of(case)
    for inputs, (expected,) in node_cases.data_sets(case):
        (got,) = Executor(model).run(None, {model.graph.input[0].name: inputs[0]})
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        assert set(got.reshape(-1).tolist()) <= {0, 1}


@pytest.mark.parametrize("kind", KINDS)
def test_bernoulli_frequency_is_its_input(kind):
    p = np.repeat(np.array([0, 0.2, 0.9, 1]), COUNT).astype(KINDS[kind])
    y = run("y = Bernoulli<seed=1.0>(p)", f"{kind}[n] p", {"p": p}, f"{kind}[n]")
    assert y.dtype == p.dtype
    means = y.astype(float).reshape(4, COUNT).mean(1)
    np.testing.assert_allclose(means, [0, 0.2, 0.9, 1], atol=NEAR * 0.5)
    assert (means[0], means[3]) == (0, 1)
    assert run("y = Bernoulli<dtype=7>(p)", f"{kind}[n] p", {"p": p}, "int64[n]").dtype == np.int64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("like", [False, True])
def test_normal_and_uniform_numbers(kind, like):
    number = {"float": 1, "float16": 10, "double": 11, "bfloat16": 16}[kind]
    x = np.zeros((COUNT // 4, 4), KINDS[kind])
    where = ("Like", "x", "") if like else ("", "", f"shape=[{COUNT // 4}, 4], dtype={number}, ")
    for attrs, name, mean, deviation in (
        ("mean=3.0, scale=2.0, seed=7.0", "Normal", 3, 2),
        ("low=-1.0, high=5.0, seed=7.0", "Uniform", 2, 6 / math.sqrt(12)),
    ):
        body = f"y = Random{name}{where[0]}<{where[2]}{attrs}>({where[1]})"
        y = run(body, f"{kind}[a,b] x" if like else "", {"x": x} if like else {}, f"{kind}[a,b]")
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        values = y.astype(float)
        assert abs(values.mean() - mean) < NEAR * deviation
        assert abs(values.std() / deviation - 1) < NEAR
        if name == "Uniform":
            assert values.min() >= -1
            assert values.max() <= 5
        np.testing.assert_array_equal(y, run(body, f"{kind}[a,b] x" if like else "", {"x": x} if like else {}, f"{kind}[a,b]"))


def test_runs_without_a_seed_differ():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> agraph () => (float[n] y) { y = RandomNormal<shape=[16]>() }'
    )
    executor = Executor(model)
    assert not np.array_equal(executor.run(None, {})[0], executor.run(None, {})[0])


def test_multinomial_frequencies_are_the_probabilities():
    x = np.log(np.array([[0.1, 0.6, 0.3], [0.25, 0.25, 0.5]], np.float32)) + 4
    y = run(f"y = Multinomial<sample_size={COUNT}, seed=3.0>(x)", "float[2,3] x", {"x": x}, "int32[2,n]")
    assert (y.shape, y.dtype) == ((2, COUNT), np.int32)
    shares = np.stack([(y == k).mean(1) for k in range(3)], 1)
    np.testing.assert_allclose(shares, [[0.1, 0.6, 0.3], [0.25, 0.25, 0.5]], atol=NEAR * 0.5)


def test_dropout_in_training_zeros_and_scales():
    x = np.ones(COUNT, np.float32)
    body = "r = Constant<value_float=0.25>() t = Constant<value=bool {1}>() y, mask = Dropout<seed=5>(x, r, t)"
    y = run(body, "float[n] x", {"x": x})
    assert set(y.tolist()) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < NEAR * 0.5
