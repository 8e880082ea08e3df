"""How a node of each operator is drawn: (operator, inputs, attributes, number of outputs); an input `Held` is a weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.draw import FLOATS, INTS, NUMBERS, Array, Draw

Drawn = tuple[str, list[Any], dict[str, Any], int]
SPECS: list[Callable[[Draw], Drawn]] = []


@dataclass(frozen=True)
class Held:
    array: Array


def spec(weight: int = 1) -> Callable[[Callable[[Draw], Drawn]], Callable[[Draw], Drawn]]:
    def register(function: Callable[[Draw], Drawn]) -> Callable[[Draw], Drawn]:
        SPECS.extend([function] * weight)
        return function

    return register


def ints(*values: int) -> Held:
    return Held(np.array(values, np.int64))


UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish",
    "Identity", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh",
]  # fmt: skip


@spec(6)
def unary(d):
    op = d.pick(UNARY)
    kinds = NUMBERS if op in ("Abs", "Identity", "Neg", "Sign", "Relu") else FLOATS
    return op, [d.some(kinds)], {}, 1


@spec(2)
def parametric(d):
    op, attrs = d.pick((
        ("Elu", {"alpha": 0.7}), ("Celu", {"alpha": 1.3}), ("Selu", {}), ("LeakyRelu", {"alpha": -0.2}), ("Gelu", {}),
        ("HardSigmoid", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.5}), ("Shrink", {"lambd": 0.5, "bias": 0.25}),
        ("Gelu", {"approximate": "tanh"}),
    ))  # fmt: skip
    return op, [d.some((np.float32,))], attrs, 1


@spec(5)
def binary(d):
    op = d.pick(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "PRelu"))
    a = d.some(FLOATS if op in ("Mean", "Sum", "PRelu", "Mod", "Pow") else NUMBERS)
    b = d.array(a.dtype, d.beside(a.shape))
    if a.dtype.kind in "iu":
        b = np.where(b == 0, 3, b).astype(a.dtype) if op == "Div" else b
        b = np.where(b == -1, 2, b).astype(a.dtype)  # the least number over -1 ends ONNX Runtime's process
    if op == "PRelu":
        b = d.array(a.dtype, a.shape[a.ndim - d.whole(0, a.ndim) :])
    return op, [a, b], {"fmod": 1} if op == "Mod" else {}, 1


@spec(2)
def whole_mod(d):
    a = d.some(INTS)
    b = d.array(a.dtype, d.beside(a.shape), edges=False)
    return "Mod", [a, np.where(np.isin(b.astype(int), (0, -1)), 3, b).astype(a.dtype)], {"fmod": d.whole(0, 1)}, 1


@spec(3)
def compared(d):
    op = d.pick(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
    a = d.some(NUMBERS)
    return op, [a, d.array(a.dtype, d.beside(a.shape))], {}, 1


@spec(2)
def logical(d):
    op = d.pick(("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op == "BitShift":
        a = d.some((np.uint8, np.uint32))
        by = np.asarray(d.array(np.uint8, d.beside(a.shape)) % 8).astype(a.dtype)
        return op, [a, by], {"direction": d.pick(("LEFT", "RIGHT"))}, 1
    a = d.some(INTS if op.startswith("Bit") else (np.bool_,))
    return op, [a] if op.endswith("Not") else [a, d.array(a.dtype, d.beside(a.shape))], {}, 1


@spec(2)
def tests(d):
    return d.pick(("IsNaN", "IsInf")), [d.some((np.float32, np.float64))], {}, 1


@spec(2)
def clip(d):
    x = d.some((np.float32, np.float64, np.int64, np.int32))
    low, high = (None if d.chance(0.3) else np.asarray(d.array(x.dtype, ())) for _ in range(2))
    return "Clip", [x, low, high], {}, 1


@spec(2)
def where(d):
    a = d.some(NUMBERS)
    return "Where", [d.array(np.bool_, d.beside(a.shape)), a, d.array(a.dtype, d.beside(a.shape))], {}, 1


KINDS = {
    np.float32: 1, np.uint8: 2, np.int8: 3, np.uint16: 4, np.int16: 5, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10,
    np.float64: 11, np.uint32: 12, np.uint64: 13, ml_dtypes.bfloat16: 16, object: 8, ml_dtypes.float8_e4m3fn: 17,
    ml_dtypes.float8_e5m2: 19,
}  # fmt: skip


@spec(3)
def cast(d):
    x, to = d.some((*NUMBERS, np.bool_, np.uint16, np.uint32)), d.pick(list(KINDS))
    if x.dtype.kind == "f" and np.dtype(to).kind in "iu":  # outside the target's range the standard says nothing
        x = np.asarray(np.clip(np.nan_to_num(x, nan=0, posinf=3, neginf=3), 0, 100), x.dtype)
    if to is object:
        x = np.asarray(np.nan_to_num(x, nan=2, posinf=3, neginf=3)) if x.dtype.kind == "f" else x
    return "Cast", [x], {"to": KINDS[to]}, 1


@spec(4)
def reduction(d):
    op = d.pick(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"))
    kinds = (np.float32, np.float64, np.int32, np.int64) if op in ("Sum", "Max", "Min", "Prod") else (np.float32, np.float64)
    x = d.some(kinds)
    attrs = {"keepdims": d.whole(0, 1), "noop_with_empty_axes": d.whole(0, 1)}
    axes = None if d.chance(0.2) else ints(*d.axes(x.ndim))
    return f"Reduce{op}", [x, axes], attrs, 1


@spec()
def arg(d):
    x = d.some((np.float32, np.float64, np.int32, np.int8), 1, edges=False, empty=False)
    attrs = {"axis": d.axis(x.ndim), "keepdims": d.whole(0, 1), "select_last_index": d.whole(0, 1)}
    return d.pick(("ArgMax", "ArgMin")), [x], attrs, 1


@spec(2)
def softmax(d):
    x = d.some(FLOATS[:4], 1)
    return d.pick(("Softmax", "LogSoftmax", "Hardmax")), [x], {"axis": d.axis(x.ndim)}, 1


@spec()
def cumulated(d):
    x = d.some((np.float32, np.float64, np.int32, np.int64), 1)
    attrs = {"exclusive": d.whole(0, 1), "reverse": d.whole(0, 1)}
    return "CumSum", [x, Held(np.array(d.axis(x.ndim), np.int64))], attrs, 1


@spec(2)
def reshape(d):
    x = d.some(NUMBERS)
    sizes = list(x.shape)
    d.rng.shuffle(sizes)
    if sizes and d.chance(0.5) and x.size:
        sizes[d.whole(0, len(sizes) - 1)] = -1
    if d.chance(0.3):
        sizes = [-1] if x.size else [0]
    return "Reshape", [x, ints(*sizes)], {"allowzero": int(not x.size)}, 1


@spec(2)
def transpose(d):
    x = d.some((*NUMBERS, np.bool_))
    return "Transpose", [x], {"perm": d.rng.permutation(x.ndim).tolist()} if x.ndim else {}, 1


@spec(2)
def rank_changes(d):
    x = d.some(NUMBERS)
    op = d.pick(("Unsqueeze", "Squeeze", "Flatten", "Shape", "Size"))
    if op == "Unsqueeze":
        return op, [x, ints(d.axis(x.ndim + 1))], {}, 1
    if op == "Squeeze":
        ones = [i for i, n in enumerate(x.shape) if n == 1]
        return op, [x, ints(*ones) if ones else None], {}, 1
    if op == "Flatten":
        return op, [x], {"axis": d.whole(-x.ndim, x.ndim)}, 1
    return op, [x], {"start": d.whole(-5, 5), "end": d.whole(-5, 5)} if op == "Shape" else {}, 1


@spec(2)
def concat(d):
    x = d.some(NUMBERS, 1)
    axis = d.axis(x.ndim)
    shape = list(x.shape)
    shape[axis] = d.whole(0, 3)
    return "Concat", [x, d.array(x.dtype, shape), *([x] if d.chance(0.3) else [])], {"axis": axis}, 1


@spec(2)
def split(d):
    x = d.some(NUMBERS, 1)
    axis = d.axis(x.ndim)
    size, parts = x.shape[axis], d.whole(1, 3)
    if d.chance(0.5):
        return "Split", [x], {"axis": axis, "num_outputs": parts}, parts
    cuts = sorted(d.whole(0, size) for _ in range(parts - 1))
    return "Split", [x, ints(*np.diff([0, *cuts, size]).tolist())], {"axis": axis}, parts


@spec(3)
def sliced(d):
    x = d.some(NUMBERS, 1)
    axes = d.axes(x.ndim)
    starts, ends = ([d.pick((d.whole(-6, 6), 2**62, -(2**62))) for _ in axes] for _ in range(2))
    steps = [d.pick((1, 1, 2, -1, -2, 3)) for _ in axes]
    return "Slice", [x, ints(*starts), ints(*ends), ints(*axes), ints(*steps)], {}, 1


@spec(3)
def gathered(d):
    x = d.some(NUMBERS, 1, empty=False)
    axis, op = d.axis(x.ndim), d.pick(("Gather", "GatherElements", "GatherND"))
    size = x.shape[axis]
    if op == "Gather":
        return op, [x, d.rng.integers(-size, size, d.sizes(0, 2))], {"axis": axis}, 1
    if op == "GatherElements":
        shape = [n if i == axis % x.ndim else d.whole(1, n) for i, n in enumerate(x.shape)]
        return op, [x, d.rng.integers(-size, size, shape)], {"axis": axis}, 1
    depth = d.whole(1, x.ndim)
    limits = np.array(x.shape[:depth])
    return op, [x, d.rng.integers(-limits, limits, (*d.sizes(0, 2), depth))], {}, 1


@spec(2)
def scattered(d):
    x = d.some((np.float32, np.int64), 1, empty=False)
    how = d.pick(("none", "add", "mul", "max", "min"))
    if d.chance(0.5):
        axis = d.axis(x.ndim)
        shape = [d.whole(1, n) for n in x.shape]
        at = np.stack([d.rng.permutation(x.shape[axis])[: shape[axis]] for _ in range(int(np.prod(shape)) // shape[axis])], -1)
        at = np.moveaxis(at.reshape(shape[axis], *np.delete(shape, axis)), 0, axis)
        return "ScatterElements", [x, at.astype(np.int64), d.array(x.dtype, shape)], {"axis": axis, "reduction": how}, 1
    rows = d.rng.permutation(x.shape[0])[: d.whole(1, x.shape[0])][:, None].astype(np.int64)
    return "ScatterND", [x, rows, d.array(x.dtype, (len(rows), *x.shape[1:]))], {"reduction": how}, 1


@spec(2)
def spread(d):
    x = d.some(NUMBERS)
    if d.chance(0.5):
        return "Expand", [x, ints(*d.beside(x.shape))], {}, 1
    return "Tile", [x, ints(*(d.whole(0, 3) for _ in x.shape))], {}, 1


@spec(2)
def pad(d):
    x = d.some((np.float32, np.float64, np.int32, np.int64), 1, empty=False)
    mode = d.pick(("constant", "reflect", "edge", "wrap"))
    room = [n - 1 if mode == "reflect" else n if mode == "wrap" else 3 for n in x.shape]
    pads = [d.whole(0, max(0, r)) for r in (*room, *room)]
    if mode == "constant" and d.chance(0.3):
        pads = [-1 if d.chance(0.3) and n > 2 else p for p, n in zip(pads, (*x.shape, *x.shape), strict=True)]
    value = d.array(x.dtype, ()) if mode == "constant" and d.chance(0.5) else None
    return "Pad", [x, ints(*pads), value], {"mode": mode}, 1


@spec()
def ranges(d):
    kind = d.pick((np.float32, np.int64, np.int32))
    start, limit = (np.array(d.whole(-9, 9), kind) for _ in range(2))
    return "Range", [start, limit, np.array(d.pick((1, 2, -1, -3)), kind)], {}, 1


@spec()
def one_hot(d):
    at = d.some((np.int64, np.int32), 0, 3, edges=False)
    return "OneHot", [at, np.array(d.whole(1, 5), np.int64), d.array(np.float32, (2,))], {"axis": d.axis(at.ndim + 1)}, 1


@spec()
def chosen(d):
    x = d.some((np.float32, np.int64), 1, edges=False)
    op = d.pick(("NonZero", "Compress", "TopK", "Unique", "Trilu", "EyeLike", "ReverseSequence"))
    axis = d.axis(x.ndim)
    size = x.shape[axis]
    if op == "Compress":
        return op, [x, d.array(np.bool_, (d.whole(0, size),))], {"axis": axis}, 1
    if op == "TopK":
        # which of equal numbers come first is only said where they are sorted
        return op, [x, ints(d.whole(0, size))], {"axis": axis, "largest": d.whole(0, 1)}, 2
    if op == "Unique":
        return op, [x.reshape(-1)], {"sorted": d.whole(0, 1)}, 4
    if op == "Trilu":
        x = d.some((np.float32, np.int64), 2)
        return op, [x, np.array(d.whole(-3, 3), np.int64)], {"upper": d.whole(0, 1)}, 1
    if op == "EyeLike":
        return op, [d.some((np.float32, np.int64), 2, 2)], {"k": d.whole(-2, 2)}, 1
    if op == "ReverseSequence":
        x = d.some((np.float32, np.int64), 2, empty=False)
        return op, [x, d.rng.integers(1, x.shape[0] + 1, x.shape[1])], {"batch_axis": 1, "time_axis": 0}, 1
    return op, [x], {}, 1


@spec(3)
def products(d):
    op = d.pick(("MatMul", "Gemm", "Einsum", "Det"))
    kind = d.pick((np.float32, np.float64))
    if op == "MatMul":
        a = d.some((kind,), 1, edges=False)
        other = d.pick(((a.shape[-1],), (a.shape[-1], 3), (*a.shape[:-2], a.shape[-1], 2)))
        return op, [a, d.array(kind, other)], {}, 1
    if op == "Gemm":
        a, flip, turn = d.some((kind,), 2, 2), d.whole(0, 1), d.whole(0, 1)
        rows, inner = a.shape[::-1] if flip else a.shape
        c = d.array(kind, d.pick(((), (1,), (3,), (rows, 1), (rows, 3)))) if d.chance(0.6) else None
        attrs = {"transA": flip, "transB": turn, "alpha": d.pick((1.0, 0.5)), "beta": d.pick((1.0, 0.0, 2.0))}
        return op, [a, d.array(kind, (3, inner) if turn else (inner, 3)), c], attrs, 1
    if op == "Det":
        n = d.whole(1, 3)
        return op, [d.array(np.float32, (*d.sizes(0, 1), n, n), edges=False)], {}, 1
    equation, shapes = d.pick((
        ("ij,jk->ik", ((2, 3), (3, 4))), ("ij->ji", ((2, 3),)), ("ii", ((3, 3),)), ("bij,bjk", ((2, 2, 3), (2, 3, 2))),
        ("...ij,...jk->...ik", ((2, 2, 3), (3, 2))), ("i,j->ij", ((2,), (3,))), ("ij->", ((2, 3),)), ("ii->i", ((3, 3),)),
    ))  # fmt: skip
    return op, [d.array(kind, s, edges=False) for s in shapes], {"equation": equation}, 1
