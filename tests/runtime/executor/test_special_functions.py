"""The error function agrees with math.erf at every scale."""

import math

import numpy as np
import pytest

from onnxbridge.runtime.executor.numpy.kernels.special import erf

POINTS = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-30, 0.8, 500), [0.0, np.inf, -np.inf]])


@pytest.mark.parametrize(("kind", "units"), [(np.float32, 8), (np.float64, 8)])
def test_erf(kind, units):
    x = POINTS.astype(kind)
    expected = np.array([math.erf(v) for v in x.tolist()])
    error = np.abs(erf(x) - expected)
    assert erf(x).dtype == kind
    assert (error <= units * np.finfo(kind).epsneg * np.abs(expected)).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_erf_of_scalars_empty_and_strided_arrays(kind):
    assert np.isnan(erf(np.array([np.nan], kind)))[0]
    assert erf(np.array(0.5, kind)).shape == ()
    assert erf(np.zeros((3, 0), kind)).shape == (3, 0)
    x = np.linspace(-3, 3, 40000, dtype=kind).reshape(200, 200)
    np.testing.assert_array_equal(erf(x.T), erf(x).T)


def test_erf_of_large_arguments_is_one():
    """An error of one unit would be large in Gelu, which multiplies 1 + erf(x) by x."""
    x = np.array([-3e38, -np.inf, -1e6, -4, 4, 1e6, np.inf], np.float32)
    np.testing.assert_array_equal(erf(x), np.sign(x))
    assert np.isnan(erf(np.array([np.nan], np.float32)))[0]
