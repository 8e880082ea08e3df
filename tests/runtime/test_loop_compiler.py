"""The compiler of loops: what it compiles computes what Python does, and what it does not know is refused by name."""

from __future__ import annotations

import ctypes
import math
import struct

import numpy as np
import pytest

from onnxbridge.runtime.native import build, compiler, machine, presence
from onnxbridge.runtime.native.compiler.kinds import Entry, Pointer, shared

pytestmark = pytest.mark.skipif(not presence.available(), reason="without llvmlite there is no machine code")

floats, doubles, ints, longs, octets, signed = map(Pointer, ("f32", "f64", "i32", "i64", "u8", "i8"))
STEP = 3
NUMBERS = (-9, -8, -1, 0, 1, 2, 7, 8, 100)


def called(body, signature):
    """Compile a function that writes into `out`, its first argument: eight int64s."""
    name = f"tried_{body.__name__}_{abs(hash(body))}"
    text, needs = compiler.entered(Entry(body, signature), name)
    assert not needs
    (address,) = machine.loaded(machine.assembled(text), name)
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)

    def call(*values):
        out = np.zeros(8, np.int64)
        given = struct.pack("=" + "".join("d" if kind == "f" else "q" for kind in signature), out.ctypes.data, *values)
        run(np.frombuffer(given, np.int64).ctypes.data, 0, 0)
        return out

    return call


def whole(out, a, b):
    y = longs(out)
    y[0], y[1], y[2] = a + b * 3 - 1, (a << 2) | (b & 7), (a ^ b) >> 1
    y[3], y[4] = min(a, b, 5), max(a, -b)
    y[5] = int_of(a < b <= 8) + 2 * int_of(not (a > 3 or b))
    y[6] = a if a > b and a != 0 else (b if b % 2 == 0 or a > 7 else -1)
    y[7] += a
    y[7] *= 2


def int_of(condition):
    return np.int64(condition)


def test_whole_numbers():
    run = called(whole, "pii")
    for a in NUMBERS:
        for b in NUMBERS:
            y = [a + b * 3 - 1, (a << 2) | (b & 7), (a ^ b) >> 1, min(a, b, 5), max(a, -b), (a < b <= 8) + 2 * (not (a > 3 or b))]
            y += [a if a > b and a != 0 else (b if b % 2 == 0 or a > 7 else -1), 2 * a]
            assert run(a, b).tolist() == y


def divided(out, a, b):
    y = longs(out)
    y[0], y[1], y[2], y[3] = a // b, a % b, a // 4, a % 4


def test_quotients_are_rounded_down():
    run = called(divided, "pii")
    for a in NUMBERS:
        for b in (n for n in NUMBERS if n):
            assert run(a, b)[:4].tolist() == [a // b, a % b, a // 4, a % 4]


def looped(out, n, m):
    y = longs(out)
    for i in range(n):
        if i == 2:
            continue
        y[0] += i
        for k in range(i, m, STEP):
            if k > 11:
                break
            y[1] += k
    at = n
    while at > 1 and y[2] < 100:
        at = at // 2 if at % 2 == 0 else 3 * at + 1
        y[2] += 1
    if n < 0:
        y[3] = 1
        return
    y[3] = at


def by_python(n, m):
    y = [0, 0, 0, 0]
    for i in range(n):
        if i == 2:
            continue
        y[0] += i
        for k in range(i, m, STEP):
            if k > 11:
                break
            y[1] += k
    at = n
    while at > 1 and y[2] < 100:
        at = at // 2 if at % 2 == 0 else 3 * at + 1
        y[2] += 1
    y[3] = 1 if n < 0 else at
    return y


def test_loops():
    run = called(looped, "pii")
    for n in (-3, 0, 1, 2, 3, 6, 27):
        for m in (0, 5, 20):
            assert run(n, m)[:4].tolist() == by_python(n, m)


def pair(a, b):
    return a + b, a - b


def parts(out, n):
    y, first, second = longs(out), 0, 1
    for i in range(n):
        first, second = pair(first, second) if i % 2 == 0 else (second, first)
    y[0], y[1] = first, second


def test_several_values_at_once():
    run, first, second = called(parts, "pi"), 0, 1
    for i in range(9):
        first, second = (first + second, first - second) if i % 2 == 0 else (second, first)
    assert run(9)[:2].tolist() == [first, second]


def guarded(out, at, n):
    y = longs(out)
    y[0] = longs(at)[n - 1] if n > 0 else -1
    y[1] = np.int64(at != 0 and longs(at)[0] == 7)
    y[2] = np.int64(n == 0 or longs(at)[n] == 5)


def test_what_is_not_asked_for_is_not_read():
    run = called(guarded, "ppi")
    held = np.array([7, 5], np.int64)
    assert run(0, 0)[:3].tolist() == [-1, 0, 1]
    assert run(held.ctypes.data, 1)[:3].tolist() == [7, 1, 1]
    assert run(held.ctypes.data + 8, 0)[:3].tolist() == [-1, 0, 1]


def narrow(out, a, x):
    y = longs(out)
    y[0], y[1], y[2] = np.int32(a), np.int8(a), np.uint8(a)
    y[3] = np.int32(x)
    y[4] = np.int32((np.int32(3) + np.int32(127)) << np.int32(23)).view(np.float32) == np.float32(16.0 / 2.0)
    bytes_of = octets(out + 40)
    bytes_of[0] = a
    small = signed(out + 40)
    y[6] = small[0] + octets(out + 40)[0]
    ints(out + 56)[1] = a


def test_smaller_numbers():
    y = called(narrow, "pif")(-300, -2.75)
    assert y[:3].tolist() == [-300, np.int64(-300).astype(np.int8), np.int64(-300).astype(np.uint8)]
    assert y[3] == -2
    assert y[4] == 1
    assert y[6] == int(y[1]) + int(y[2])
    assert y[7] >> 32 == -300


def real(out, a, b):
    y = floats(out)
    y[0], y[1], y[2] = a / b, np.floor(a), np.rint(b)
    y[3], y[4] = np.sqrt(a), -np.inf
    y[5] = np.float32(np.int64(b)) - a
    y[6] = a if a >= b else b
    y[7], y[8], y[9] = np.float32(a == a), np.float32(a != b), np.float32(a < b)
    doubles(out)[5] = math.exp(np.float64(b)) + abs(-1.5)


@pytest.mark.parametrize("a", [0.5, 2.0, 6.25, math.inf, math.nan])
@pytest.mark.parametrize("b", [-2.5, 0.5, 2.0, 3.5])
def test_floats(a, b):
    out = called(real, "pff")(a, b)
    f, g = np.float32(a), np.float32(b)
    wanted = [f / g, np.floor(f), np.rint(g), np.sqrt(f), -math.inf, np.float32(int(b)) - f, f if f >= g else g]
    wanted += [f == f, f != g, f < g]
    np.testing.assert_array_equal(out.view(np.float32)[:10], np.array(wanted, np.float32))
    assert out.view(np.float64)[5] == pytest.approx(math.exp(b) + 1.5, rel=1e-15)


def summed(out, x, n):
    total, y = np.float32(0.0), floats(x)
    for i in range(n):
        total += y[i] * y[i]
    floats(out)[0] = total


def test_a_sum_takes_vectors_of_the_processor():
    text, _ = compiler.entered(Entry(summed, "ppi"), "summed")
    binding, target = machine.llvm(), machine.target()
    module = binding.parse_assembly(text)
    builder = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    assert f"<{machine.lanes()} x float>" in str(module) or "<8 x float>" in str(module)
    x = np.arange(101, dtype=np.float32)
    assert called(summed, "ppi")(x.ctypes.data, x.size).view(np.float32)[0] == np.sum(x * x)


def mixed(out, a):
    floats(out)[0] = a * 2.0


def changed(out, n):
    at = n
    at = np.float32(1.0)
    floats(out)[0] = at


def listed(out):
    longs(out)[0] = [1, 2][0]


def unknown(out):
    longs(out)[0] = nobody  # noqa: F821


def imported(out, n):
    longs(out)[0] = math.gcd(n, 2)


def powered(out, n):
    longs(out)[0] = n**2


def raised(out):
    raise ValueError(out)


def uneven(out, n):
    longs(out)[0] = pair(n, 1)


def endless(n):
    return endless(n - 1) if n > 0 else n


def recursive(out, n):
    longs(out)[0] = endless(n)


def halfway(n):  # noqa: RET503
    if n > 0:
        return n


def forked(out, n):
    longs(out)[0] = halfway(n)


def viewed(out, n):
    floats(out)[0] = n.view(np.float32)


def attributed(out):
    math.pi += 1.0


@shared("ii")
def helping(a, b):
    longs(a)[0] = b


def few(out):
    helping(out)


@pytest.mark.parametrize(
    ("body", "signature", "reason"),
    [
        (mixed, "pf", "Mult of f32 and f64"), (changed, "pi", "f32 in at, which is i64"), (listed, "p", "List"),
        (unknown, "p", "the name nobody"), (imported, "pi", "gcd"), (powered, "pi", "Pow of i64 and i64"), (raised, "p", "Raise"),
        (uneven, "pi", "anything but a number in an element"), (few, "p", "takes 2"),
        (viewed, "pi", "a view of i64 as f32"), (attributed, "p", "an assignment to math.pi"),
        (whole, "p", "takes 3 arguments and is given 1"),
    ],
)  # fmt: skip
def test_what_loops_do_not_have_is_refused_with_its_line(body, signature, reason):
    with pytest.raises(TypeError, match=rf"test_loop_compiler.py:\d+: {body.__name__}: .*{reason}"):
        compiler.entered(Entry(body, signature), "refused")


@pytest.mark.parametrize(
    ("body", "helper", "reason"), [(recursive, endless, "endless calling itself"), (forked, halfway, "ends without a result")]
)
def test_what_a_helper_may_not_do_is_told_with_its_own_line(body, helper, reason):
    with pytest.raises(TypeError, match=rf"test_loop_compiler.py:\d+: {helper.__name__}: .*{reason}"):
        compiler.entered(Entry(body, "pi"), "refused")


def few_more(out):
    helping(out, 1)


def test_helpers_that_are_shared_stand_by_themselves():
    text, needs = compiler.alone(helping, "by_itself")
    assert not needs
    assert "void @by_itself(i64 %a, i64 %b)" in text
    _, needs = compiler.entered(Entry(few_more, "p"), "entered")
    assert needs == {"test_loop_compiler.helping"}


def test_a_loop_brings_what_it_calls():
    build.loop("convolution", "convolve")
    for name in ("onnxbridge_product", "onnxbridge_curves_run", "onnxbridge_convolution_panels"):
        assert presence.outside(name)
