"""Samples of the operators of `mx.np`, one call per line: name, inputs, attributes. All have np-shape semantics."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops.numpy import arithmetic
from tests.frontends.mxnet.sample_list import SampleList, array


def numpy_samples():
    found = SampleList(np_shape=True)
    s, f, p, a = found.add, found.floats, found.fractions, array

    def i(*values, dtype=np.int32):
        return np.array(values, dtype)

    x34, x234, x23 = f(3, 4), f(2, 3, 4), f(2, 3)
    ints, more = i(-7, -2, 0, 3, 5), i(2, -3, 4, 3, -1)
    flags, others = a(1, 0, 1, 0, dtype=bool), a(1, 1, 0, 0, dtype=bool)
    odd = a(np.nan, np.inf, -np.inf, 0, -1.5)

    # unary
    for op in (*arithmetic.EXACT, *arithmetic.FLOATING, *arithmetic.SHARED):
        s(f"_npi_{op}", p(3, 4) + (op == "arccosh"))
    for op in ("exp", "sqrt", "log1p", "square", "sign", "negative", "abs", "floor", "rint", "degrees", "cbrt", "reciprocal"):
        s(f"_npi_{op}", i(1, 2, 4))
    s("_npi_exp _npi_square _npi_tanh", f())
    s("_npi_isnan _npi_isinf _npi_isfinite _npi_isposinf _npi_isneginf _npi_nan_to_num", odd)
    s("_npi_isnan _npi_isfinite _npi_nan_to_num _npi_logical_not _npi_bitwise_not", ints)
    s("_npi_nan_to_num", odd, nan=2.0, posinf=5.0, neginf=-6.0, copy=False)
    s("_npi_logical_not _npi_bitwise_not _npi_isinf", flags)
    s("_npi_logical_not", odd)
    for decimals in (0, 1, -1):
        s("_npi_around", a(-2.5, -1.5, -0.5, 0.4, 0.5, 1.5, 2.6, 115, 1.25), decimals=decimals)
        s("_npi_around", i(15, 25, -115, 0), decimals=decimals)

    # binary
    for op in arithmetic.BINARY:
        if op.startswith("bitwise") or op == "lcm":
            s(f"_npi_{op}", ints, more)
            s(f"_npi_{op}_scalar", ints, scalar=6)
            continue
        s(f"_npi_{op}", p(3, 1, 4), p(2, 1))
        s(f"_npi_{op}", f(3), f())
        s(f"_npi_{op}_scalar", p(3, 4), scalar=0.5, is_int=False)
        s(f"_npi_{op}_scalar", ints[3:], scalar=3)
        if op in arithmetic.REVERSED:
            s(f"_npi_r{op}_scalar", p(3, 4), scalar=0.5, is_int=False)
            s(f"_npi_r{op}_scalar", ints[3:], scalar=3)
    for op in ("add", "multiply", "power", "equal", "less", "greater_equal", "bitwise_and", "bitwise_or", "bitwise_xor"):
        s(f"_npi_{op}", flags, others)
    for op in ("subtract", "mod", "true_divide", "maximum", "equal", "less"):
        s(f"_npi_{op}", ints, more)
    for op in ("add", "multiply", "subtract", "mod", "power"):
        s(f"_npi_{op}", i(1, 2, 4), a(2, 0.5, -1))
    s("_npi_add _npi_multiply", flags, i(3, 4, 5, 6))
    s("_npi_add _npi_multiply", i(3, 4, dtype=np.int8), i(3, 4))
    s("_npi_subtract _npi_true_divide", flags, a(3, 4, 5, 6))
    for op in ("add", "subtract", "multiply", "mod", "power", "maximum", "true_divide", "equal", "less"):
        s(f"_npi_{op}_scalar", flags, scalar=2)
        s(f"_npi_{op}_scalar", ints, scalar=2.5, is_int=False)
    s("_npi_greater_scalar _npi_less_scalar _npi_equal_scalar _npi_not_equal_scalar", ints, scalar=-2.5, is_int=False)
    s("_npi_percentile", a(0.5, -1, 2, 4).astype(np.float16), q_scalar=50.0)
    s("_npi_bitwise_or_scalar", flags, scalar=1)
    s("_npi_mod", a(-7.5, 7.5, 5, -5, 3, 0), a(2, -2, -2, 2, 0, 3))
    s("_npi_arctan2", a(1, -1, 1, -1, 0, 0, 2, -2), a(1, 1, -1, -1, 1, -1, 0, 0))
    s("_npi_copysign", a(1, -2, 3), a(-1, 0.0, -0.0))
    s("_npi_hypot", x34, f(4))
    s("_npi_hypot_scalar", x34, scalar=2.0)
    s("_npi_polyval", f(4), x23)

    # reduction
    reductions = (
        "_np_sum", "_np_prod", "_np_product", "_npi_mean",
        "_np_max", "_np_amax", "_np_min", "_np_amin", "_npi_std", "_npi_var",
    )
    for op in reductions:
        s(op, x234, axis=(0, 2))
        s(op, x234, axis=1, keepdims=True)
        s(op, x234)
        s(op, i(1, 2, 4))
    s("_np_sum", f(), axis=0)
    s("_np_sum _npi_mean", x234, axis=-1, dtype="float64")
    s("_np_sum _npi_mean", ints, dtype="float32")
    s("_np_sum _np_prod _npi_mean _np_max _np_min", flags)
    s("_np_sum _np_prod _npi_mean", np.zeros((0, 3), np.float32), axis=0)
    s("_npi_std _npi_var", x234, axis=1, ddof=1, dtype="float64")
    s("_npi_std _npi_var", i(1, 2, 4, 9, 13, -20))
    s("_np_sum _np_prod", a(0.5, -1.6, 2.7), dtype="int32")
    s("_np_any _np_all _np_sometrue", i([1, 0, 2], [0, 0, 0]), axis=1)
    s("_np_any _np_all", odd)
    s("_np_any _np_all", flags, keepdims=True)
    s("_npi_average", x23, weighted=False)
    s("_npi_average", x23, weighted=False, axis=1, returned=True, heads=2)
    s("_npi_average", x23, p(3), axis=1)
    s("_npi_average", x23, p(2, 3), returned=True, heads=2)
    s("_npi_average", x234, p(2), axis=0, returned=True, heads=2)
    for keepdims in (True, False):
        s("_npi_argmax _npi_argmin", x234, axis=1, keepdims=keepdims)
        s("_npi_argmax _npi_argmin", x234, keepdims=keepdims)
    s("_npi_argmax _npi_argmin", f(), axis=-1)
    s("_npi_argmax", ints)
    s("_np_cumsum", x234, axis=1)
    s("_np_cumsum", x23)
    s("_np_cumsum", ints, dtype="float32")
    s("_np_cumsum", flags)
    s("_np_trace", x34)
    s("_np_trace", i(1, 2, 3, 4, dtype=np.int8).reshape(2, 2), offset=2)
    s("_np_trace", x234, offset=1, axis1=2, axis2=0)
    s("_npi_norm", x234, flag=-2, ord=2)
    s("_npi_norm", x234, flag=-2, ord=2, keepdims=True)
    for ord_ in (1, 2, 3, 0.5):
        s("_npi_norm", x234, flag=-1, ord=ord_, axis=(1,))
    s("_npi_norm", x234, flag=1, ord=2, axis=(0, 2), keepdims=True)
    s("_npi_norm", x234, flag=0, ord=2, axis=(1, 2))
    s("_npi_norm", x234, flag=0, ord=-2, axis=(0, 2), keepdims=True)
    s("_npi_norm", x234, flag=2, ord=2, axis=(1, 2))

    # statistics
    s("_npi_diff", x34)
    s("_npi_diff", x234, n=2, axis=1)
    s("_npi_ediff1d", x23)
    s("_npi_ediff1d", i(1, 4, 9), to_begin_scalar=7, to_end_scalar=8)
    s("_npi_ediff1d", x23, f(2), f(1, 3), to_begin_arr_given=True, to_end_arr_given=True)
    s("_npi_ediff1d", x23, f(2), to_end_arr_given=True)
    s("_npi_bincount", i(1, 2, 2, 5))
    s("_npi_bincount", i(1, 2, 2, 5, dtype=np.int64), minlength=9)
    s("_npi_bincount", i(1, 2, 2, 5), f(4), has_weights=True)
    s("_npi_histogram _histogram", a(0.1, 1, 2, 2.5, 4, 5, -1), bin_cnt=4, range=(0, 4), heads=2)
    s("_npi_histogram", a(0.1, 1, 2, 2.5, 4, 5, -1), a(0, 1, 2.5, 4), heads=2)
    for mode in ("linear", "lower", "higher", "midpoint", "nearest"):
        s("_npi_percentile", x234, a(20, 60), axis=1, interpolation=mode)
        s("_npi_percentile", x34, q_scalar=37.0, interpolation=mode)
        s("_npi_percentile", x234, q_scalar=50.0, axis=0, interpolation=mode)
    s("_npi_percentile", ints, q_scalar=50.0)

    # shape
    s("_np_squeeze", f(), axis=0)
    s("tile", f(), reps=())
    s("repeat", f(), repeats=0)
    s("slice", f(2, 3), begin=(), end=())
    s("_split_v2", f(0, 3), indices=(), sections=2, axis=0, heads=2)
    s("_np_squeeze", f(1, 3, 1), axis=0)
    s("_np_squeeze", f(1, 3, 1))
    s("_np_squeeze", f(1, 1))
    s("_np_transpose", x234)
    s("_np_transpose", x234, axes=(1, 0, 2))
    s("_np_reshape", x234, newshape=(4, -1))
    s("_np_reshape", f(1), newshape=())
    for newshape in ((-2, -2, -1), (-2, -1), (-4,), (-5, -4), (-2, -5), (-6, 1, -1, -4), (-4, 1), (-1, 3, 2)):
        s("_npx_reshape _npi_reshape", x234, newshape=newshape)
    s("_npx_reshape", f(2, 1, 4), newshape=(-2, -3, -2))
    s("_npx_reshape", x234, newshape=(-1, -2), reverse=True)
    s("_npi_broadcast_to", f(3, 1), shape=(2, 3, 4))
    s("_np_copy", x34)
    s("_np_moveaxis", x234, source=(0, 1), destination=(-1, 0))
    s("_np_roll", x34, shift=(1,))
    s("_np_roll", x34, shift=(1, -1), axis=(0, 1))
    s("_np_roll", x34, shift=(7,), axis=(1,))
    s("_np_roll", x34, shift=(4, 1), axis=(1, 0))
    s("_npi_flip", x234, axis=(0, 2))
    for k in (1, 2, 3, 0, -1):
        s("_npi_rot90", x234, k=k, axes=(0, 1))
    s("_npi_rot90", x234, k=1, axes=(2, 1))
    s("_npi_concatenate", x34, f(2, 4), num_args=2, axis=0)
    s("_npi_concatenate", x34, f(2, 4), num_args=2, axis=None)
    s("_npi_stack", x34, f(3, 4), num_args=2, axis=-1)
    s("_npi_hstack _npi_vstack _npi_dstack _npi_column_stack", x34, f(3, 4), num_args=2)
    s("_npi_hstack _npi_vstack _npi_dstack _npi_column_stack", f(3), f(3), num_args=2)
    s("_npi_hstack _npi_vstack _npi_dstack", f(), f(), num_args=2)
    s("_np_atleast_1d _np_atleast_2d _np_atleast_3d", f(), f(3), x34, x234, num_args=4, heads=4)
    s("_np_atleast_1d _np_atleast_2d _np_atleast_3d", f(3), num_args=1)
    s("_npi_hsplit", x34, indices=(0, 1, 3), heads=3)
    s("_npi_hsplit", f(6), indices=(), sections=3, heads=3)
    s("_npi_dsplit", x234, indices=(), axis=2, sections=2, heads=2)
    s("_np_diag", f(3), k=1)
    s("_np_diag", x34, k=-1)
    s("_np_diagflat", x23, k=-1)
    s("_np_diagonal", x234, offset=1, axis1=1, axis2=2)
    for k in (0, 1, -1):
        s("_npi_tril", x34, k=k)
    for mode in ("reflect", "edge", "constant", "symmetric", "maximum", "minimum"):
        s("_npi_pad", x34, mode=mode, pad_width=((1, 2), (0, 1)), constant_value=1.5)
    s("_npi_pad", ints.reshape(1, 5), mode="constant", pad_width=((0, 1), (1, 2)), constant_value=3)
    s("_np_repeat", x23, repeats=2, axis=1)

    # creation
    s("_npi_zeros _npi_ones", shape=(2, 3), dtype="int32")
    s("_npi_zeros _npi_ones", shape=(), dtype="bool")
    s("_npi_full", shape=(2, 3), value=1.5, dtype="float32")
    s("_npi_full_like", x34, fill_value=2.5)
    s("_npi_full_like", ints, fill_value=2.7)
    s("_npi_full_like", ints, fill_value=1, dtype="bool")
    s("_npi_identity", shape=(3, 3))
    s("_npi_eye", N=3, M=4, k=1)
    s("_npi_eye", N=3, dtype="int64")
    s("_npi_arange", start=1, stop=7.5, step=2)
    s("_npi_arange", start=4, dtype="int32")
    s("_npi_logspace", start=0, stop=2, num=5, endpoint=False, base=3)
    s("_npi_linspace", start=0, stop=2, num=5)
    s("_npi_indices", dimensions=(2, 3))
    s("_npi_hanning _npi_hamming _npi_blackman", M=7)

    # indexing
    s("_npi_where", i([[1], [0]]), x34[:2], f(4))
    s("_npi_where", flags, x34, f(3, 1))
    s("_npi_where_lscalar _npi_where_rscalar", flags, x34, scalar=0.5)
    s("_npi_where_lscalar _npi_where_rscalar", ints, ints, scalar=3)
    s("_npi_where_scalar2", x34 > 0, x=1.5, y=-2.5)
    s("_npi_diag_indices_from", f(3, 3))
    s("_npx_constraint_check", np.array([True, True]))
    s("_npi_percentile", x234, a(20, 60), axis=(0, 2), keepdims=True)
    s("_npi_unique", i(3, 1, 2, 1), return_index=True, return_inverse=True, return_counts=True, heads=4)
    s("_npi_unique", a([3, 1], [2, 1], [3, 1]), axis=0)
    s("_npi_unique _npx_nonzero _npi_nonzero", ints)
    s("_npx_nonzero", x23 > 0)
    s("_npi_insert_scalar", x34, f(3), int_ind=-1, axis=1)
    s("_npi_insert_scalar", x34, f(2, 4), int_ind=2, axis=0)
    s("_npi_insert_scalar", x34, f(5), int_ind=3)
    s("_npi_insert_slice", x34, f(3, 2), start=0, stop=4, step=2, axis=1)
    s("_npi_insert_tensor", x34, f(3, 2), i(1, 3, dtype=np.int64), axis=1)
    s("Custom", x34, op_type="resize_fallback", new_shape=(5, 3))
    s("Custom", ints, op_type="resize_fallback", new_shape=2)
    s("Custom", i([1, 3], [5, 0]), op_type="unravel_index_fallback", shape=(2, 3))
    s("Custom", i(1, 3, dtype=np.int64), op_type="unravel_index_fallback", shape=4)

    # linalg
    spd = a([4, 1, 0], [1, 5, 2], [0, 2, 6])
    s("_npi_matmul", f(3, 1, 2, 4), f(5, 4, 3))
    s("_npi_matmul", f(4), f(2, 4, 3))
    s("_np_dot", x34, f(4, 2))
    s("_np_dot", f(4), f(4))
    s("_np_dot", x234, f(4))
    s("_np_dot", x234, f(2, 4, 5))
    s("_np_dot", f(), x34)
    s("_npi_tensordot", x234, f(4, 2, 5), a_axes_summed=(0, 2), b_axes_summed=(1, 0))
    s("_npi_tensordot_int_axes", x234, f(3, 4, 5), axes=2)
    s("_npi_tensordot_int_axes", f(3), f(2, 2), axes=0)
    s("_npi_einsum", x34, f(4, 5), subscripts="ab,bc->ca", optimize=0, num_args=2)
    s("_npi_einsum", f(2, 3, 4), f(2, 4, 5), subscripts="...ij,...jk->...ik", num_args=2)
    s("_npi_einsum", f(3, 3), subscripts="ii->i", num_args=1)
    s("_npi_det _npi_slogdet", np.stack([spd, spd * 2]))
    s("_npi_det", spd)
    s("_npi_cholesky _npi_inv", np.stack([spd, spd * 2]))
    s("_npi_solve", spd, f(3, 2))
    s("_npi_solve", spd, f(3))
    s("_npi_solve", i(4, 1, 1, 3).reshape(2, 2), i(1, 2))
    s("_npi_eigvalsh", i(4, 1, 1, 3).reshape(2, 2))
    s("_npi_eigh", i(4, 1, 1, 3, dtype=np.uint8).reshape(2, 2), heads=2)
    s("_npi_tensorinv", f(4, 2, 2), ind=1)
    s("_npi_tensorsolve", f(4, 2, 2), f(4), a_axes=None)
    s("_npi_tensorsolve", f(2, 2, 4), f(2, 2))
    s("_npi_tensorsolve", f(4, 2, 2), f(2, 2), a_axes=(0,))
    s("_npi_eigvalsh", np.stack([spd, spd * 2]), UPLO="L")
    s("_npi_eigh", np.stack([spd, spd - 3]), UPLO="U", heads=2)
    s("_npi_cholesky _npi_inv _npi_eigvalsh", f(2, 0, 0))
    s("_npi_eigh", f(0, 0), heads=2)
    s("_npi_svd", f(2, 0, 3), heads=3)
    s("_npi_solve", f(0, 0), f(0, 2))
    s("_npi_solve", spd, f(3, 0))
    s("_npi_svd", f(2, 3, 5), heads=3)
    s("_npi_eigvalsh", f(3, 3), UPLO="U")
    s("_npi_pinv_scalar_rcond", x34, rcond=1e-4)
    s("_npi_pinv", x34, np.array(1e-4, np.float32))

    # random
    s("Custom", f(3), spd, op_type="mvn_fallback", size=(4, 2), scatter=True)
    s("Custom", f(2, 3), spd, op_type="mvn_fallback", size=None, scatter=True)
    s("_npi_uniform _npi_uniform_n", low=1.0, high=2.0, size=(3, 4), scatter=True)
    s("_npi_uniform_n", a(1, 2), high=9.0, low=None, size=(3, 4), scatter=True)
    s("_npi_normal _npi_normal_n", loc=1.0, scale=2.0, size=(3, 4), dtype="float64", scatter=True)
    s("_npi_normal", x23, p(3), loc=None, scale=None, scatter=True)
    s("_npi_gumbel _npi_logistic", loc=1.0, scale=2.0, size=(30, 4), scatter=True)
    s("_npi_gamma", shape=0.7, scale=2.0, size=(30, 4), scatter=True)
    s("_npi_exponential _npi_rayleigh", scale=2.0, size=(30, 4), scatter=True)
    s("_npi_weibull _npi_pareto _npi_powerd", a=2.0, size=(30, 4), scatter=True)
    s("_npi_bernoulli", prob=0.4, logit=None, is_logit=False, size=(30, 4), scatter=True)
    s("_npi_choice", a=9, size=(30,), scatter=True)
    s("_npi_choice", a=9, size=(5,), replace=False, scatter=True)
    s("_npi_multinomial", n=20, pvals=(0.2, 0.3, 0.5), size=(4,), scatter=True)
    return found
