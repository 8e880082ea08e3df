"""Matrix factorizations written as ONNX loops: in ONNX Runtime, against NumPy and against their defining equations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.decompositions.linalg import factorizations

RNG = np.random.default_rng(0)
SHAPES = [(1, 1), (2, 2), (5, 5), (2, 3, 3), (7, 4), (3, 2, 5), (40, 40)]
DTYPES = [np.float32, np.float64]


def run(function, *arrays, dynamic=False):
    """The outputs in ONNX Runtime of the nodes that `function(builder, *values)` writes."""
    op = Builder()
    shape = (lambda a, i: [f"d{i}_{k}" for k in range(a.ndim)]) if dynamic else (lambda a, i: a.shape)
    inputs = [op.input(f"x{i}", ir.DataType.from_numpy(a.dtype), shape(a, i)) for i, a in enumerate(arrays)]
    results = function(op, *inputs)
    results = results if isinstance(results, tuple) else (results,)
    outputs = [op.output(r, f"y{i}") for i, r in enumerate(results)]
    proto = ir.serde.serialize_model(op.model(inputs, outputs))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, {v.name: a for v, a in zip(inputs, arrays, strict=True)})
    return results if len(results) > 1 else results[0]


def random_array(shape, dtype):
    return RNG.standard_normal(shape).astype(dtype)


def assert_close(got, expected, size, scale=1.0):
    """Asserts equality up to the rounding of n sums of n products of numbers of magnitude `scale`."""
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=8 * size * np.finfo(got.dtype).eps * scale)


def max_norm(a):
    return float(np.linalg.norm(a, axis=(-2, -1)).max(initial=1.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_svd(shape, dtype, dynamic):
    a = random_array(shape, dtype)
    values, left, right = run(factorizations.jacobi_svd, a, dynamic=dynamic)
    n = max(shape[-2:])
    expected = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    assert_close(values[..., : expected.shape[-1]], expected.astype(dtype), n, max_norm(a))
    assert_close(left, a @ right, n, max_norm(a))
    assert_close(np.swapaxes(right, -1, -2) @ right, np.broadcast_to(np.eye(shape[-1], dtype=dtype), right.shape).copy(), n)
    squares = values[..., None] * values[..., None, :] * np.eye(shape[-1], dtype=dtype)
    assert_close(np.swapaxes(left, -1, -2) @ left, squares, n, max_norm(a) ** 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svd_of_low_rank_matrix(dtype):
    a = random_array((6, 2), dtype) @ random_array((2, 5), dtype)
    assert_close(run(factorizations.jacobi_svd, a)[0], np.linalg.svd(a, compute_uv=False), 6, max_norm(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1] == s[-2]])
def test_eigh(shape, dtype):
    a = random_array(shape, dtype)
    a = a + np.swapaxes(a, -1, -2)
    values, vectors = run(factorizations.eigh, a)
    assert_close(values, np.linalg.eigvalsh(a.astype(np.float64)).astype(dtype), shape[-1], max_norm(a))
    assert_close(a @ vectors, vectors * values[..., None, :], shape[-1], max_norm(a))
    assert_close(
        np.swapaxes(vectors, -1, -2) @ vectors, np.broadcast_to(np.eye(shape[-1], dtype=dtype), a.shape).copy(), shape[-1]
    )


@pytest.mark.parametrize("a", [np.zeros((3, 3)), np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(4), np.diag([1e-8, 1.0, -1.0])])
def test_eigh_with_equal_or_zero_eigenvalues(a):
    values, vectors = run(factorizations.eigh, a)
    assert_close(values, np.linalg.eigvalsh(a), len(a))
    assert_close(vectors * values @ vectors.T, a, len(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_qr_has_the_signs_of_lapack(shape, dtype):
    a = random_array(shape, dtype)
    q, r = run(factorizations.qr, a)
    assert_close(q @ r, a, max(shape[-2:]), max_norm(a))
    for got, expected in zip((q, r), np.linalg.qr(a), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_array_equal(np.sign(got[np.abs(expected) > 0.01]), np.sign(expected[np.abs(expected) > 0.01]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_lu_solve(adjoint, dtype, dynamic):
    a, b = random_array((2, 1, 6, 6), dtype), random_array((3, 6, 2), dtype)

    def solve(op, a, b):
        packed, swaps, order, info = factorizations.lu(op, a)
        order_from_swaps = factorizations.row_order(op, swaps, op.size(a, -2))
        return factorizations.solve_factored(op, packed, order, b, adjoint=adjoint), order, order_from_swaps, info

    x, order, order_from_swaps, info = run(solve, a, b, dynamic=dynamic)
    np.testing.assert_array_equal(order, order_from_swaps)
    assert not info.any()
    y = (np.swapaxes(a, -1, -2) if adjoint else a) @ x
    assert_close(y, np.broadcast_to(b, x.shape).copy(), 6, max_norm(a) * float(np.abs(x).max()))


def test_info_reports_zero_pivots_and_minors():
    singular = np.array([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(run(factorizations.lu, singular)[3], [2, 0])
    indefinite = np.array([[[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]])
    np.testing.assert_array_equal(run(factorizations.cholesky, indefinite)[1], [2, 1, 0])
