"""Rules compared with the values that coremltools computes for the same operators on constants."""

import numpy as np
import pytest

from tests.runtime.mil.build import ct, fold_with_coremltools, run

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (2, 3, 4)).astype(np.float32)
Y = rng.uniform(-2, 2, (3, 1)).astype(np.float32)
UNIT = rng.uniform(-0.9, 0.9, (2, 3)).astype(np.float32)
POSITIVE = rng.uniform(0.1, 3, (2, 3, 4)).astype(np.float32)
IMAGE = rng.uniform(-1, 1, (2, 4, 4, 6)).astype(np.float32)
INTS = rng.integers(-9, 9, (2, 3)).astype(np.int32)
NONZERO = np.array([[2, -3, 5], [-4, 7, 1]], np.int32)
BOOLS = rng.random((2, 3)) > 0.5
ROWS = rng.random((2, 3)) > 0.5
TIES = np.array([[3, 1, 3, 2], [0, 0, 5, 0]], np.float32)
F = np.float32

CASES = [
    *(
        (op, {"x": X}, {})
        for op in [
            "abs",
            "atan",
            "ceil",
            "cos",
            "cosh",
            "erf",
            "exp",
            "exp2",
            "floor",
            "round",
            "sign",
            "sin",
            "sinh",
            "square",
            "tan",
            "tanh",
        ]
    ),
    *((op, {"x": X}, {}) for op in ["relu", "relu6", "sigmoid", "softplus", "softsign", "softmax", "identity"]),
    *((op, {"x": UNIT}, {}) for op in ("acos", "asin", "atanh")),
    *((op, {"x": POSITIVE}, {}) for op in ("log", "rsqrt", "sqrt", "inverse")),
    *((op, {"x": X, "y": Y}, {}) for op in ["add", "sub", "mul", "real_div", "floor_div", "mod", "maximum", "minimum"]),
    *((op, {"x": X, "y": Y}, {}) for op in ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]),
    *(
        (op, {"x": INTS, "y": NONZERO}, {})
        for op in ["add", "sub", "mul", "floor_div", "mod", "maximum", "minimum", "equal", "less"]
    ),
    *((op, {"x": BOOLS, "y": ROWS}, {}) for op in ("logical_and", "logical_or", "logical_xor")),
    ("logical_not", {"x": BOOLS}, {}),
    ("abs", {"x": INTS}, {}),
    ("sign", {"x": INTS}, {}),
    ("pow", {"x": POSITIVE, "y": Y}, {}),
    ("pow", {"x": np.abs(INTS), "y": np.array([2, 0, 3], np.int32)}, {}),
    *(("gelu", {"x": X}, {"mode": mode}) for mode in ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")),
    *((op, {"x": X}, {"alpha": F(0.3), "beta": F(1.2)}) for op in ["clamped_relu", "clip", "scaled_tanh", "sigmoid_hard"]),
    ("linear_activation", {"x": X}, {"alpha": F(0.3), "beta": F(1.2)}),
    *((op, {"x": X}, {"alpha": F(0.3)}) for op in ["elu", "leaky_relu", "threshold", "thresholded_relu"]),
    ("prelu", {"x": X[..., None]}, {"alpha": np.array([0.1, 0.2, 0.3], F)}),
    ("softplus_parametric", {"x": X}, {"alpha": np.array([1, 2, 3], F), "beta": np.array([0.5, 1, 2], F)}),
    ("softmax", {"x": X}, {"axis": 0}),
    *(("cast", {"x": X}, {"dtype": kind}) for kind in ("int32", "fp16", "bool")),
    ("cast", {"x": INTS}, {"dtype": "fp32"}),
    *(
        (f"reduce_{name}", {"x": POSITIVE}, {"axes": [0, -1], "keep_dims": keep})
        for name in ["l1_norm", "l2_norm", "log_sum", "log_sum_exp", "max", "mean", "min", "prod", "sum", "sum_square"]
        for keep in (True, False)
    ),
    *((f"reduce_{name}", {"x": INTS}, {"axes": [1]}) for name in ["l1_norm", "max", "min", "prod", "sum", "sum_square"]),
    ("reduce_sum", {"x": X}, {}),
    ("reduce_log_sum_exp", {"x": X}, {"axes": [1]}),
    *((op, {"x": X}, {"axis": 1, "keep_dims": keep}) for op in ("reduce_argmax", "reduce_argmin") for keep in (True, False)),
    *(("cumsum", {"x": X}, {"axis": 1, "reverse": reverse}) for reverse in (True, False)),
    ("linear", {"x": X}, {"weight": rng.random((5, 4)).astype(F), "bias": rng.random(5).astype(F)}),
    ("linear", {"x": X}, {"weight": rng.random((5, 4)).astype(F)}),
    ("matmul", {"x": X, "y": rng.random((4, 5)).astype(F)}, {}),
    ("matmul", {"x": X, "y": rng.random((2, 5, 4)).astype(F)}, {"transpose_y": True}),
    ("matmul", {"x": X, "y": rng.random((2, 3, 5)).astype(F)}, {"transpose_x": True}),
    ("l2_norm", {"x": IMAGE}, {}),
    ("layer_norm", {"x": X}, {"axes": [1, 2], "gamma": X[0], "beta": X[1], "epsilon": F(0.01)}),
    ("layer_norm", {"x": X}, {"axes": [-1]}),
    ("band_part", {"x": X}, {"lower": 0, "upper": -1}),
    ("band_part", {"x": X}, {"lower": 1, "upper": 1}),
    *(("pad", {"x": X}, {"pad": [0, 1, 2, 1], "mode": m, "constant_val": F(7)}) for m in ("constant", "reflect", "replicate")),
    ("tile", {"x": X}, {"reps": [1, 2, 3]}),
    ("non_zero", {"x": INTS}, {}),
    ("argsort", {"x": TIES}, {"axis": -1, "ascending": True}),
    ("argsort", {"x": X}, {"axis": 1}),
    *(("topk", {"x": X}, {"k": 2, "axis": axis, "ascending": up}) for axis in (1, -1) for up in (True, False)),
    ("flatten2d", {"x": X}, {"axis": 2}),
    ("flatten2d", {"x": X}, {"axis": -1}),
    ("shape", {"x": X}, {}),
    ("expand_dims", {"x": X}, {"axes": [0, -1]}),
    ("squeeze", {"x": X[:1, :, :1]}, {"axes": [0]}),
    ("squeeze", {"x": X[:1, :, :1]}, {}),
    ("reshape", {"x": X}, {"shape": [4, -1, 2]}),
    ("reshape", {"x": X}, {"shape": [0, -1]}),
    ("reshape", {"x": X}, {"shape": [1, 0, -1, 0]}),
    ("reverse", {"x": X}, {"axes": [0, 2]}),
    ("reverse", {"x": X}, {}),
    ("transpose", {"x": X}, {"perm": [2, 0, -2]}),
    ("slice_by_size", {"x": X}, {"begin": [0, 1, 1], "size": [1, -1, 2]}),
    ("slice_by_index", {"x": X}, {"begin": [0, 0, 3], "end": [2, 3, 0], "stride": [1, 2, -1]}),
    ("slice_by_index", {"x": X}, {"begin": [-1, 0, 1], "end": [2, 3, -1]}),
    (
        "slice_by_index",
        {"x": X},
        {
            "begin": [1, 1, 1],
            "end": [0, 2, 3],
            "begin_mask": [False, True, False],
            "end_mask": [False, False, True],
            "squeeze_mask": [True, False, False],
        },
    ),
    ("slice_update", {"x": X, "update": X[:, :1, :2]}, {"begin": [0, 1, 0], "end": [2, 2, 4], "stride": [1, 1, 2]}),
    ("gather", {"x": X}, {"indices": np.array([[1, 0], [2, 2]], np.int32), "axis": 1}),
    ("gather", {"x": X}, {"indices": np.array([[1, 0], [2, 2]], np.int32), "axis": 2, "batch_dims": 1}),
    ("gather", {"x": X}, {"indices": np.int32(2), "axis": -1}),
    ("gather_along_axis", {"x": X}, {"indices": np.ones((2, 2, 4), np.int32), "axis": 1}),
    (
        "scatter_along_axis",
        {"data": X, "updates": X[:, :2]},
        {"indices": np.broadcast_to(np.array([[2], [0]], np.int32), (2, 2, 4)).copy(), "axis": 1, "mode": "update"},
    ),
    ("select", {"cond": BOOLS, "a": UNIT, "b": UNIT[:1]}, {}),
    ("split", {"x": X}, {"num_splits": 2, "axis": -1}),
    ("split", {"x": X}, {"split_sizes": [1, 2], "axis": 1}),
    ("quantize", {"input": X}, {"scale": F(0.02), "zero_point": np.int8(5), "output_dtype": "int8"}),
    ("quantize", {"input": X}, {"scale": np.array([0.1, 0.02, 0.3], F), "axis": 1, "output_dtype": "int8"}),
]


@pytest.mark.parametrize(("op", "inputs", "parameters"), [pytest.param(*c, id=f"{c[0]}-{i}") for i, c in enumerate(CASES)])
def test_matches_coremltools(op, inputs, parameters):
    got, want = run(op, parameters=parameters, **inputs), fold_with_coremltools(op, parameters=parameters, **inputs)
    for g, w in zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]:
        assert g.shape == w.shape
        # two float32 evaluations of a formula differ by a few units in the last place of its largest term
        np.testing.assert_allclose(g, w, rtol=2e-6, atol=2e-6)
        assert g.dtype.kind == w.dtype.kind


@pytest.mark.parametrize("opset", [ct.target.iOS15, ct.target.iOS16, ct.target.iOS17])
def test_older_opsets(opset):
    np.testing.assert_array_equal(run("topk", opset, {"k": 2}, x=X)[1], np.argsort(-X, -1)[..., :2])


def to_float16(found):
    """Convert all float32 arrays of a case to float16."""
    return {k: v.astype(np.float16) if getattr(v, "dtype", None) == np.float32 else v for k, v in found.items()}


def to_float32(found):
    return {k: v.astype(np.float32) if getattr(v, "dtype", None) == np.float16 else v for k, v in found.items()}


FLOAT16_CASES = [c for c in CASES if any(np.asarray(v).dtype == np.float32 for v in c[1].values()) and c[0] != "cast"]


@pytest.mark.parametrize(
    ("op", "inputs", "parameters"), [pytest.param(*c, id=f"{c[0]}-{i}") for i, c in enumerate(FLOAT16_CASES)]
)
def test_float16_matches_rounded_float32(op, inputs, parameters):
    """Core ML's CPU accumulates in float32; the result is the nearest float16, or its neighbor near a midpoint."""
    inputs, parameters = to_float16(inputs), to_float16(parameters)
    if op == "log":  # its default epsilon, 1e-45, underflows in float16
        parameters |= {"epsilon": np.float16(0)}
    found = run(op, parameters=parameters, **inputs)
    want = run(op, parameters=to_float32(parameters), hub=False, **to_float32(inputs))
    for a, b in zip(*(v if isinstance(v, list) else [v] for v in (found, want)), strict=True):
        if a.dtype != np.float16:
            np.testing.assert_array_equal(a, b)
            continue
        near = b.astype(np.float16)
        assert np.all(np.abs(a.astype(float) - near.astype(float)) <= np.spacing(np.abs(near)).astype(float))
        assert np.mean(a == near) > 0.99
