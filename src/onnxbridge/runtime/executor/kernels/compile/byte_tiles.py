"""The innermost loop of products of bytes, for processors with an instruction that sums four of them into an int32.

As in `float_tiles.py` a tile is a block of rows by a panel of columns, and a table has the addresses of its input rows. Inputs
are unsigned, weights signed; the sums are exact. Other processors have no such tile, and quantized models run in float32.
"""

from __future__ import annotations

import functools

from onnxbridge.runtime.executor.kernels.compile import llvm
from onnxbridge.runtime.executor.kernels.compile.float_tiles import dispatch
from onnxbridge.runtime.executor.kernels.compile.llvm import feature, tiled

ROWS, VECTORS = 12, 2


@functools.cache
def lanes() -> int:
    """How many int32 sums a register holds; 0 where the processor has no such instruction."""
    if tiled() and feature("avx512vnni"):
        return 16
    return 8 if tiled() and feature("avxvnni") else 0


def panel() -> int:
    """The columns of a panel."""
    return VECTORS * lanes()


def rows() -> int:
    """The most rows of a tile."""
    return ROWS if lanes() == 16 else 5


_ARGUMENTS = "i64 %which, i64 %taps, i64 %quads, i64 %table, i64 %step, i64 %weight, i64 %out"


def _name(w: int) -> str:
    return f"@llvm.x86.avx512.vpdpbusd.{32 * w}"


def _product(height: int, width: int, w: int) -> str:
    """out[r, :] = sum over taps and depth of row[tap, r][k] * weight[tap, k, :]; four k at a time, rows a panel apart."""
    vector = f"<{w} x i32>"
    cells = [(r, v) for r in range(height) for v in range(width)]
    o = [f"define internal void @bytes_{height}_{width}({_ARGUMENTS}) {{", "entry:"]
    o += [" %weightp = inttoptr i64 %weight to ptr", " %tablep = inttoptr i64 %table to ptr"]
    o += [" %outp = inttoptr i64 %out to ptr", " br label %tap", "tap:"]
    o += [" %t = phi i64 [0, %entry], [%t1, %tapend]", " %wt = phi ptr [%weightp, %entry], [%wn, %tapend]"]
    o += [f" %s{r}_{v} = phi {vector} [zeroinitializer, %entry], [%y{r}_{v}, %tapend]" for r, v in cells]
    o += [" %line = mul i64 %t, %step", " %at = getelementptr i64, ptr %tablep, i64 %line"]
    for r in range(height):
        o += [f" %pa{r} = getelementptr i64, ptr %at, i64 {r}", f" %pi{r} = load i64, ptr %pa{r}"]
        o += [f" %p{r} = inttoptr i64 %pi{r} to ptr"]
    o += [" br label %element", "element:", " %i = phi i64 [0, %tap], [%i1, %element]"]
    o += [" %wk = phi ptr [%wt, %tap], [%wn, %element]"]
    o += [f" %x{r}_{v} = phi {vector} [%s{r}_{v}, %tap], [%y{r}_{v}, %element]" for r, v in cells]
    for v in range(width):
        o += [f" %wp{v} = getelementptr i32, ptr %wk, i64 {v * w}", f" %w{v} = load {vector}, ptr %wp{v}, align 4"]
    for r in range(height):
        o += [f" %q{r} = getelementptr i32, ptr %p{r}, i64 %i", f" %l{r} = load i32, ptr %q{r}, align 1"]
        o += [f" %m{r} = insertelement {vector} poison, i32 %l{r}, i32 0"]
        o += [f" %a{r} = shufflevector {vector} %m{r}, {vector} poison, <{w} x i32> zeroinitializer"]
        o += [f" %y{r}_{v} = call {vector} {_name(w)}({vector} %x{r}_{v}, {vector} %a{r}, {vector} %w{v})" for v in range(width)]
    o += [f" %wn = getelementptr i32, ptr %wk, i64 {width * w}", " %i1 = add i64 %i, 1"]
    o += [" %more = icmp slt i64 %i1, %quads", " br i1 %more, label %element, label %tapend", "tapend:"]
    o += [" %t1 = add i64 %t, 1", " %moret = icmp slt i64 %t1, %taps", " br i1 %moret, label %tap, label %done", "done:"]
    for r, v in cells:
        o += [f" %o{r}_{v} = getelementptr i32, ptr %outp, i64 {r * VECTORS * w + v * w}"]
        o += [f" store {vector} %y{r}_{v}, ptr %o{r}_{v}, align 4"]
    return "\n".join([*o, " ret void", "}"])


def text() -> str:
    """The module: `onnxbridge_bytes(rows * 4 + vectors, ...)`."""
    w = lanes()
    parts = [(r, v) for r in range(1, rows() + 1) for v in range(1, VECTORS + 1)]
    vector = f"<{w} x i32>"
    return "\n".join(
        [
            *(_product(r, v, w) for r, v in parts),
            dispatch("onnxbridge_bytes", _ARGUMENTS, [(4 * r + v, f"bytes_{r}_{v}") for r, v in parts]),
            f"declare {vector} {_name(w)}({vector}, {vector}, {vector})",
        ]
    )


@functools.cache
def load() -> None:
    """Make the function available to the kernels that call it."""
    llvm.load(text(), "onnxbridge_bytes")
