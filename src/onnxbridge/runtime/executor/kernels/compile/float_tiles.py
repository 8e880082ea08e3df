"""The innermost loops of matrix products and convolutions, written in LLVM's language for this machine's vector registers.

A tile is a block of `rows` output rows by one panel of output columns, held in registers from beginning to end. Where its
input rows lie is looked up in a table of addresses, one line of the table for each tap of the kernel: a matrix product has
one tap, a convolution as many as its kernel has positions, and no input is ever unfolded.
"""

from __future__ import annotations

import functools

from onnxbridge.runtime.executor.kernels.compile import llvm
from onnxbridge.runtime.executor.kernels.compile.llvm import lanes

VECTORS = 2  # vectors in a panel's width


def rows() -> int:
    """The most rows of a tile: accumulators, a panel's vectors and one spread element fill the registers."""
    return 12 if lanes() == 16 else 6


def panel() -> int:
    """The columns of a panel."""
    return VECTORS * lanes()


PIXELS = 6  # of a depthwise tile


_ARGUMENTS = (
    "i64 %which, i64 %taps, i64 %depth, i64 %table, i64 %step, i64 %weight, i64 %bias, i64 %add, i64 %addstep, "
    "i64 %out, i64 %outstep, i64 %columns, float %low, float %high"
)


def _store(height: int, width: int, sums: dict[tuple[int, int], str]) -> list[str]:
    """Add the bias and (unless its address is 0) what shall be added, clip (NaN stays), and store the valid columns."""
    w, vector = lanes(), f"<{lanes()} x float>"
    iota = ", ".join(f"i64 {i}" for i in range(w))
    o = [f" %n0 = insertelement <{w} x i64> poison, i64 %columns, i32 0"]
    o += [f" %nn = shufflevector <{w} x i64> %n0, <{w} x i64> poison, <{w} x i32> zeroinitializer"]
    for name in ("low", "high"):
        o += [f" %{name}0 = insertelement {vector} poison, float %{name}, i32 0"]
        o += [f" %{name}v = shufflevector {vector} %{name}0, {vector} poison, <{w} x i32> zeroinitializer"]
    o += [" %biasp = inttoptr i64 %bias to ptr", " %outp = inttoptr i64 %out to ptr", " %addp = inttoptr i64 %add to ptr"]
    for v in range(width):
        o += [f" %iota{v} = add <{w} x i64> <{iota}>, splat (i64 {v * w})"]
        o += [f" %mask{v} = icmp slt <{w} x i64> %iota{v}, %nn"]
        o += [f" %bp{v} = getelementptr float, ptr %biasp, i64 {v * w}", f" %bv{v} = load {vector}, ptr %bp{v}, align 4"]
    o += [" %plain = icmp eq i64 %add, 0", f" %whole = icmp sge i64 %columns, {width * w}"]
    o += [" br i1 %whole, label %full, label %part"]
    o += ["full:", " br i1 %plain, label %fullwithout, label %fullwith"]
    o += ["part:", " br i1 %plain, label %partwithout, label %partwith"]
    for label in ("fullwith", "fullwithout", "partwith", "partwithout"):
        added, masked = label.endswith("with"), label.startswith("part")
        o += [f"{label}:"]
        for r in range(height):
            p = f"{label}{r}"
            o += [f" %{p}o = mul i64 %outstep, {r}", f" %{p}p = getelementptr float, ptr %outp, i64 %{p}o"]
            if added:
                o += [f" %{p}ao = mul i64 %addstep, {r}", f" %{p}a = getelementptr float, ptr %addp, i64 %{p}ao"]
            for v in range(width):
                q = f"{p}_{v}"
                o += [f" %{q}b = fadd {vector} {sums[r, v]}, %bv{v}"]
                last = f"%{q}b"
                if added:
                    o += [f" %{q}ap = getelementptr float, ptr %{p}a, i64 {v * w}"]
                    o += [
                        f" %{q}av = call {vector} @llvm.masked.load.v{w}f32.p0"
                        f"(ptr %{q}ap, i32 4, <{w} x i1> %mask{v}, {vector} zeroinitializer)"
                        if masked
                        else f" %{q}av = load {vector}, ptr %{q}ap, align 4"
                    ]
                    o += [f" %{q}s = fadd {vector} {last}, %{q}av"]
                    last = f"%{q}s"
                o += [f" %{q}lc = fcmp olt {vector} {last}, %lowv"]
                o += [f" %{q}l = select <{w} x i1> %{q}lc, {vector} %lowv, {vector} {last}"]
                o += [f" %{q}hc = fcmp ogt {vector} %{q}l, %highv"]
                o += [f" %{q}h = select <{w} x i1> %{q}hc, {vector} %highv, {vector} %{q}l"]
                o += [f" %{q}sp = getelementptr float, ptr %{p}p, i64 {v * w}"]
                o += [
                    f" call void @llvm.masked.store.v{w}f32.p0({vector} %{q}h, ptr %{q}sp, i32 4, <{w} x i1> %mask{v})"
                    if masked
                    else f" store {vector} %{q}h, ptr %{q}sp, align 4"
                ]
        o += [" ret void"]
    return o


def _pointers(height: int) -> list[str]:
    """One line of the table: the addresses of the tile's input rows for this tap."""
    o = [" %line = mul i64 %t, %step", " %at = getelementptr i64, ptr %tablep, i64 %line"]
    for r in range(height):
        o += [f" %pa{r} = getelementptr i64, ptr %at, i64 {r}", f" %pi{r} = load i64, ptr %pa{r}"]
        o += [f" %p{r} = inttoptr i64 %pi{r} to ptr"]
    return o


def _steps(cells: list[tuple[int, int]], width: int, k: int, at: str, old: str, new: str) -> list[str]:
    """One element of the depth, `k` after %{at}: the accumulators `old` (format strings of row and vector) become `new`."""
    w, vector, o = lanes(), f"<{lanes()} x float>", [f" %{at}k{k} = add i64 %{at}, {k}"]
    for v in range(width):
        o += [f" %{at}wp{v}_{k} = getelementptr float, ptr %{at}wk, i64 {(k * width + v) * w}"]
        o += [f" %{at}w{v}_{k} = load {vector}, ptr %{at}wp{v}_{k}, align 4"]
    for r in range(1 + max(r for r, _ in cells)):
        o += [f" %{at}q{r}_{k} = getelementptr float, ptr %p{r}, i64 %{at}k{k}"]
        o += [f" %{at}l{r}_{k} = load float, ptr %{at}q{r}_{k}, align 4"]
        o += [f" %{at}m{r}_{k} = insertelement {vector} poison, float %{at}l{r}_{k}, i32 0"]
        o += [f" %{at}a{r}_{k} = shufflevector {vector} %{at}m{r}_{k}, {vector} poison, <{w} x i32> zeroinitializer"]
    for r, v in cells:
        a, b = f"{vector} %{at}a{r}_{k}", f"{vector} %{at}w{v}_{k}"
        o += [f" %{new.format(r, v)} = call {vector} @llvm.fma.v{w}f32({a}, {b}, {vector} %{old.format(r, v)})"]
    return o


def _product(height: int, width: int) -> str:
    """out[r, :] = sum over taps and depth of row[tap, r][k] * weight[tap, k, :].

    A tile with too few rows to hide the latency of multiplications takes several elements of the depth at once, in separate sums:
    as many for the last columns as for the others, so that all columns of a row are rounded alike.
    """
    w, vector = lanes(), f"<{lanes()} x float>"
    cells = [(r, v) for r in range(height) for v in range(width)]
    sets = {1: 4, 2: 2}.get(height, 1)
    each = [(r, v, u) for r, v in cells for u in range(sets)]
    o = [f"define internal void @product_{height}_{width}({_ARGUMENTS}) {{", "entry:"]
    o += [" %weightp = inttoptr i64 %weight to ptr", " %tablep = inttoptr i64 %table to ptr"]
    o += [f" %most = sub i64 %depth, {sets - 1}", " br label %tap", "tap:"]
    o += [" %t = phi i64 [0, %entry], [%t1, %tapend]", " %wt = phi ptr [%weightp, %entry], [%wn, %tapend]"]
    o += [f" %s{r}_{v}_{u} = phi {vector} [zeroinitializer, %entry], [%z{r}_{v}_{u}, %tapend]" for r, v, u in each]
    o += _pointers(height)
    o += [" %several = icmp sgt i64 %most, 0", " br i1 %several, label %many, label %rest"]
    o += ["many:", " %i = phi i64 [0, %tap], [%i1, %many]", " %iwk = phi ptr [%wt, %tap], [%iwn, %many]"]
    o += [f" %x{r}_{v}_{u} = phi {vector} [%s{r}_{v}_{u}, %tap], [%y{r}_{v}_{u}, %many]" for r, v, u in each]
    for u in range(sets):
        o += _steps(cells, width, u, "i", f"x{{}}_{{}}_{u}", f"y{{}}_{{}}_{u}")
    o += [f" %iwn = getelementptr float, ptr %iwk, i64 {sets * width * w}", f" %i1 = add i64 %i, {sets}"]
    o += [" %more = icmp slt i64 %i1, %most", " br i1 %more, label %many, label %rest"]
    o += ["rest:", " %jb = phi i64 [0, %tap], [%i1, %many]", " %jw = phi ptr [%wt, %tap], [%iwn, %many]"]
    o += [f" %b{r}_{v}_{u} = phi {vector} [%s{r}_{v}_{u}, %tap], [%y{r}_{v}_{u}, %many]" for r, v, u in each]
    if sets > 1:
        o += [" %left = icmp slt i64 %jb, %depth", " br i1 %left, label %element, label %tapend"]
        o += ["element:", " %j = phi i64 [%jb, %rest], [%j1, %element]", " %jwk = phi ptr [%jw, %rest], [%jwn, %element]"]
        o += [f" %c{r}_{v} = phi {vector} [%b{r}_{v}_0, %rest], [%d{r}_{v}, %element]" for r, v in cells]
        o += _steps(cells, width, 0, "j", "c{}_{}", "d{}_{}")
        o += [f" %jwn = getelementptr float, ptr %jwk, i64 {width * w}", " %j1 = add i64 %j, 1"]
        o += [" %morej = icmp slt i64 %j1, %depth", " br i1 %morej, label %element, label %tapend"]
        o += ["tapend:", " %wn = phi ptr [%jw, %rest], [%jwn, %element]"]
        o += [
            f" %z{r}_{v}_{u} = phi {vector} [%b{r}_{v}_{u}, %rest], [{f'%d{r}_{v}' if u == 0 else f'%b{r}_{v}_{u}'}, %element]"
            for r, v, u in each
        ]
    else:
        o += [" br label %tapend", "tapend:", " %wn = phi ptr [%jw, %rest]"]
        o += [f" %z{r}_{v}_0 = phi {vector} [%b{r}_{v}_0, %rest]" for r, v in cells]
    o += [" %t1 = add i64 %t, 1", " %moret = icmp slt i64 %t1, %taps", " br i1 %moret, label %tap, label %done", "done:"]
    finals = {}
    for r, v in cells:
        parts = [f"%z{r}_{v}_{u}" for u in range(sets)]
        while len(parts) > 1:
            name = f"%sum{r}_{v}_{len(parts)}_"
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            o += [f" {name}{k} = fadd {vector} {a}, {b}" for k, (a, b) in enumerate(pairs)]
            parts = [f"{name}{k}" for k in range(len(pairs))]
        finals[(r, v)] = parts[0]
    return "\n".join([*o, *_store(height, width, finals), "}"])


def _channelwise(height: int) -> str:
    """out[r, c] = sum over taps of row[tap, r][c] * weight[tap, c], for one vector of channels; `depth` is a tap's weights."""
    w, vector = lanes(), f"<{lanes()} x float>"
    o = [f"define internal void @channelwise_{height}({_ARGUMENTS}) {{", "entry:"]
    o += [" %weightp = inttoptr i64 %weight to ptr", " %tablep = inttoptr i64 %table to ptr"]
    # The addresses are those of channel 0; %taps comes with the first channel's offset in its upper half.
    o += [" %first = lshr i64 %taps, 32", " %count = and i64 %taps, 4294967295"]
    iota = ", ".join(f"i64 {i}" for i in range(w))
    o += [f" %c0 = insertelement <{w} x i64> poison, i64 %columns, i32 0"]
    o += [f" %cc = shufflevector <{w} x i64> %c0, <{w} x i64> poison, <{w} x i32> zeroinitializer"]
    o += [f" %inside = icmp slt <{w} x i64> <{iota}>, %cc", " br label %tap", "tap:"]
    o += [" %t = phi i64 [0, %entry], [%t1, %tap]", " %wt = phi ptr [%weightp, %entry], [%wn, %tap]"]
    o += [f" %x{r} = phi {vector} [zeroinitializer, %entry], [%y{r}_0, %tap]" for r in range(height)]
    o += _pointers(height)
    o += [f" %w0 = load {vector}, ptr %wt, align 4", " %wn = getelementptr float, ptr %wt, i64 %depth"]
    for r in range(height):
        o += [f" %q{r} = getelementptr float, ptr %p{r}, i64 %first"]
        o += [
            f" %a{r} = call {vector} @llvm.masked.load.v{w}f32.p0(ptr %q{r}, i32 4, <{w} x i1> %inside, {vector} zeroinitializer)"
        ]
        o += [f" %y{r}_0 = call {vector} @llvm.fma.v{w}f32({vector} %a{r}, {vector} %w0, {vector} %x{r})"]
    o += [" %t1 = add i64 %t, 1", " %moret = icmp slt i64 %t1, %count", " br i1 %moret, label %tap, label %done", "done:"]
    return "\n".join([*o, *_store(height, 1, {(r, 0): f"%y{r}_0" for r in range(height)}), "}"])


def dispatch(name: str, arguments: str, parts: list[tuple[int, str]]) -> str:
    """A function that calls one of the parts by its first argument, which they take too so that nothing has to be moved."""
    cases = " ".join(f"i64 {i}, label %l{i}" for i, _ in parts)
    o = [f"define void @{name}({arguments}) {{", f" switch i64 %which, label %none [{cases}]"]
    for i, part in parts:
        o += [f"l{i}:", f" musttail call void @{part}({arguments})", " ret void"]
    return "\n".join([*o, "none:", " ret void", "}"])


def text() -> str:
    """The module: `onnxbridge_product(rows * 4 + vectors, ...)` and `onnxbridge_channelwise(rows, ...)`."""
    w, v = lanes(), f"<{lanes()} x float>"
    products = [(r * 4 + v, f"product_{r}_{v}") for r in range(1, rows() + 1) for v in range(1, VECTORS + 1)]
    channels = [(r, f"channelwise_{r}") for r in range(1, PIXELS + 1)]
    return "\n".join(
        [
            *(_product(i // 4, i % 4) for i, _ in products),
            *(_channelwise(r) for r, _ in channels),
            dispatch("onnxbridge_product", _ARGUMENTS, products),
            dispatch("onnxbridge_channelwise", _ARGUMENTS, channels),
            f"declare {v} @llvm.fma.v{w}f32({v}, {v}, {v})",
            f"declare {v} @llvm.masked.load.v{w}f32.p0(ptr, i32, <{w} x i1>, {v})",
            f"declare void @llvm.masked.store.v{w}f32.p0({v}, ptr, i32, <{w} x i1>)",
        ]
    )


@functools.cache
def load() -> None:
    """Let kernels name both functions."""
    llvm.load(text(), "onnxbridge_product", "onnxbridge_channelwise")
