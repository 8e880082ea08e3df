"""Matrix factorizations written as ONNX loops: in ONNX Runtime, against NumPy and against their defining equations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.builder import Builder

RNG = np.random.default_rng(0)
SHAPES = [(1, 1), (2, 2), (5, 5), (2, 3, 3), (7, 4), (3, 2, 5), (40, 40)]
DTYPES = [np.float32, np.float64]


def ran(function, *arrays, dynamic=False):
    """What a function of the builder and of values computes."""
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
    found = session.run(None, {v.name: a for v, a in zip(inputs, arrays, strict=True)})
    return found if len(found) > 1 else found[0]


def drawn(shape, dtype):
    return RNG.standard_normal(shape).astype(dtype)


def close(got, wanted, size, scale=1.0):
    """Equal but for what rounding explains: n products of numbers of the given scale are summed, and that n times over."""
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=8 * size * np.finfo(got.dtype).eps * scale)


def size_of(a):
    return float(np.linalg.norm(a, axis=(-2, -1)).max(initial=1.0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_singular_values_and_vectors(shape, dtype, dynamic):
    a = drawn(shape, dtype)
    values, left, right = ran(factorizations.singular, a, dynamic=dynamic)
    n = max(shape[-2:])
    wanted = np.linalg.svd(a.astype(np.float64), compute_uv=False)
    close(values[..., : wanted.shape[-1]], wanted.astype(dtype), n, size_of(a))
    close(left, a @ right, n, size_of(a))
    close(np.swapaxes(right, -1, -2) @ right, np.broadcast_to(np.eye(shape[-1], dtype=dtype), right.shape).copy(), n)
    squares = values[..., None] * values[..., None, :] * np.eye(shape[-1], dtype=dtype)
    close(np.swapaxes(left, -1, -2) @ left, squares, n, size_of(a) ** 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_values_of_a_matrix_of_low_rank(dtype):
    a = drawn((6, 2), dtype) @ drawn((2, 5), dtype)
    close(ran(factorizations.singular, a)[0], np.linalg.svd(a, compute_uv=False), 6, size_of(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1] == s[-2]])
def test_eigenvalues_and_vectors(shape, dtype):
    a = drawn(shape, dtype)
    a = a + np.swapaxes(a, -1, -2)
    values, vectors = ran(factorizations.eigh, a)
    close(values, np.linalg.eigvalsh(a.astype(np.float64)).astype(dtype), shape[-1], size_of(a))
    close(a @ vectors, vectors * values[..., None, :], shape[-1], size_of(a))
    close(np.swapaxes(vectors, -1, -2) @ vectors, np.broadcast_to(np.eye(shape[-1], dtype=dtype), a.shape).copy(), shape[-1])


@pytest.mark.parametrize("a", [np.zeros((3, 3)), np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(4), np.diag([1e-8, 1.0, -1.0])])
def test_eigenvalues_where_they_are_equal_or_zero(a):
    values, vectors = ran(factorizations.eigh, a)
    close(values, np.linalg.eigvalsh(a), len(a))
    close(vectors * values @ vectors.T, a, len(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_orthonormal_columns_have_lapacks_signs(shape, dtype):
    a = drawn(shape, dtype)
    q, r = ran(factorizations.qr, a)
    close(q @ r, a, max(shape[-2:]), size_of(a))
    for got, wanted in zip((q, r), np.linalg.qr(a), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(np.sign(got[np.abs(wanted) > 0.01]), np.sign(wanted[np.abs(wanted) > 0.01]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_equations_are_solved(adjoint, dtype, dynamic):
    a, b = drawn((2, 1, 6, 6), dtype), drawn((3, 6, 2), dtype)

    def solve(op, a, b):
        packed, swaps, order, info = factorizations.lu(op, a)
        again = factorizations.row_order(op, swaps, op.size(a, -2))
        return factorizations.solve_factored(op, packed, order, b, adjoint=adjoint), order, again, info

    x, order, again, info = ran(solve, a, b, dynamic=dynamic)
    np.testing.assert_array_equal(order, again)
    assert not info.any()
    y = (np.swapaxes(a, -1, -2) if adjoint else a) @ x
    close(y, np.broadcast_to(b, x.shape).copy(), 6, size_of(a) * float(np.abs(x).max()))


def test_zero_pivots_and_minors_are_told():
    singular = np.array([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]])
    np.testing.assert_array_equal(ran(factorizations.lu, singular)[3], [2, 0])
    indefinite = np.array([[[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]]])
    np.testing.assert_array_equal(ran(factorizations.cholesky, indefinite)[1], [2, 1, 0])
