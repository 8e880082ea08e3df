"""Decompositions of random operators: dtype, shape and distribution."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hub.decompositions.compare import Constant, case, decomposed_model, run

ZEROS = np.zeros((40, 500), np.float32)
LOG_PROBABILITIES = np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))

# Operator: its case, and the mean and variance of its output.
RANDOM_CASES = {
    "RandomNormal": (case("RandomNormal", shape=[40, 500], mean=2.0, scale=3.0, seed=1.0), 2.0, 9.0),
    "RandomNormalLike": (case("RandomNormalLike", ZEROS, mean=-1.0, scale=0.5, seed=2.0), -1.0, 0.25),
    "RandomUniform": (case("RandomUniform", shape=[40, 500], low=-1.0, high=3.0, seed=3.0), 1.0, 16 / 12),
    "Bernoulli": (case("Bernoulli", ZEROS + np.float32(0.125), seed=3.0), 0.125, 0.109375),
    "Dropout": (case("Dropout", ZEROS + 1, Constant(np.float32(0.25)), Constant(np.bool_(True)), seed=4), 1.0, 1 / 3),
}


@pytest.mark.parametrize("op", RANDOM_CASES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_mean_and_variance(op, dynamic):
    random_case, mean, variance = RANDOM_CASES[op]
    (output,) = run(random_case, decomposed_model(random_case, dynamic), "executor")
    assert output.shape == ZEROS.shape
    assert output.dtype == np.float32
    # five standard errors of 20,000 samples, whose fourth moment is below six times the squared variance
    assert abs(output.mean() - mean) < 5 * np.sqrt(variance / output.size)
    assert abs(output.var() - variance) < 5 * variance * np.sqrt(5 / output.size)


OPERATORS = {*RANDOM_CASES, "Multinomial"}


def test_multinomial_frequencies_match_probabilities():
    random_case = case("Multinomial", LOG_PROBABILITIES, sample_size=4000, seed=5.0)
    (output,) = run(random_case, decomposed_model(random_case, dynamic=True), "executor")
    assert output.shape == (2, 4000)
    assert output.dtype == np.int32
    for row, probabilities in zip(output, np.exp(LOG_PROBABILITIES), strict=True):
        frequencies = np.bincount(row, minlength=3) / 4000
        assert np.abs(frequencies - probabilities).max() < 5 * np.sqrt(0.25 / 4000)


def test_dropout_is_identity_in_inference_mode():
    random_case = case("Dropout", ZEROS + 1, outputs=2)
    y, mask = run(random_case, decomposed_model(random_case, dynamic=True), "executor")
    assert (y == 1).all()
    assert mask.all()
