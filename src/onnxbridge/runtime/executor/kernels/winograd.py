"""Winograd's algorithm F(2x2, 3x3): two transforms in LLVM's language, between which there are sixteen products.

Four outputs of a 3x3 kernel take sixteen multiplications instead of thirty-six. With these small transforms the rounding
errors stay those of the plain sum.
"""

from __future__ import annotations

import functools

import numpy as np

from onnxbridge.runtime.executor.kernels.array_layout import Array
from onnxbridge.runtime.executor.kernels.compile import llvm
from onnxbridge.runtime.executor.kernels.compile.float_tiles import rows
from onnxbridge.runtime.executor.kernels.compile.llvm import lanes

BLOCK_BYTES = 768 << 10  # of planes before and after the products
_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def transformed(w: Array) -> Array:
    """Kernels (M, C, 3, 3) as sixteen matrices (C, M)."""
    maps, depth = w.shape[:2]
    y = np.matmul(np.kron(_KERNEL, _KERNEL).astype(np.float32), w.reshape(maps * depth, 9).T)
    found: Array = y.reshape(16, maps, depth).transpose(0, 2, 1)
    return found


def block_of(depth: int, columns: int, tiles: int) -> int:
    """2x2 tiles per block: whole tiles of the products, whose planes stay in the cache."""
    tall = rows()
    most = max(tall, min(240, BLOCK_BYTES // (64 * (depth + columns))))
    blocks = max(1, -(-tiles // most))
    return -(-max(1, tiles) // (blocks * tall)) * tall


class _Body:
    """Builds the LLVM code of a loop over vectors of channels."""

    def __init__(self, w: int) -> None:
        self.w, self.vector = w, f"<{w} x float>"
        self.lines: list[str] = []
        self._count = 0

    def add(self, text: str) -> str:
        self._count += 1
        self.lines.append(f" %v{self._count} = {text}")
        return f"%v{self._count}"

    def at(self, pointer: str) -> str:
        return self.add(f"getelementptr float, ptr {pointer}, i64 %c")

    def load(self, pointer: str) -> str:
        place = self.at(pointer)
        return self.add(
            f"call {self.vector} @llvm.masked.load.v{self.w}f32.p0"
            f"(ptr {place}, i32 4, <{self.w} x i1> %mask, {self.vector} zeroinitializer)"
        )

    def store(self, value: str, pointer: str) -> None:
        place = self.at(pointer)
        self.lines.append(
            f" call void @llvm.masked.store.v{self.w}f32.p0({self.vector} {value}, ptr {place}, i32 4, <{self.w} x i1> %mask)"
        )

    def plus(self, a: str, b: str) -> str:
        return self.add(f"fadd {self.vector} {a}, {b}")

    def minus(self, a: str, b: str) -> str:
        return self.add(f"fsub {self.vector} {a}, {b}")

    def data(self, d: list[str]) -> list[str]:
        """Four elements of the input's transform."""
        return [self.minus(d[0], d[2]), self.plus(d[1], d[2]), self.minus(d[2], d[1]), self.minus(d[1], d[3])]

    def sums(self, m: list[str]) -> list[str]:
        """Two elements of the output's transform."""
        return [self.plus(self.plus(m[0], m[1]), m[2]), self.minus(self.minus(m[1], m[2]), m[3])]


def _addresses(name: str, count: int) -> list[str]:
    o = [f" %{name}t = inttoptr i64 %{name} to ptr"]
    for k in range(count):
        o += [f" %{name}a{k} = getelementptr i64, ptr %{name}t, i64 {k}", f" %{name}i{k} = load i64, ptr %{name}a{k}"]
        o += [f" %{name}{k} = inttoptr i64 %{name}i{k} to ptr"]
    return o


def _planes(count: int = 16) -> list[str]:
    o = [" %plane0 = inttoptr i64 %planes to ptr"]
    for k in range(1, count):
        o += [f" %po{k} = mul i64 %step, {k}", f" %plane{k} = getelementptr float, ptr %plane0, i64 %po{k}"]
    return o


def _looped(head: list[str], body: _Body) -> list[str]:
    w = body.w
    iota = ", ".join(f"i64 {i}" for i in range(w))
    return [
        *head,
        " br label %loop",
        "loop:",
        " %c = phi i64 [0, %entry], [%next, %loop]",
        " %left = sub i64 %channels, %c",
        f" %l0 = insertelement <{w} x i64> poison, i64 %left, i32 0",
        f" %ll = shufflevector <{w} x i64> %l0, <{w} x i64> poison, <{w} x i32> zeroinitializer",
        f" %mask = icmp slt <{w} x i64> <{iota}>, %ll",
        *body.lines,
        f" %next = add i64 %c, {w}",
        " %more = icmp slt i64 %next, %channels",
        " br i1 %more, label %loop, label %done",
        "done:",
        " ret void",
        "}",
    ]


def _spread(w: int) -> list[str]:
    """Sixteen input positions of a tile (their addresses in a table) into the sixteen planes."""
    b = _Body(w)
    d = [b.load(f"%in{k}") for k in range(16)]
    columns = [b.data(d[4 * r : 4 * r + 4]) for r in range(4)]
    for x in range(4):
        for y, value in enumerate(b.data([columns[r][x] for r in range(4)])):
            b.store(value, f"%plane{4 * y + x}")
    head = ["define void @onnxbridge_spread(i64 %in, i64 %planes, i64 %step, i64 %channels) {", "entry:"]
    return _looped([*head, *_addresses("in", 16), *_planes()], b)


def _gather(w: int) -> list[str]:
    """The sixteen planes of a tile into four output positions; a bias and four rows are added, and the result clipped."""
    b = _Body(w)
    vector = b.vector
    m = [b.load(f"%plane{k}") for k in range(16)]
    parts = [b.sums([m[4 * k + x] for k in range(4)]) for x in range(4)]
    bias = b.load("%biasp")
    for y in range(2):
        for x, value in enumerate(b.sums([parts[k][y] for k in range(4)])):
            value = b.plus(b.plus(value, bias), b.load(f"%add{2 * y + x}"))
            low = b.add(f"fcmp olt {vector} {value}, %lowv")
            value = b.add(f"select <{w} x i1> {low}, {vector} %lowv, {vector} {value}")
            high = b.add(f"fcmp ogt {vector} {value}, %highv")
            value = b.add(f"select <{w} x i1> {high}, {vector} %highv, {vector} {value}")
            b.store(value, f"%out{2 * y + x}")
    head = [
        "define void @onnxbridge_gather(i64 %planes, i64 %step, i64 %channels, i64 %bias, i64 %add, i64 %out, "
        "float %low, float %high) {",
        "entry:",
        " %biasp = inttoptr i64 %bias to ptr",
    ]
    for name in ("low", "high"):
        head += [f" %{name}0 = insertelement {vector} poison, float %{name}, i32 0"]
        head += [f" %{name}v = shufflevector {vector} %{name}0, {vector} poison, <{w} x i32> zeroinitializer"]
    return _looped([*head, *_addresses("add", 4), *_addresses("out", 4), *_planes()], b)


@functools.cache
def load() -> None:
    """Make both transforms available to the kernels that call them."""
    w = lanes()
    vector = f"<{w} x float>"
    text = "\n".join(
        [
            *_spread(w),
            *_gather(w),
            f"declare {vector} @llvm.masked.load.v{w}f32.p0(ptr, i32, <{w} x i1>, {vector})",
            f"declare void @llvm.masked.store.v{w}f32.p0({vector}, ptr, i32, <{w} x i1>)",
        ]
    )
    llvm.load(text, "onnxbridge_spread", "onnxbridge_gather")
