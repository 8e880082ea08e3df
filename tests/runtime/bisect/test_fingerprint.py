"""Fingerprints of tensors: equal for other layouts and for rounding, different for everything else."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.runtime.bisect.align import aligned, summary
from onnxbridge.runtime.bisect.fingerprint import distance, fingerprint, noise, same

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 6, 5, 4))


@pytest.mark.parametrize("layout", [X, X.transpose(0, 2, 3, 1), X.reshape(2, 30, 4), X[None], X * (1 + 1e-8)])
def test_layout_and_rounding_do_not_matter(layout):
    assert same(fingerprint(X), fingerprint(layout))


def swapped_channels(x):
    x = x.copy()
    x[:, [0, 1]] = x[:, [1, 0]]
    return x


def one_element(x):
    x = x.copy()
    x[0, 0, 0, 0] += 1e-3
    return x


@pytest.mark.parametrize("change", [swapped_channels, one_element, lambda x: x * 1.001, lambda x: -x, lambda x: x + 1e-4])
def test_changes_show(change):
    assert not same(fingerprint(X), fingerprint(change(X)))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_are_counted(special):
    x = X.copy()
    x[0, 1, 2, 3] = special
    assert not same(fingerprint(X), fingerprint(x)) and same(fingerprint(x), fingerprint(x))


def test_attention_masks_of_other_sizes_are_equal():
    masked = np.where(X > 1, -np.inf, 0.0)
    assert same(fingerprint(masked), fingerprint(np.where(X > 1, -3.4e38, 0.0)))


def test_integers_and_strings_must_be_equal():
    ints = np.arange(12).reshape(3, 4)
    assert same(fingerprint(ints), fingerprint(ints.T.astype(np.int32)))
    assert not same(fingerprint(ints), fingerprint(ints + (ints == 3)))
    assert not same(fingerprint(ints), fingerprint(ints.astype(float)))
    words = np.array(["a", "b", "b"])
    assert same(fingerprint(words), fingerprint(words[::-1]))
    assert not same(fingerprint(words), fingerprint(np.array(["a", "a", "b"])))


def test_rounding_of_the_models_precision_is_allowed():
    big = 1e4 + X
    rounded = big.astype(np.float16).astype(np.float64)
    assert not same(fingerprint(big), fingerprint(rounded))
    assert same(fingerprint(big), fingerprint(rounded), noise(fingerprint(big), fingerprint(rounded)))


def test_other_kinds_of_values_have_none():
    assert fingerprint([X]) is None and fingerprint(None) is None


def test_empty_and_constant_tensors():
    assert same(fingerprint(np.zeros((0, 3))), fingerprint(np.zeros((3, 0))))
    assert not same(fingerprint(np.zeros(3)), fingerprint(np.full(3, 1e-6)))


def test_distance_orders_candidates():
    near, far = fingerprint(X * 1.1), fingerprint(RNG.normal(3, 5, X.shape))
    assert 0 < distance(fingerprint(X), near) < distance(fingerprint(X), far)
    assert distance(fingerprint(X), fingerprint(X[0])) == np.inf


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_arrays_are_aligned_by_content(order):
    np.testing.assert_array_equal(aligned(X, X.transpose(order)), X)


def test_arrays_of_other_sizes_are_not_aligned():
    assert aligned(X, X[0]) is None


def test_summary():
    assert summary(np.array([1.0, 2.0, np.nan], np.float32)) == "float32[3], mean 1.5, from 1 to 2, 1 NaN"
    assert summary(np.zeros(2)) == "float64[2], 0 throughout"
