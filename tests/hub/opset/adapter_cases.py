"""A model for every adapter, with source and target opset and expected results.

The expected results are those of ONNX Runtime for the original, or of `expected` in NumPy if it lacks that version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 8, 7)).astype(np.float32)
BYTES = RNG.integers(0, 255, (1, 2, 6, 6)).astype(np.uint8)
V3 = np.array([1, 2, 3], np.float32)
ROUNDING = 2e-6


@dataclass(frozen=True)
class Case:
    """`text` is the model, `feeds` its inputs (random if missing), `ml` the versions of ai.onnx.ml."""

    name: str
    before: int
    after: int
    text: str
    feeds: dict[str, Any] = field(default_factory=dict)
    expected: Callable[..., Any] | None = None
    rtol: float = 0.0
    ml: tuple[int, int] | None = None


def _one(name, before, after, node, given="float[2,3,4] x", result="float[a,b,c] y", tensors="", **more):
    return Case(name, before, after, f"g ({given}) => ({result}) {f'<{tensors}>' if tensors else ''} {{ {node} }}", **more)


REDUCTIONS = {
    "ReduceL1": lambda x: np.abs(x).sum(1, keepdims=True), "ReduceL2": lambda x: np.sqrt((x * x).sum(1, keepdims=True)),
    "ReduceLogSum": None, "ReduceLogSumExp": None, "ReduceMax": None, "ReduceMean": None, "ReduceMin": None, "ReduceProd": None,
    "ReduceSum": None, "ReduceSumSquare": None,
}  # fmt: skip
POSITIVE = {"x": np.abs(X) + 1}


def _families():
    for name in REDUCTIONS:
        yield _one(f"{name} down", 20, 7, f"y = {name}(x, a)", tensors="int64[1] a = {-2}", feeds=POSITIVE, rtol=ROUNDING)
        yield _one(f"{name} up", 8, 20, f"y = {name}<axes=[1]>(x)", feeds=POSITIVE, rtol=ROUNDING)
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        yield _one(f"{name} down", 20, 7, f"y = {name}<axis=-2>(x)", rtol=ROUNDING)
        yield _one(f"{name} up", 9, 20, f"y = {name}<axis=1>(x)", rtol=ROUNDING)
    for name in ("Add", "Div", "Mul", "Sub", "Pow"):
        function = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract, "Pow": np.power}[name]
        yield _one(f"{name} early", 7, 6, f"y = {name}(x, v)", "float[2,3,4] x, float[3,1] v", feeds={**POSITIVE,
         "v": V3[:, None]},
                   rtol=ROUNDING)  # fmt: skip
        yield _one(f"{name} from an axis", 6, 13, f"y = {name}<broadcast=1, axis=1>(x, v)", "float[2,3,4] x, float[3] v",
                   feeds={**POSITIVE, "v": V3}, expected=lambda x, v, f=function: f(x, v[:, None]), rtol=ROUNDING)  # fmt: skip
    for name in ("And", "Or", "Xor"):
        function = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}[name]
        yield _one(f"{name} early", 7, 6, f"y = {name}(x, v)", "bool[2,3,4] x, bool[3,1] v", "bool[a,b,c] y")
        yield _one(f"{name} from an axis", 6, 13, f"y = {name}<broadcast=1, axis=1>(x, v)", "bool[2,3,4] x, bool[3] v",
                   "bool[a,b,c] y", expected=lambda x, v, f=function: f(x, v[:, None]))  # fmt: skip
    for name in ("Equal", "Greater", "Less"):
        function = {"Equal": np.equal, "Greater": np.greater, "Less": np.less}[name]
        kind = "int32" if name == "Equal" else "float"
        yield _one(f"{name} early", 7, 6, f"y = {name}(x, v)", f"{kind}[2,3,4] x, {kind}[3,1] v", "bool[a,b,c] y")
        yield _one(f"{name} from an axis", 6, 13, f"y = {name}<broadcast=1, axis=1>(x, v)", f"{kind}[2,3,4] x, {kind}[3] v",
                   "bool[a,b,c] y", expected=lambda x, v, f=function: f(x, v[:, None]))  # fmt: skip
    big = np.array([2**53, 2**53 + 1, -(2**62), -(2**62) + 1, 5], np.int64)
    for name in ("Greater", "Less"):
        yield _one(f"{name} of large integers", 13, 8, f"y = {name}(x, z)", "int64[5] x, int64[5] z", "bool[5] y",
                   feeds={"x": big, "z": big[::-1].copy()})  # fmt: skip
    for name in ("Max", "Min"):
        yield _one(f"{name} of integers", 13, 7, f"y = {name}(x, z)", "int32[2,3,4] x, int32[4] z", "int32[a,b,c] y")
        yield _one(f"{name} of sizes unknown", 13, 7, f"y = {name}(x, z)", "float[m,1,k] x, float[k] z", "float[a,b,c] y",
                   feeds={"x": X[:, :1].copy(), "z": X[0, 0]})  # fmt: skip
    for name in ("ArgMax", "ArgMin"):
        yield _one(f"{name} last", 13, 7, f"r = Round(x) y = {name}<axis=-1, select_last_index=1>(r)", result="int64[a,b,c] y")
    for name, feeds in (("Acosh", POSITIVE), ("Asinh", {}), ("Cosh", {}), ("Sinh", {}), ("Sign", {}), ("Erf", {})):
        yield _one(name, 13, 8, f"y = {name}(x)", feeds=feeds, rtol=ROUNDING)
    yield _one("Atanh", 13, 8, "y = Atanh(x)", feeds={"x": np.tanh(X)}, rtol=ROUNDING)
    yield _one("Shape up", 13, 15, "y = Shape(x)", result="int64[3] y")
    for name, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3)):
        yield _layer(name, gates, 22, 13, "layout=1")
        yield _layer(name, gates, 1, 13, "output_sequence=1")
        yield _layer(name, gates, 7, 6, 'direction="forward"')


def _layer(name, gates, before, after, attribute):
    """ONNX Runtime has neither the first versions nor the layout with the batch first."""

    def expected(x, w, r):
        def step(h, c, row):
            sums = row @ w[0].T + h @ r[0].T
            sig = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
            if gates == 1:
                return np.tanh(sums), c
            if gates == 4:
                i, o, f, g = np.split(sums, 4, axis=-1)
                c = sig(f) * c + sig(i) * np.tanh(g)
                return sig(o) * np.tanh(c), c
            own, held = np.split(row @ w[0].T, 3, axis=-1), np.split(r[0], 3, axis=0)
            z, reset = sig(own[0] + h @ held[0].T), sig(own[1] + h @ held[1].T)
            return (1 - z) * np.tanh(own[2] + (reset * h) @ held[2].T) + z * h, c

        x = x if before == 22 else x.transpose(1, 0, 2)
        h, c, rows = np.zeros((x.shape[0], 2)), np.zeros((x.shape[0], 2)), []
        for t in range(x.shape[1]):
            h, c = step(h, c, x[:, t].astype(np.float64))
            rows.append(h)
        y = np.stack(rows, 1)[:, :, None].astype(np.float32)
        return y if before == 22 else y.transpose(1, 2, 0, 3)

    return _one(f"{name} with {attribute}", before, after, f"y = {name}<hidden_size=2, {attribute}>(x, w, r)",
                f"float[2,3,4] x, float[1,{2 * gates},4] w, float[1,{2 * gates},2] r", "float[a,b,c,d] y",
                expected=expected, rtol=ROUNDING)  # fmt: skip


IDS = np.array([[0, -1, 2], [1, 1, -3]], np.int64)
ELEMENTS = [
    _one("Concat up", 3, 13, "y = Concat(x, x)", expected=lambda x: np.concatenate([x, x], 1)),
    _one("Concat down", 13, 7, "y = Concat<axis=-1>(x, x)"),
    _one("Cast up", 5, 13, 'y = Cast<to="INT32">(x)', result="int32[a,b,c] y", expected=lambda x: x.astype(np.int32)),
    _one("Clip up", 6, 13, "y = Clip<min=-0.5>(x)", expected=lambda x: np.maximum(x, -0.5)),
    _one("Clip down", 13, 7, "y = Clip(x, l, h)", tensors="float l = {-0.5}, float h = {1}"),
    _one("Clip at run time", 13, 8, "y = Clip(x, l)", "double[2,3,4] x, double l", "double[2,3,4] y", feeds={"l": np.array(0.1)}),
    _one("Gemm early", 7, 6, "y = Gemm(x, w, b)", "float[2,3] x, float[3,4] w, float[4] b", "float[2,4] y", rtol=ROUNDING),
    _one("PRelu early", 7, 6, "y = PRelu(x, v)", "float[2,3,4] x, float[3,1] v"),
    _one("Cast early", 7, 5, "y = Cast<to=6>(x)", result="int32[a,b,c] y"),
    _one("Tile early", 7, 5, "y = Tile(x, t)", tensors="int64[3] t = {1,2,3}"),
    _one("Reshape early", 7, 4, "y = Reshape(x, s)", tensors="int64[2] s = {3, -1}", result="float[3,8] y"),
    _one("Pad early", 7, 1, 'y = Pad<pads=[0,0,1,0,0,2], value=2.0>(x)'),
    _one("Selu early", 7, 5, "y = Selu(x)", rtol=ROUNDING),
    _one("Dropout early", 7, 6, "y = Dropout(x)"),
    _one("BatchNormalization early", 7, 6, "y = BatchNormalization(x, s, s, s, s)", "float[2,3,4] x, float[3] s", feeds={"s": V3},
         rtol=ROUNDING),
    _one("Upsample early", 7, 6, "y = Upsample<scales=[1.0,1.0,2.0,3.0]>(x)", "float[1,2,2,3] x", "float[1,2,4,9] y"),
    _one("LpPool early", 7, 1, "y = LpPool<kernel_shape=[2,2], p=3>(x)", "float[1,2,4,4] x", "float[1,2,3,3] y", rtol=ROUNDING),
    _one("GlobalLpPool early", 7, 1, "y = GlobalLpPool<p=3>(x)", "float[1,2,4,4] x", "float[1,2,1,1] y", rtol=ROUNDING),
    _one("Gemm up", 6, 13, "y = Gemm<broadcast=1>(x, w, b)", "float[2,3] x, float[3,4] w, float[4] b", "float[2,4] y",
         expected=lambda x, w, b: x @ w + b, rtol=ROUNDING),
    _one("Gemm down", 13, 7, "y = Gemm(x, w)", "float[2,3] x, float[3,4] w", "float[2,4] y", rtol=ROUNDING),
    _one("PRelu up", 6, 13, "y = PRelu(x, v)", "float[2,3,4] x, float[3] v",
         expected=lambda x, v: np.where(x < 0, x * v[:, None], x)),
    _one("Selu up", 1, 13, "y = Selu(x)", rtol=ROUNDING,
         expected=lambda x: np.where(x > 0, 1.0507 * x, 1.0507 * 1.6732 * (np.exp(x) - 1)).astype(np.float32)),
    _one("Reshape up", 4, 13, "y = Reshape<shape=[3,-1]>(x)", result="float[3,8] y", expected=lambda x: x.reshape(3, 8)),
    _one("Reshape down", 20, 13, "y = Reshape<allowzero=1>(x, s)", "float[k,m,n] x, int64[3] s",
         feeds={"x": np.zeros((0, 3, 4), np.float32), "s": np.array([3, 4, 0])}),
    _one("Tile up", 5, 13, "y = Tile(x, t, a)", tensors="float[1] t = {2}, float[1] a = {1}",
         expected=lambda x: np.tile(x, (1, 2, 1))),
    _one("Split first", 1, 13, "a, b = Split<axis=2>(x, s)", "float[2,3,4] x", "float[2,3,1] a, float[2,3,3] b",
         "float[2] s = {1,3}", expected=lambda x: (x[..., :1], x[..., 1:])),
    _one("Split up", 11, 20, "a, b = Split<axis=2>(x)", result="float[2,3,2] a, float[2,3,2] b"),
    _one("Split down", 20, 7, "a, b = Split<axis=-1, num_outputs=2>(x)", result="float[2,3,2] a, float[2,3,2] b"),
    _one("Split at run time", 20, 9, "a, b = Split<axis=-1>(x, s)", "float[2,3,n] x, int64[2] s",
         "float[2,3,m] a, float[2,3,k] b",
         feeds={"x": X, "s": np.array([3, 1])}),
    _one("Pad first", 1, 13, "y = Pad<paddings=[0,0,1,0,0,0], value=2.0>(x)",
         expected=lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0)), constant_values=2)),
    _one("Pad up", 10, 20, "y = Pad<pads=[0,0,1,0,0,2], value=2.0>(x)"),
    _one("Pad axes", 20, 7, "y = Pad(x, p, v, a)", tensors="int64[2] p = {1,2}, float v = {9}, int64[1] a = {-1}"),
    _one("Pad wrap at run time", 20, 9, 'y = Pad<mode="wrap">(x, p)', "float[k,m,n] x, int64[6] p",
         feeds={"x": X, "p": np.array([0, 1, 5, 1, 0, 2])}),
    _one("Shape part", 20, 13, "y = Shape<start=-2>(x)", result="int64[2] y"),
    _one("Slice up", 9, 20, "y = Slice<starts=[1], ends=[3], axes=[2]>(x)"),
    _one("Slice down", 20, 7, "y = Slice(x, s, e, a, t)", "float[2,3,n] x, int64[1] s, int64[1] e", "float[2,3,m] y",
         "int64[1] a = {2}, int64[1] t = {-2}", feeds={"x": X, "s": np.array([-1]), "e": np.array([-9])}),
    _one("Squeeze", 8, 20, "s = Unsqueeze<axes=[1]>(x)  y = Squeeze<axes=[1]>(s)"),
    _one("Squeeze down", 20, 7, "s = Unsqueeze(x, a)  y = Squeeze(s, a)", tensors="int64[1] a = {-1}"),
    _one("Expand down", 13, 7, "y = Expand(x, s)", "float[2,3,1] x, int64[n] s", "float[p,q,r,t] y",
         feeds={"x": X[..., :1].copy(), "s": np.array([2, 1, 3, 4])}),
    _one("ConstantOfShape down", 13, 8, "y = ConstantOfShape<value = float[1] {2}>(s)", "int64[3] s",
         feeds={"s": np.array([2, 3, 4])}),
    _one("DepthToSpace down", 13, 7, 'y = DepthToSpace<blocksize=2, mode="CRD">(x)', "float[1,8,2,n] x", "float[1,2,4,m] y",
         feeds={"x": RNG.standard_normal((1, 8, 2, 3)).astype(np.float32)}),
    _one("SpaceToDepth down", 28, 26, 'y = SpaceToDepth<blocksize=2, mode="CRD">(x)', "float[1,2,4,6] x", "float[1,8,2,3] y",
         expected=lambda x: x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3)),
    _one("Flatten down", 13, 7, "y = Flatten<axis=-1>(x)", result="float[6,4] y"),
    _one("TopK up", 9, 20, "y, i = TopK<k=2>(x)", result="float[2,3,2] y, int64[2,3,2] i"),
    _one("TopK down", 20, 7, "y, i = TopK<largest=0>(x, k)", "int64[2,9] x", "int64[2,3] y, int64[2,3] i", "int64[1] k = {3}",
         feeds={"x": np.array([[1 << 62, -(1 << 63), 3, 3, -1, 0, (1 << 62) + 1, 1 << 40, 5]] * 2, np.int64)}),
    _one("Scatter up", 9, 20, "y = Scatter<axis=2>(x, i, u)", "float[2,3,4] x, int64[2,3,1] i, float[2,3,1] u",
         feeds={"i": np.full((2, 3, 1), 2)}),
    _one("ScatterElements down", 20, 7, 'y = ScatterElements<axis=-1, reduction="max">(x, i, u)',
         "float[2,3,n] x, int64[2,3,m] i, float[2,3,m] u", feeds={"x": X, "i": np.full((2, 3, 2), -2), "u": X[..., :2].copy()}),
    _one("ScatterElements adds", 20, 13, 'y = ScatterElements<axis=1, reduction="add">(x, i, u)',
         "float[2,3,4] x, int64[2,2,4] i, float[2,2,4] u", feeds={"i": np.ones((2, 2, 4), np.int64)}, rtol=ROUNDING),
    _one("ScatterND down", 20, 7, 'y = ScatterND<reduction="mul">(x, i, u)', "float[k,m,n] x, int64[3,2] i, float[3,n] u",
         feeds={"x": X, "i": np.array([[0, 1], [0, 1], [-1, 2]]), "u": X[0]}, rtol=ROUNDING),
    _one("ScatterND replaces", 13, 9, "y = ScatterND(x, i, u)", "float[2,3,4] x, int64[1,2] i, float[1,4] u",
         feeds={"i": np.array([[1, -1]])}),
    _one("ScatterND max", 20, 13, 'y = ScatterND<reduction="max">(x, i, u)', "float[2,3,4] x, int64[2,1] i, float[2,3,4] u",
         feeds={"i": np.array([[1], [1]])}),
    _one("Gather down", 13, 7, "y = Gather<axis=-1>(x, i)", tensors="int64[2] i = {-1, 0}"),
    _one("GatherElements down", 13, 7, "y = GatherElements<axis=-1>(x, i)", "float[k,m,n] x, int64[2,3,2] i",
         feeds={"x": X, "i": RNG.integers(-4, 4, (2, 3, 2))}),
    _one("GatherND down", 13, 7, "y = GatherND<batch_dims=1>(x, i)", "float[k,m,n] x, int64[2,2,1] i",
         feeds={"x": X, "i": np.array([[[0], [-1]], [[2], [1]]])}),
    _one("GatherND plain", 11, 9, "y = GatherND(x, i)", "float[2,3,4] x, int64[2,2] i", "float[2,4] y",
         feeds={"i": np.array([[0, -1], [1, 2]])}),
    _one("OneHot down", 13, 7, "y = OneHot<axis=1>(i, d, v)", "int64[2,3] i, int64 d, float[2] v",
         feeds={"i": IDS, "d": np.array(4)}),
    _one("EyeLike down", 13, 7, "y = EyeLike<k=-1, dtype=11>(x)", "float[m,n] x", "double[a,b] y", feeds={"x": X[0]}),
    _one("ReverseSequence down", 13, 7, "y = ReverseSequence(x, l)", "float[k,m,n] x, int64[m] l",
         feeds={"x": X, "l": np.array([1, 2, 2])}),
    _one("Trilu down", 20, 11, "y = Trilu(x, k)", tensors="int64 k = {1}"),
    _one("Where down", 13, 7, "y = Where(c, x, z)", "bool[3,1] c, float[2,3,n] x, float[n] z",
         feeds={"c": np.array([[True], [False], [True]]), "x": X, "z": X[0, 0]}),
    _one("Identity of a sequence", 20, 11, "s = SequenceConstruct(x, x)  t = Identity(s)  y = ConcatFromSequence<axis=0>(t)"),
    _one("Identity of an optional's element", 18, 15, "o = Optional(x)  e = OptionalGetElement(o)  y = Identity(e)"),
    _one("OptionalHasElement down", 20, 17, "h = OptionalHasElement(x)  n = OptionalHasElement()", result="bool h, bool n"),
    _one("OptionalGetElement down", 20, 17, "y = OptionalGetElement(x)"),
    _one("Constant down", 13, 8, "c = Constant<value_floats=[1.0,2.0,3.0,4.0]>()  y = Add(x, c)"),
    _one("Range down", 20, 9, "r = Range(a, b, c)  y = Mul(r, r)", "int64 a, int64 b, int64 c", "int64[n] y",
         feeds={"a": np.array(7), "b": np.array(-4), "c": np.array(-3)}),
    _one("Range in half", 28, 26, "r = Range(a, b, c)  y = Cast<to=1>(r)", "float16 a, float16 b, float16 c", "float[n] y",
         feeds={k: np.array(v, np.float16) for k, v in (("a", 0), ("b", 2), ("c", 0.5))},
         expected=lambda a, b, c: np.arange(0, 2, 0.5, dtype=np.float32)),
    _one("CastLike down", 20, 13, "y = CastLike(x, t)", result="double[a,b,c] y", tensors="double t = {1}"),
    _one("Erf up", 9, 20, "y = Erf(x)", rtol=ROUNDING),
    _one("Mod of floats", 13, 9, "y = Mod<fmod=1>(x, z)", "float[8] x, float[8] z", "float[8] y",
         feeds={"x": np.array([7.5, -7.5, 3e38, 1e-40, -0.0, 1, np.inf, 5], np.float32),
                "z": np.array([2, 2, 1e-38, 7e-45, 3, np.inf, 2, 0], np.float32)}),
    _one("Mod of doubles", 13, 9, "y = Mod<fmod=1>(x, z)", "double[4] x, double[4] z", "double[4] y",
         feeds={"x": np.array([1e300, -7.5, 1e-310, 9.0]), "z": np.array([3e-300, 0.1, 7e-320, 4.0])}),
    _one("Mod of integers", 13, 9, "y = Mod(x, z)", "int64[4] x, int64[4] z", "int64[4] y",
         feeds={"x": np.array([7, -7, 7, -7]), "z": np.array([3, 3, -3, -3])}),
    _one("Pow of integers", 13, 9, "y = Pow(x, z)", "int64[5] x, int64[5] z", "int64[5] y",
         feeds={"x": np.array([3, -1, 2, 10, 0]), "z": np.array([39, -3, 0, 18, 5])},
         expected=lambda x, z: np.array([3**39, -1, 1, 10**18, 0], np.int64)),
    _one("BitShift signed", 28, 9, 'y = BitShift<direction="RIGHT">(x, z)', "int8[4] x, int8[4] z", "int8[4] y",
         feeds={"x": np.array([-128, 127, -1, 5], np.int8), "z": np.array([1, 3, 7, 0], np.int8)}, expected=lambda x, z: x >> z),
    _one("BitShift down", 13, 9, 'y = BitShift<direction="LEFT">(x, z)', "uint8[4] x, uint8[4] z", "uint8[4] y",
         feeds={"x": np.array([1, 3, 128, 5], np.uint8), "z": np.array([1, 3, 1, 0], np.uint8)}),
    _one("IsInf down", 13, 9, "y = IsInf<detect_negative=0>(x)", "float[4] x", "bool[4] y",
         feeds={"x": np.array([np.inf, -np.inf, np.nan, 1], np.float32)}),
    _one("IsNaN down", 13, 8, "y = IsNaN(x)", "float[4] x", "bool[4] y",
         feeds={"x": np.array([np.inf, -np.inf, np.nan, 1], np.float32)}),
    _one("Round down", 13, 9, "y = Round(x)", "float[6] x", "float[6] y",
         feeds={"x": np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4], np.float32)}),
    _one("CumSum down", 13, 9, "y = CumSum<exclusive=1, reverse=1>(x, a)", tensors="int64 a = {-1}", rtol=ROUNDING),
    _one("Equal of floats", 13, 9, "y = Equal(x, z)", "float[4] x, float[4] z", "bool[4] y",
         feeds={"x": np.array([np.nan, 1, 2, -0.0], np.float32), "z": np.array([np.nan, 1, 3, 0], np.float32)}),
    _one("Equal of strings", 19, 11, "y = Equal(x, z)", "string[2,2] x, string[2] z", "bool[2,2] y",
         feeds={"x": np.array([["a", "b"], ["", "b"]], object), "z": np.array(["", "b"], object)}),
    _one("Sum down", 13, 7, "y = Sum(x, z, x)", "float[2,3,4] x, float[4] z", rtol=ROUNDING),
    _one("Mean down", 13, 7, "y = Mean(x, z, x)", "float[2,3,4] x, float[4] z", rtol=ROUNDING),
    _one("ReduceMax of truths", 20, 7, "y = ReduceMax(x, a)", "bool[0,3] x", "bool[1,3] y", "int64[1] a = {0}",
         feeds={"x": np.zeros((0, 3), bool)}, expected=lambda x: np.zeros((1, 3), bool)),
    _one("ReduceMin of truths", 20, 7, "y = ReduceMin(x, a)", "bool[2,3] x", "bool[1,3] y", "int64[1] a = {0}",
         expected=lambda x: x.min(0, keepdims=True)),
    _one("Scan up", 8, 20, """f, y = Scan<num_scan_inputs=1, directions=[1],
         body = b (float[3] a, float[3] e) => (float[3] n, float[3] o)
         { n = Add(a, e)  o = Mul(n, e) }>( , s, x)""", "float[2,3] s, float[2,4,3] x", "float[2,3] f, float[2,4,3] y",
         rtol=1e-5, expected=lambda s, x: (s + x.sum(1), (s[:, None] + np.cumsum(x[:, ::-1], 1)) * x[:, ::-1])),
    _one("Scan down", 20, 7, """f, y = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
         scan_output_axes=[-1], body = b (float[3] a, float[3] e) => (float[3] n, float[3] o)
         { n = Add(a, e)  o = Mul(n, e) }>(s, x)""",
         "float[3] s, float[3,6] x", "float[3] f, float[3,6] y"),
]  # fmt: skip
IMAGES = [
    _one("BatchNormalization up", 6, 20, "y = BatchNormalization<epsilon=0.5, is_test=1>(x, s, s, s, s)",
         "float[2,3,4] x, float[3] s",
         feeds={"s": V3}, rtol=ROUNDING,
         expected=lambda x, s: (x - s[:, None]) / np.sqrt(s[:, None] + 0.5) * s[:, None] + s[:, None]),
    _one("BatchNormalization by element", 7, 20, "y = BatchNormalization<epsilon=0.5, spatial=0>(x, s, s, s, s)",
         "float[2,3,4] x, float[3,4] s", feeds={"s": np.full((3, 4), 2, np.float32)}, rtol=ROUNDING,
         expected=lambda x, s: (x - s) / np.sqrt(s + 0.5) * s + s),
    _one("BatchNormalization trained", 15, 7, "y, m, v = BatchNormalization<training_mode=1, momentum=0.7>(x, s, s, s, s)",
         "float[2,3,4] x, float[3] s", "float[2,3,4] y, float[3] m, float[3] v", feeds={"s": V3}, rtol=1e-5),
    Case("If down", 20, 7, "g (bool c, float[2] x) => (float[2] y) { y = If<then_branch = a () => (float[2] p) { p = Neg(x) }, "
         "else_branch = b () => (float[2] q) { q = Abs(x) }>(c) }", feeds={"c": np.array(True)}),
    Case("MeanVarianceNormalization up", 9, 13,
         "g (float[1,2,8,7] x) => (float[1,2,8,7] y) { y = MeanVarianceNormalization(x) }", rtol=ROUNDING),
    _one("Dropout up", 6, 20, "y = Dropout<ratio=0.3, is_test=1>(x)", expected=lambda x: x),
    # the older documentation leaves the mask unfilled outside of training; the newer one drops nothing there
    _one("Dropout mask up", 7, 13, "y, m = Dropout(x)", result="float[2,3,4] y, float[2,3,4] m",
         expected=lambda x: (x, np.ones_like(x))),
    _one("Dropout down", 20, 7, "y, m = Dropout(x, r)", result="float[2,3,4] y, bool[2,3,4] m", tensors="float r = {0.5}"),
    _one("GroupNormalization up", 20, 26, "y = GroupNormalization<num_groups=2>(x, s, s)", "float[2,4,3] x, float[2] s",
         rtol=1e-5,
         expected=lambda x, s: _group(x, s)),
    _one("Upsample by factors", 1, 20, "y = Upsample<height_scale=2.0, width_scale=1.0>(x)", "float[1,2,2,3] x",
         "float[1,2,4,3] y",
         expected=lambda x: np.repeat(x, 2, 2)),
    _one("Upsample up", 7, 20, "y = Upsample<scales=[1.0,1.0,2.0,3.0]>(x)", "float[1,2,2,3] x", "float[1,2,4,9] y"),
    _one("Upsample linear", 9, 20, 'y = Upsample<mode="linear">(x, s)', "float[1,2,2,3] x", "float[1,2,4,6] y",
         "float[4] s = {1,1,2,2}"),
    _one("Resize up", 10, 20, "y = Resize(x, s)", "float[1,1,4,4] x", "float[1,1,3,6] y", "float[4] s = {1,1,0.75,1.5}"),
    _one("Resize sizes up", 11, 20, 'y = Resize<mode="cubic">(x, e, e, z)', "float[1,1,4,4] x", "float[1,1,8,8] y",
         "float[0] e = {}, int64[4] z = {1,1,8,8}"),
    _one("Resize down", 20, 7, "y = Resize<axes=[2,3]>(x, , s)", "float[1,1,3,4] x", "float[1,1,6,8] y", "float[2] s = {2,2}"),
    _one("GridSample up", 16, 20, 'y = GridSample<mode="bicubic">(x, g)', "float[1,1,4,4] x, float[1,2,2,2] g",
         "float[1,1,2,2] y"),
    _one("GridSample down", 20, 16, 'y = GridSample<mode="cubic">(x, g)', "float[1,1,4,4] x, float[1,2,2,2] g",
         "float[1,1,2,2] y"),
    _one("RoiAlign up", 10, 21, "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, b)", "float[1,1,8,8] x",
         "float[1,1,2,2] y", "float[1,4] r = {1,1,5,6}, int64[1] b = {0}"),
    _one("RoiAlign down", 16, 11, "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, b)", "float[1,1,8,8] x",
         "float[1,1,2,2] y", "float[1,4] r = {1,1,5,6}, int64[1] b = {0}", rtol=ROUNDING),
    _one("LpPool first", 1, 13, "y = LpPool<kernel_shape=[2,2], strides=[2,2], p=1.0>(x)", "float[1,2,4,4] x", "float[1,2,2,2] y",
         expected=lambda x: np.abs(x).reshape(1, 2, 2, 2, 2, 2).sum((3, 5)), rtol=ROUNDING),
    _one("GlobalLpPool first", 1, 13, "y = GlobalLpPool<p=1.0>(x)", "float[1,2,4,4] x", "float[1,2,1,1] y",
         expected=lambda x: np.abs(x).sum((2, 3), keepdims=True), rtol=ROUNDING),
    _one("LpPool down", 22, 13, "y = LpPool<kernel_shape=[3,2], dilations=[2,2], p=3>(x)", "float[1,2,8,7] x", "float[1,2,a,b] y",
         rtol=1e-5, expected=lambda x: _lp(x)),
    _one("MaxPool down", 22, 7, "y, i = MaxPool<kernel_shape=[2,2], dilations=[2,2], pads=[1,1,0,1], strides=[1,2]>(x)",
         "float[1,2,8,7] x", "float[1,2,a,b] y, int64[1,2,a,b] i"),
    _one("MaxPool ceil", 22, 7, "y = MaxPool<kernel_shape=[3,3], strides=[3,2], ceil_mode=1>(x)", "float[1,2,8,7] x",
         "float[1,2,a,b] y"),
    _one("AveragePool down", 22, 7, "y = AveragePool<kernel_shape=[2,2], dilations=[2,1], pads=[1,0,1,0]>(x)", "float[1,2,8,7] x",
         "float[1,2,a,b] y", rtol=ROUNDING),
    _one("AveragePool ceil", 13, 7, "y = AveragePool<kernel_shape=[3,3], strides=[3,2], ceil_mode=1>(x)", "float[1,2,8,7] x",
         "float[1,2,a,b] y", rtol=ROUNDING),
    _one("RoiAlign half a pixel", 16, 11, """y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2,
         coordinate_transformation_mode="output_half_pixel">(x, r, b)""", "float[1,1,8,8] x", "float[1,1,2,2] y",
         "float[1,4] r = {1,1,5,6}, int64[1] b = {0}"),
    _one("DFT up", 17, 26, "y = DFT<axis=1>(x)", "float[1,8,3,2] x", "float[1,8,3,2] y"),
    _one("DFT down", 20, 17, "y = DFT<onesided=1>(x, , a)", "float[1,8,3,1] x, int64 a", "float[1,m,n,2] y",
         feeds={"a": np.array(1)}, rtol=1e-5),
]  # fmt: skip
QUANTIZED = [
    _one("QuantizeLinear down", 23, 9, "y = QuantizeLinear(x, s, z)", result="uint8[2,3,4] y",
         tensors="float[3] s = {0.1, 0.2, 0.3}, uint8[3] z = {100, 0, 7}"),
    _one("QuantizeLinear of a tensor", 13, 9, "y = QuantizeLinear(x, s, z)", result="uint8[2,3,4] y",
         tensors="float s = {0.1}, uint8 z = {100}"),
    _one("DequantizeLinear of a tensor", 13, 9, "y = DequantizeLinear(x, s, z)", "uint8[2,3,4] x", "float[2,3,4] y",
         "float s = {0.1}, uint8 z = {100}"),
    _one("QuantizeLinear by blocks", 23, 10, "y = QuantizeLinear<axis=2, block_size=2>(x, s)", result="uint8[2,3,4] y",
         tensors="float[2,3,2] s = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.1,0.2,0.3}"),
    _one("DequantizeLinear down", 23, 9, "y = DequantizeLinear(x, s, z)", "uint8[2,3,4] x", "float[2,3,4] y",
         "float[3] s = {0.1, 0.2, 0.3}, uint8[3] z = {100, 0, 7}", feeds={"x": (X * 50 + 100).astype(np.uint8)}),
    _one("DequantizeLinear of words", 23, 13, "y = DequantizeLinear(x, s)", "int16[2,3,4] x", "float[2,3,4] y",
         "float s = {0.1}"),
    _one("MatMulInteger down", 13, 9, "y = MatMulInteger(x, w, z, p)", "uint8[2,3] x, int8[3,4] w", "int32[2,4] y",
         "uint8 z = {3}, int8[4] p = {1,2,3,4}"),
    _one("ConvInteger down", 13, 9, "y = ConvInteger(x, w, z)", "uint8[1,2,6,6] x, uint8[3,2,2,2] w", "int32[1,3,5,5] y",
         "uint8 z = {7}",
         feeds={"x": BYTES}),
]  # fmt: skip


def _group(x, s):
    rows = x.reshape(2, 2, 6)
    y = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    each = np.repeat(s, 2)[:, None]
    return y.reshape(x.shape) * each + each


def _lp(x):
    rows, columns = np.arange(4)[:, None] + np.array([0, 2, 4]), np.arange(5)[:, None] + np.array([0, 2])
    seen = np.abs(x)[:, :, rows[:, None, :, None], columns[None, :, None, :]] ** 3
    return seen.sum((4, 5)) ** (1 / 3)


NODES = """nodes_treeids=[0,0,0,1,1,1], nodes_nodeids=[0,1,2,0,1,2], nodes_featureids=[0,0,0,1,0,0],
    nodes_modes=["BRANCH_LEQ","LEAF","LEAF","BRANCH_GT","LEAF","LEAF"], nodes_truenodeids=[1,0,0,1,0,0],
    nodes_falsenodeids=[2,0,0,2,0,0]"""
LEAVES = "_treeids=[0,0,1,1,1], {0}_nodeids=[1,2,1,2,2], {0}_ids=[0,1,0,0,2], {0}_weights=[0.5,-1.5,0.25,2.0,1.0]"
FEATURES = {"x": RNG.standard_normal((9, 3)).astype(np.float32)}


def _ml(name, versions, node, given="float[9,3] x", result="float[9,3] y", **more):
    return _one(name, 15, 15, node, given, result, ml=versions, **more)


TREES = [
    _ml("LabelEncoder up", (1, 4), 'y = ai.onnx.ml.LabelEncoder<classes_strings=["a","b"], default_int64=7>(x)',
         "string[3] x", "int64[3] y",
        feeds={"x": np.array(["b", "c", "a"], object)}, expected=lambda x: np.array([1, 7, 0])),
    _ml("LabelEncoder down", (4, 1), """y = ai.onnx.ml.LabelEncoder<keys_tensor = int64[2] {1, 0}, values_strings=["b","a"],
        default_string="?">(x)""", "int64[3] x", "string[3] y", feeds={"x": np.array([1, 5, 0])},
        expected=lambda x: np.array(["b", "?", "a"], object)),
    _ml("TreeEnsembleRegressor", (3, 5), f"""y = ai.onnx.ml.TreeEnsembleRegressor<{NODES},
        nodes_values=[0.1,0.0,0.0,-0.2,0.0,0.0], n_targets=3, base_values=[0.5,0.0,0.0], target{LEAVES.format("target")}>(x)""",
        feeds=FEATURES, rtol=ROUNDING),
    _ml("TreeEnsembleRegressor down", (3, 1), f"""y = ai.onnx.ml.TreeEnsembleRegressor<{NODES}, n_targets=3,
        nodes_values_as_tensor = float[6] {{0.1,0,0,-0.2,0,0}}, target{LEAVES.format("target")}>(x)""", feeds=FEATURES),
    _ml("TreeEnsembleClassifier", (3, 5), f"""y, z = ai.onnx.ml.TreeEnsembleClassifier<{NODES}, post_transform="SOFTMAX",
        nodes_values=[0.1,0.0,0.0,-0.2,0.0,0.0], classlabels_int64s=[4,6,9], class{LEAVES.format("class")}>(x)""",
        result="int64[9] y, float[9,3] z", feeds=FEATURES, rtol=ROUNDING),
    _ml("TreeEnsembleClassifier down", (3, 1), f"""y, z = ai.onnx.ml.TreeEnsembleClassifier<{NODES},
        nodes_values_as_tensor = float[6] {{0.1,0,0,-0.2,0,0}}, classlabels_int64s=[4,6,9], class{LEAVES.format("class")}>(x)""",
        result="int64[9] y, float[9,3] z", feeds=FEATURES),
    _ml("TreeEnsemble down", (5, 3), """y = ai.onnx.ml.TreeEnsemble<tree_roots=[0], n_targets=2, nodes_featureids=[1,0],
        nodes_modes = uint8[2] {0, 6}, nodes_splits = float[2] {0.2, 0}, membership_values = float[2] {1, 3},
        nodes_truenodeids=[1,0], nodes_trueleafs=[0,1], nodes_falsenodeids=[2,1], nodes_falseleafs=[1,1],
        leaf_targetids=[0,1,0], leaf_weights = float[3] {1.5, 2.5, -1}>(x)""", "float[4,2] x", "float[4,2] y",
        feeds={"x": np.array([[1, 0], [3, 0], [2, 0], [1, 1]], np.float32)},
        expected=lambda x: np.array([[1.5, 0], [1.5, 0], [0, 2.5], [-1, 0]], np.float32)),
]  # fmt: skip

CASES = {c.name: c for c in (*_families(), *ELEMENTS, *IMAGES, *QUANTIZED, *TREES)}
