"""Generators of random nodes: (operator, inputs, attributes, number of outputs). A `Constant` input becomes an initializer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.random_values import FLOATS, INTS, NUMBERS, Array, RandomValues

Node = tuple[str, list[Any], dict[str, Any], int]
GENERATORS: list[Callable[[RandomValues], Node]] = []


@dataclass(frozen=True)
class Constant:
    array: Array


def generator(weight: int = 1) -> Callable[[Callable[[RandomValues], Node]], Callable[[RandomValues], Node]]:
    def register(function: Callable[[RandomValues], Node]) -> Callable[[RandomValues], Node]:
        GENERATORS.extend([function] * weight)
        return function

    return register


def ints(*values: int) -> Constant:
    return Constant(np.array(values, np.int64))


UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish",
    "Identity", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Tan", "Tanh",
]  # fmt: skip


@generator(6)
def unary(d):
    op = d.choice(UNARY)
    kinds = NUMBERS if op in ("Abs", "Identity", "Neg", "Sign", "Relu") else FLOATS
    return op, [d.operand(kinds)], {}, 1


@generator(2)
def parametric(d):
    op, attrs = d.choice((
        ("Elu", {"alpha": 0.7}), ("Celu", {"alpha": 1.3}), ("Selu", {}), ("LeakyRelu", {"alpha": -0.2}), ("Gelu", {}),
        ("HardSigmoid", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.5}), ("Shrink", {"lambd": 0.5, "bias": 0.25}),
        ("Gelu", {"approximate": "tanh"}),
    ))  # fmt: skip
    return op, [d.operand((np.float32,))], attrs, 1


@generator(5)
def binary(d):
    op = d.choice(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "PRelu"))
    a = d.operand(FLOATS if op in ("Mean", "Sum", "PRelu", "Mod", "Pow") else NUMBERS)
    b = d.array(a.dtype, d.broadcastable(a.shape))
    if a.dtype.kind in "iu":
        b = np.where(b == 0, 3, b).astype(a.dtype) if op == "Div" else b
        b = np.where(b == -1, 2, b).astype(a.dtype)  # INT_MIN / -1 crashes ONNX Runtime
    if op == "PRelu":
        b = d.array(a.dtype, a.shape[a.ndim - d.integer(0, a.ndim) :])
    return op, [a, b], {"fmod": 1} if op == "Mod" else {}, 1


@generator(2)
def whole_mod(d):
    a = d.operand(INTS)
    b = d.array(a.dtype, d.broadcastable(a.shape), edges=False)
    return "Mod", [a, np.where(np.isin(b.astype(int), (0, -1)), 3, b).astype(a.dtype)], {"fmod": d.integer(0, 1)}, 1


@generator(3)
def compared(d):
    op = d.choice(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
    a = d.operand(NUMBERS)
    return op, [a, d.array(a.dtype, d.broadcastable(a.shape))], {}, 1


@generator(2)
def logical(d):
    op = d.choice(("And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if op == "BitShift":
        a = d.operand((np.uint8, np.uint32))
        by = np.asarray(d.array(np.uint8, d.broadcastable(a.shape)) % 8).astype(a.dtype)
        return op, [a, by], {"direction": d.choice(("LEFT", "RIGHT"))}, 1
    a = d.operand(INTS if op.startswith("Bit") else (np.bool_,))
    return op, [a] if op.endswith("Not") else [a, d.array(a.dtype, d.broadcastable(a.shape))], {}, 1


@generator(2)
def tests(d):
    return d.choice(("IsNaN", "IsInf")), [d.operand((np.float32, np.float64))], {}, 1


@generator(2)
def clip(d):
    x = d.operand((np.float32, np.float64, np.int64, np.int32))
    low, high = (None if d.coin(0.3) else np.asarray(d.array(x.dtype, ())) for _ in range(2))
    return "Clip", [x, low, high], {}, 1


@generator(2)
def where(d):
    a = d.operand(NUMBERS)
    return "Where", [d.array(np.bool_, d.broadcastable(a.shape)), a, d.array(a.dtype, d.broadcastable(a.shape))], {}, 1


KINDS = {
    np.float32: 1, np.uint8: 2, np.int8: 3, np.uint16: 4, np.int16: 5, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10,
    np.float64: 11, np.uint32: 12, np.uint64: 13, ml_dtypes.bfloat16: 16, object: 8, ml_dtypes.float8_e4m3fn: 17,
    ml_dtypes.float8_e5m2: 19,
}  # fmt: skip


@generator(3)
def cast(d):
    x, to = d.operand((*NUMBERS, np.bool_, np.uint16, np.uint32)), d.choice(list(KINDS))
    if x.dtype.kind == "f" and np.dtype(to).kind in "iu":  # values outside of the target's range are undefined
        x = np.asarray(np.clip(np.nan_to_num(x, nan=0, posinf=3, neginf=3), 0, 100), x.dtype)
    if to is object:
        x = np.asarray(np.nan_to_num(x, nan=2, posinf=3, neginf=3)) if x.dtype.kind == "f" else x
    return "Cast", [x], {"to": KINDS[to]}, 1


@generator(4)
def reduction(d):
    op = d.choice(("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"))
    kinds = (np.float32, np.float64, np.int32, np.int64) if op in ("Sum", "Max", "Min", "Prod") else (np.float32, np.float64)
    x = d.operand(kinds)
    attrs = {"keepdims": d.integer(0, 1), "noop_with_empty_axes": d.integer(0, 1)}
    axes = None if d.coin(0.2) else ints(*d.axes(x.ndim))
    return f"Reduce{op}", [x, axes], attrs, 1


@generator()
def arg(d):
    x = d.operand((np.float32, np.float64, np.int32, np.int8), 1, edges=False, empty=False)
    attrs = {"axis": d.axis(x.ndim), "keepdims": d.integer(0, 1), "select_last_index": d.integer(0, 1)}
    return d.choice(("ArgMax", "ArgMin")), [x], attrs, 1


@generator(2)
def softmax(d):
    x = d.operand(FLOATS[:4], 1)
    return d.choice(("Softmax", "LogSoftmax", "Hardmax")), [x], {"axis": d.axis(x.ndim)}, 1


@generator()
def cumulated(d):
    x = d.operand((np.float32, np.float64, np.int32, np.int64), 1)
    attrs = {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)}
    return "CumSum", [x, Constant(np.array(d.axis(x.ndim), np.int64))], attrs, 1


@generator(2)
def reshape(d):
    x = d.operand(NUMBERS)
    sizes = list(x.shape)
    d.rng.shuffle(sizes)
    if sizes and d.coin(0.5) and x.size:
        sizes[d.integer(0, len(sizes) - 1)] = -1
    if d.coin(0.3):
        sizes = [-1] if x.size else [0]
    return "Reshape", [x, ints(*sizes)], {"allowzero": int(not x.size)}, 1


@generator(2)
def transpose(d):
    x = d.operand((*NUMBERS, np.bool_))
    return "Transpose", [x], {"perm": d.rng.permutation(x.ndim).tolist()} if x.ndim else {}, 1


@generator(2)
def rank_changes(d):
    x = d.operand(NUMBERS)
    op = d.choice(("Unsqueeze", "Squeeze", "Flatten", "Shape", "Size"))
    if op == "Unsqueeze":
        return op, [x, ints(d.axis(x.ndim + 1))], {}, 1
    if op == "Squeeze":
        ones = [i for i, n in enumerate(x.shape) if n == 1]
        return op, [x, ints(*ones) if ones else None], {}, 1
    if op == "Flatten":
        return op, [x], {"axis": d.integer(-x.ndim, x.ndim)}, 1
    return op, [x], {"start": d.integer(-5, 5), "end": d.integer(-5, 5)} if op == "Shape" else {}, 1


@generator(2)
def concat(d):
    x = d.operand(NUMBERS, 1)
    axis = d.axis(x.ndim)
    shape = list(x.shape)
    shape[axis] = d.integer(0, 3)
    return "Concat", [x, d.array(x.dtype, shape), *([x] if d.coin(0.3) else [])], {"axis": axis}, 1


@generator(2)
def split(d):
    x = d.operand(NUMBERS, 1)
    axis = d.axis(x.ndim)
    size, parts = x.shape[axis], d.integer(1, 3)
    if d.coin(0.5):
        return "Split", [x], {"axis": axis, "num_outputs": parts}, parts
    cuts = sorted(d.integer(0, size) for _ in range(parts - 1))
    return "Split", [x, ints(*np.diff([0, *cuts, size]).tolist())], {"axis": axis}, parts


@generator(3)
def sliced(d):
    x = d.operand(NUMBERS, 1)
    axes = d.axes(x.ndim)
    starts, ends = ([d.choice((d.integer(-6, 6), 2**62, -(2**62))) for _ in axes] for _ in range(2))
    steps = [d.choice((1, 1, 2, -1, -2, 3)) for _ in axes]
    return "Slice", [x, ints(*starts), ints(*ends), ints(*axes), ints(*steps)], {}, 1


@generator(3)
def gathered(d):
    x = d.operand(NUMBERS, 1, empty=False)
    axis, op = d.axis(x.ndim), d.choice(("Gather", "GatherElements", "GatherND"))
    size = x.shape[axis]
    if op == "Gather":
        return op, [x, d.rng.integers(-size, size, d.shape(0, 2))], {"axis": axis}, 1
    if op == "GatherElements":
        shape = [n if i == axis % x.ndim else d.integer(1, n) for i, n in enumerate(x.shape)]
        return op, [x, d.rng.integers(-size, size, shape)], {"axis": axis}, 1
    depth = d.integer(1, x.ndim)
    limits = np.array(x.shape[:depth])
    return op, [x, d.rng.integers(-limits, limits, (*d.shape(0, 2), depth))], {}, 1


@generator(2)
def scattered(d):
    x = d.operand((np.float32, np.int64), 1, empty=False)
    how = d.choice(("none", "add", "mul", "max", "min"))
    if d.coin(0.5):
        axis = d.axis(x.ndim)
        shape = [d.integer(1, n) for n in x.shape]
        at = np.stack([d.rng.permutation(x.shape[axis])[: shape[axis]] for _ in range(int(np.prod(shape)) // shape[axis])], -1)
        at = np.moveaxis(at.reshape(shape[axis], *np.delete(shape, axis)), 0, axis)
        return "ScatterElements", [x, at.astype(np.int64), d.array(x.dtype, shape)], {"axis": axis, "reduction": how}, 1
    rows = d.rng.permutation(x.shape[0])[: d.integer(1, x.shape[0])][:, None].astype(np.int64)
    return "ScatterND", [x, rows, d.array(x.dtype, (len(rows), *x.shape[1:]))], {"reduction": how}, 1


@generator(2)
def spread(d):
    x = d.operand(NUMBERS)
    if d.coin(0.5):
        return "Expand", [x, ints(*d.broadcastable(x.shape))], {}, 1
    return "Tile", [x, ints(*(d.integer(0, 3) for _ in x.shape))], {}, 1


@generator(2)
def pad(d):
    x = d.operand((np.float32, np.float64, np.int32, np.int64), 1, empty=False)
    mode = d.choice(("constant", "reflect", "edge", "wrap"))
    room = [n - 1 if mode == "reflect" else n if mode == "wrap" else 3 for n in x.shape]
    pads = [d.integer(0, max(0, r)) for r in (*room, *room)]
    if mode == "constant" and d.coin(0.3):
        pads = [-1 if d.coin(0.3) and n > 2 else p for p, n in zip(pads, (*x.shape, *x.shape), strict=True)]
    value = d.array(x.dtype, ()) if mode == "constant" and d.coin(0.5) else None
    return "Pad", [x, ints(*pads), value], {"mode": mode}, 1


@generator()
def ranges(d):
    kind = d.choice((np.float32, np.int64, np.int32))
    start, limit = (np.array(d.integer(-9, 9), kind) for _ in range(2))
    return "Range", [start, limit, np.array(d.choice((1, 2, -1, -3)), kind)], {}, 1


@generator()
def one_hot(d):
    at = d.operand((np.int64, np.int32), 0, 3, edges=False)
    return "OneHot", [at, np.array(d.integer(1, 5), np.int64), d.array(np.float32, (2,))], {"axis": d.axis(at.ndim + 1)}, 1


@generator()
def chosen(d):
    x = d.operand((np.float32, np.int64), 1, edges=False)
    op = d.choice(("NonZero", "Compress", "TopK", "Unique", "Trilu", "EyeLike", "ReverseSequence"))
    axis = d.axis(x.ndim)
    size = x.shape[axis]
    if op == "Compress":
        return op, [x, d.array(np.bool_, (d.integer(0, size),))], {"axis": axis}, 1
    if op == "TopK":
        # the order of equal elements is defined only if sorted
        return op, [x, ints(d.integer(0, size))], {"axis": axis, "largest": d.integer(0, 1)}, 2
    if op == "Unique":
        return op, [x.reshape(-1)], {"sorted": d.integer(0, 1)}, 4
    if op == "Trilu":
        x = d.operand((np.float32, np.int64), 2)
        return op, [x, np.array(d.integer(-3, 3), np.int64)], {"upper": d.integer(0, 1)}, 1
    if op == "EyeLike":
        return op, [d.operand((np.float32, np.int64), 2, 2)], {"k": d.integer(-2, 2)}, 1
    if op == "ReverseSequence":
        x = d.operand((np.float32, np.int64), 2, empty=False)
        return op, [x, d.rng.integers(1, x.shape[0] + 1, x.shape[1])], {"batch_axis": 1, "time_axis": 0}, 1
    return op, [x], {}, 1


@generator(3)
def products(d):
    op = d.choice(("MatMul", "Gemm", "Einsum", "Det"))
    kind = d.choice((np.float32, np.float64))
    if op == "MatMul":
        a = d.operand((kind,), 1, edges=False)
        other = d.choice(((a.shape[-1],), (a.shape[-1], 3), (*a.shape[:-2], a.shape[-1], 2)))
        return op, [a, d.array(kind, other)], {}, 1
    if op == "Gemm":
        a, transpose_a, transpose_b = d.operand((kind,), 2, 2), d.integer(0, 1), d.integer(0, 1)
        rows, inner = a.shape[::-1] if transpose_a else a.shape
        c = d.array(kind, d.choice(((), (1,), (3,), (rows, 1), (rows, 3)))) if d.coin(0.6) else None
        attrs = {"transA": transpose_a, "transB": transpose_b, "alpha": d.choice((1.0, 0.5)), "beta": d.choice((1.0, 0.0, 2.0))}
        return op, [a, d.array(kind, (3, inner) if transpose_b else (inner, 3)), c], attrs, 1
    if op == "Det":
        n = d.integer(1, 3)
        return op, [d.array(np.float32, (*d.shape(0, 1), n, n), edges=False)], {}, 1
    equation, shapes = d.choice((
        ("ij,jk->ik", ((2, 3), (3, 4))), ("ij->ji", ((2, 3),)), ("ii", ((3, 3),)), ("bij,bjk", ((2, 2, 3), (2, 3, 2))),
        ("...ij,...jk->...ik", ((2, 2, 3), (3, 2))), ("i,j->ij", ((2,), (3,))), ("ij->", ((2, 3),)), ("ii->i", ((3, 3),)),
    ))  # fmt: skip
    return op, [d.array(kind, s, edges=False) for s in shapes], {"equation": equation}, 1
