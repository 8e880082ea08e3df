"""Expansions whose numbers are drawn: their dtype, their shape, their distribution."""

from __future__ import annotations

import numpy as np
import pytest

from tests.hub.decompositions.compare import Fixed, case, run, written_out

WIDE = np.zeros((40, 500), np.float32)
ODDS = np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]))

# Operator: its node, and the mean and variance of what it draws.
DRAWN = {
    "RandomNormal": (case("RandomNormal", shape=[40, 500], mean=2.0, scale=3.0, seed=1.0), 2.0, 9.0),
    "RandomNormalLike": (case("RandomNormalLike", WIDE, mean=-1.0, scale=0.5, seed=2.0), -1.0, 0.25),
    "RandomUniform": (case("RandomUniform", shape=[40, 500], low=-1.0, high=3.0, seed=3.0), 1.0, 16 / 12),
    "Dropout": (case("Dropout", WIDE + 1, Fixed(np.float32(0.25)), Fixed(np.bool_(True)), seed=4), 1.0, 1 / 3),
}


@pytest.mark.parametrize("op", DRAWN)
@pytest.mark.parametrize("dynamic", [False, True])
def test_moments(op, dynamic):
    made, mean, variance = DRAWN[op]
    (found,) = run(made, written_out(made, dynamic), "executor")
    assert found.shape == WIDE.shape
    assert found.dtype == np.float32
    # five standard errors of 20,000 draws, whose fourth moment is below six times the squared variance
    assert abs(found.mean() - mean) < 5 * np.sqrt(variance / found.size)
    assert abs(found.var() - variance) < 5 * variance * np.sqrt(5 / found.size)


OPERATORS = {*DRAWN, "Multinomial"}


def test_classes_come_as_often_as_they_are_likely():
    made = case("Multinomial", ODDS, sample_size=4000, seed=5.0)
    (found,) = run(made, written_out(made, dynamic=True), "executor")
    assert found.shape == (2, 4000)
    assert found.dtype == np.int32
    for row, odds in zip(found, np.exp(ODDS), strict=True):
        often = np.bincount(row, minlength=3) / 4000
        assert np.abs(often - odds).max() < 5 * np.sqrt(0.25 / 4000)


def test_dropout_is_left_out_where_nothing_is_trained():
    made = case("Dropout", WIDE + 1, outputs=2)
    y, mask = run(made, written_out(made, dynamic=True), "executor")
    assert (y == 1).all()
    assert mask.all()
