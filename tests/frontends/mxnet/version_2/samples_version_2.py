"""Samples of operators that MXNet 2 has added, and of those that it has renamed from `_np_` to `_npi_`."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.frontends.mxnet.sample_list import SampleList, array
from tests.frontends.mxnet.samples_numpy import numpy_samples


def renamed_samples():
    """The samples of MXNet 1 whose operators have other names in MXNet 2."""
    one_name = {"_np_amax": "_npi_max", "_np_amin": "_npi_min", "_np_product": "_npi_prod", "_np_sometrue": "_npi_any"}
    several = {"_np_repeat", "_np_reshape"}  # the attributes differ too
    return [
        dataclasses.replace(s, op=one_name.get(s.op, s.op.replace("_np_", "_npi_", 1)))
        for s in numpy_samples()
        if s.op.startswith("_np_") and s.op not in several
    ]


def new_samples():
    found = SampleList(np_shape=True)
    s, f, a = found.add, found.floats, array
    x34, ints = f(3, 4), found.random.randint(-9, 10, (3, 4))
    _binary(s, f, ints)
    s("log_sigmoid mish", x34)
    s("digamma", found.fractions(3, 4) + np.float32(0.5))
    mask = found.random.uniform(size=(2, 3, 4)) > 0.4
    mask[0, 0] = False
    for name in ("masked_softmax", "masked_log_softmax"):
        s(name, f(2, 3, 4), mask)
        s(name, f(2, 3, 4), mask[:, :1].copy(), axis=1, temperature=2.0)
    s("GroupNorm", f(2, 4, 6, 6), f(4), f(4), num_groups=2)
    s("_npi_pad", x34, pad_width=((1, 0), (2, 1)), mode="constant", constant_values=1.5)
    for kind in (np.int32, np.int64):
        s("_npi_exp _npi_sqrt _npi_log1p _npi_floor _npi_rint _npi_degrees _npi_cbrt _npi_sin", np.arange(3, dtype=kind))

    # sliding-window attention
    q, dilation = f(2, 7, 3, 4), np.array([1, 2, 3], np.int32)
    for symmetric, size in ((True, 5), (False, 3)):
        scores = f(2, 7, 3, size)
        for known in ((), (2,)):
            s("_contrib_sldwin_atten_score", q, f(2, 7, 3, 4), dilation, w=2, symmetric=symmetric, known=known)
            s("_contrib_sldwin_atten_context", scores, f(2, 7, 3, 4), dilation, w=2, symmetric=symmetric, known=known)
        s("_contrib_sldwin_atten_mask_like", scores, dilation, np.array([7, 4], np.int32), w=2, symmetric=symmetric)

    # indexing
    s("_npi_advanced_indexing", x34, np.array([2, 1, 0]))
    s("_npi_advanced_indexing", x34, np.array([True, False, True]))
    s("_npi_advanced_indexing_multiple", f(3, 4, 2), np.array([[0, 2], [3, 1]]))
    at = np.array([[0, 2, 0], [1, 3, 1]], np.int32)
    s("_npx_index_add _npx_index_update", f(3, 4, 2), at[:, :2].copy(), f(2, 2))
    s("_npx_index_add", f(3, 4, 2), at, f(3, 1))
    s("_npx_index_add _npx_index_update", x34, np.array([[1, 2]], np.int32), f(1))
    for axis in (0, -1, None):
        s("_npi_delete", x34, int_ind=-1, axis=axis)
        s("_npi_delete", x34, start=None, stop=None, step=2, axis=axis)
        s("_npi_delete", x34, np.array([0, 2, 0, -1]), axis=axis)
        s("_npi_delete", x34, np.array([1], np.int32), axis=axis, known=(1,))
    s("_npi_delete", x34, start=3, stop=None, step=-1)
    s("_npi_tril_indices", n=4, k=1, m=3, heads=2)
    s("_npi_tri", N=3, M=4, k=1)
    s("_npi_triu", x34, k=1)
    s("_npi_triu", f(3), k=0)
    s("_npi_repeats", x34, repeats=(2,), axis=0)
    s("_npi_repeats", x34, repeats=(1, 0, 2), axis=0)
    s("_npi_repeats", f(3), repeats=(3,))
    for axis, start in ((2, 0), (0, 3), (1, -1)):
        s("_npi_rollaxis", f(2, 3, 4), axis=axis, start=start)
    s("_contrib_dynamic_reshape", x34, np.array([2, -1], np.int32), known=(1,))

    # linear algebra
    s("_npi_qr", f(4, 3), heads=2)
    s("_npi_qr", f(2, 3, 3), heads=2)
    low_rank = np.outer(f(4), f(3)).astype(np.float32)
    s("_npi_matrix_rank_none_tol", low_rank, finfoEps32=float(np.finfo(np.float32).eps), finfoEps64=2.2e-16)
    s("_npi_matrix_rank", low_rank, np.array(0.001, np.float32))
    s("_npi_cross", f(2, 3), f(2, 3))
    s("_npi_cross", f(2, 2), f(2, 2))
    s("_npi_cross", f(2, 3), f(2, 2))
    s("_npi_cross", f(3, 2), f(2, 3), axisa=0, axisc=0)
    s("_npi_kron", f(2, 3), f(4, 2))
    s("_npi_kron", f(3), f(2, 2))
    points = a(0, 1, 2.5, 4, dtype=np.float64), a(3, -1, 2, 2, dtype=np.float64)
    s("_npi_interp", *points, a(-1, 0, 0.5, 2.5, 3, 4, 5, dtype=np.float64))
    s("_npi_interp", *points, a([0.2, 9], [-4, 3.9], dtype=np.float64), left=-7.0, right=8.0)
    s("_npi_interp", *points, x_scalar=1.25, x_is_scalar=True)
    return found


def _binary(s, f, ints):
    x, y = f(3, 4), f(4)
    small = np.abs(ints) % 5 + 1
    for name in ("floor_divide", "fmod"):
        s(f"_npi_{name}", x, y)
        s(f"_npi_{name}", ints, small)
        s(f"_npi_{name}_scalar _npi_r{name}_scalar", x, scalar=1.5, is_int=False)
        s(f"_npi_{name}_scalar", ints, scalar=3)
    with_nan = np.where(x > 1, np.float32(np.nan), x)
    s("_npi_fmax _npi_fmin", with_nan, y)
    s("_npi_fmax _npi_fmin", x, np.where(y > 0, np.float32(np.nan), y))
    s("_npi_fmax_scalar _npi_fmin_scalar", with_nan, scalar=0.5, is_int=False)
    s("_npi_gcd", ints, small)
    s("_npi_gcd_scalar", ints, scalar=6)
    s("_npi_logaddexp", x, y)
    s("_npi_logaddexp_scalar", x, scalar=0.5, is_int=False)
    s("_npi_logical_and _npi_logical_or _npi_logical_xor", x > 0, y > 0)
    s("_npi_logical_and _npi_logical_or _npi_logical_xor", ints, small - 2)
    s("_npi_logical_and_scalar _npi_logical_or_scalar _npi_logical_xor_scalar", x > 0, scalar=1)
    s("_npi_bitwise_left_shift _npi_bitwise_right_shift", ints, small)
    for name in ("left", "right"):
        # MXNet 2.0.0b1 cannot run _npi_bitwise_..._shift_scalar in a graph
        s(f"_npi_rbitwise_{name}_shift_scalar", small, scalar=40)
