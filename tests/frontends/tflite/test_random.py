"""Random operators: samples of the same distribution as TensorFlow Lite's."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import onnxbridge
from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, constant, model
from tests.frontends.tflite.compare import hub_of, saved

SHAPE = np.array([40, 50], np.int32)


def _convert(path):
    found = onnxbridge.convert(path)
    assert found.report.verdict == "WEAK" and "random output" in str(found.report), found.report
    session = onnxruntime.InferenceSession(found.model.SerializeToString())
    return session, [o.name for o in session.get_outputs()]


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("name", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_samples_of_a_distribution(tmp_path, name, is_constant):
    x, y = T(np.ones(SHAPE, np.float32), name="x"), T(type="FLOAT32", name="y", shape=tuple(SHAPE))
    sample, sizes = T(type="FLOAT32", shape=tuple(SHAPE)), T(type="INT32", shape=(2,))
    ops = [Op(name, [constant(SHAPE) if is_constant else sizes], [sample], "RandomOptions", {"seed": 3, "seed2": 5})]
    if not is_constant:
        ops.insert(0, Op("SHAPE", [x], [sizes], "ShapeOptions", {"out_type": "INT32"}))
    session, _ = _convert(saved(tmp_path, model(G([x], [y], [*ops, Op("ADD", [x, sample], [y], "AddOptions")]))))
    found, other = (session.run(None, {"x": np.zeros(SHAPE, np.float32)})[0] for _ in range(2))
    assert found.dtype == np.float32 and (found != other).any()
    mean, deviation = (0.5, 12**-0.5) if name == "RANDOM_UNIFORM" else (0, 1)
    assert abs(found.mean() - mean) < 0.15 and abs(found.std() - deviation) < 0.1
    assert name != "RANDOM_UNIFORM" or (found.min() >= 0 and found.max() < 1)


@pytest.mark.parametrize("dtype", ["INT32", "INT64"])
def test_classes_by_their_logits(tmp_path, dtype):
    logits = T(np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-9]])), name="logits")
    y = T(type=dtype, name="y", shape=(2, 4000))
    count = constant(np.array(4000, np.int32))
    made = Op("MULTINOMIAL", [logits, count], [y], "RandomOptions", {"seed": 3, "seed2": 5})
    session, _ = _convert(saved(tmp_path, model(G([logits], [y], [made]))))
    (found,) = session.run(None, {"logits": logits.value})
    assert found.dtype == np.dtype(dtype.lower()) and found.shape == (2, 4000)
    shares = np.stack([np.bincount(row, minlength=3) for row in found]) / 4000
    np.testing.assert_allclose(shares, [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], atol=0.05)


@pytest.mark.parametrize("name", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"])
@pytest.mark.parametrize("count", [0, 3])
def test_other_inputs_than_the_operator_has_are_refused(tmp_path, name, count):
    x, y = T(SHAPE, name="x"), T(type="FLOAT32", name="y", shape=(40, 50))
    with pytest.raises(ConversionError, match=name):
        hub_of(saved(tmp_path, model(G([x], [y], [Op(name, [x] * count, [y], "RandomOptions")]))))
