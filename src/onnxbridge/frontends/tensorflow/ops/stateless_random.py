"""Random operators with explicit seeds: the same numbers as TensorFlow's, by the Philox generator.

A group of results has one value of the counter. All 32-bit numbers are uint64 values here.
"""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.counter_based_random import high, joined, low, philox
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import int64, known_ints
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast

D = ir.DataType
_SEED_KEY = 0x3EC8F720, 0x02461E29
_ALGORITHM = 1
"""Philox, as StatelessRandomGetAlg names it."""


def _key_and_counter(op, seed):
    """The key and the counter, as one and two uint64 values, that TensorFlow derives from two seeds."""
    seeds = op.Cast(int64(op, seed), to=D.UINT64)
    words = [half(op, op.Gather(seeds, np.int64(i))) for i in (0, 1) for half in (low, high)]
    mixed = philox(op, words, [op.constant(np.uint64(k)) for k in _SEED_KEY])
    key = op.Reshape(joined(op, mixed[0], mixed[1]), [1])
    return key, op.Concat(np.zeros(1, np.uint64), op.Reshape(joined(op, mixed[2], mixed[3]), [1]), axis=0)


def _groups(op, key, counter, count, size, calls):
    """The numbers of `count` groups of `size` results that each take `calls` counters: four values, [count * calls]."""
    step = op.Cast(arange(op, count), to=D.UINT64)
    if calls > 1:
        each = op.Mul(step, np.uint64(64 * size))  # what TensorFlow reserves for a group that rejects samples
        step = op.Reshape(op.Add(op.Unsqueeze(each, [1]), np.arange(calls, dtype=np.uint64)), [-1])
    lower, upper = (op.Gather(counter, np.int64(i)) for i in (0, 1))
    moved = op.Add(lower, step)
    upper = op.Add(upper, op.Cast(op.Less(moved, lower), to=D.UINT64))  # the carry
    words = [half(op, v) for v in (moved, upper) for half in (low, high)]
    whole = op.Reshape(key, [])
    return philox(op, words, [low(op, whole), high(op, whole)])


def _filled(op, shape, key, counter, size, results, calls=1):
    """A tensor of results: `results(numbers)` makes a matrix [groups, size] of the numbers of the groups."""
    dims = op.Reshape(int64(op, shape), [-1])
    count = op.ReduceProd(dims, keepdims=0)
    groups = op.Div(op.Add(count, size - 1), size)
    known = known_ints(groups)
    y = results(_groups(op, key, counter, known[0] if known else groups, size, calls))
    return op.Reshape(op.Slice(op.Reshape(y, [-1]), [0], op.Reshape(count, [1])), dims, allowzero=1)


def _columns(op, parts):
    return op.Concat(*(op.Unsqueeze(p, [1]) for p in parts), axis=1)


def _fractions(op, numbers, dtype):
    """Numbers in [0, 1): the lowest bits, as many as the dtype's significand has, over their number."""
    if dtype == D.DOUBLE:
        bits = [joined(op, numbers[i + 1], op.BitwiseAnd(numbers[i], np.uint64(0xFFFFF))) for i in (0, 2)]
        return [op.Mul(op.Cast(b, to=D.DOUBLE), 2.0**-52) for b in bits]
    width = {D.FLOAT: 23, D.FLOAT16: 10, D.BFLOAT16: 7}.get(dtype)
    if width is None:
        raise Unsupported(f"random numbers of {dtype.name}")
    mask = np.uint64((1 << width) - 1)
    return [op.Cast(op.Mul(op.Cast(op.BitwiseAnd(n, mask), to=D.FLOAT), 2.0**-width), to=dtype) for n in numbers]


def _normals(op, numbers, dtype):
    """Pairs of normal numbers by the method of Box and Muller."""
    kind = D.DOUBLE if dtype == D.DOUBLE else D.FLOAT
    u = _fractions(op, numbers, kind)
    results = []
    for i in range(0, len(u), 2):
        radius = op.Sqrt(op.Mul(op.Log(op.Max(u[i], 1e-7)), -2.0))
        angle = op.Mul(u[i + 1], 2 * math.pi)
        results += [op.Mul(op.Sin(angle), radius), op.Mul(op.Cos(angle), radius)]
    return results


def _uniform(op, shape, key, counter, dtype):
    size = 2 if dtype == D.DOUBLE else 4
    return _filled(op, shape, key, counter, size, lambda n: _columns(op, _fractions(op, n, dtype)))


def _normal(op, shape, key, counter, dtype):
    size = 2 if dtype == D.DOUBLE else 4
    return cast(op, _filled(op, shape, key, counter, size, lambda n: _columns(op, _normals(op, n, dtype))), dtype)


_CALLS = 6
"""Counters for a truncated group: that so many candidates hold too few within the bounds has a probability below 1e-20."""


def _truncated(op, shape, key, counter, dtype):
    """The first normal numbers of each group that are less than two standard deviations from 0."""
    size = 2 if dtype == D.DOUBLE else 4
    calls = 2 * _CALLS if dtype == D.DOUBLE else _CALLS

    def results(numbers):
        candidates = op.Reshape(_columns(op, _normals(op, numbers, dtype)), [-1, size * calls])
        kept = op.Less(op.Abs(candidates), 2.0)
        place = op.CumSum(op.Cast(kept, to=D.INT32), np.int64(1))
        here = [op.And(kept, op.Equal(place, np.int32(i + 1))) for i in range(size)]
        return _columns(op, [op.ReduceSum(op.Where(h, candidates, 0.0), [1], keepdims=0) for h in here])

    return cast(op, _filled(op, shape, key, counter, size, results, calls), dtype)


def _bits(op, shape, key, counter, dtype):
    """Uniform integers of the whole range, as uint64 values."""
    if dtype.bitwidth == 64:
        return _filled(op, shape, key, counter, 2, lambda n: _columns(op, [joined(op, n[i], n[i + 1]) for i in (0, 2)]))
    return _filled(op, shape, key, counter, 4, lambda n: _columns(op, n))


def _as_integers(op, bits, dtype):
    unsigned = D.UINT64 if dtype.bitwidth == 64 else D.UINT32
    return op.BitCast(cast(op, bits, unsigned), to=dtype) if dtype != unsigned else cast(op, bits, unsigned)


def _integers(op, shape, key, counter, minval, maxval):
    dtype = minval.dtype
    span = op.Sub(*(op.Cast(v, to=D.INT64) for v in (maxval, minval)))
    unsigned = op.BitCast(span, to=D.UINT64)
    bits = _bits(op, shape, key, counter, dtype)
    rest = op.Sub(bits, op.Mul(op.Div(bits, unsigned), unsigned))
    return cast(op, op.Add(op.Cast(minval, to=D.INT64), op.BitCast(rest, to=D.INT64)), dtype)


def _refuse_other_algorithms(alg):
    known = known_ints(alg)
    if known is None or known[0] not in (_ALGORITHM, 3):  # 3 chooses by the device: Philox on processors
        raise Unsupported("a random generator that is not Philox", "leave the algorithm at its default")


def _rules(name, function):
    """The operator that takes seeds, and the one that takes a key and a counter."""

    @rule(name)
    def seeded(op, shape, seed, *, dtype=D.FLOAT):
        return function(op, shape, *_key_and_counter(op, seed), dtype)

    @rule(f"{name}V2")
    def keyed(op, shape, key, counter, alg, *, dtype=D.FLOAT):
        _refuse_other_algorithms(alg)
        return function(op, shape, key, counter, dtype)


_rules("StatelessRandomUniform", _uniform)
_rules("StatelessRandomNormal", _normal)
_rules("StatelessTruncatedNormal", _truncated)


@rule("StatelessRandomUniformInt")
def stateless_random_uniform_int(op, shape, seed, minval, maxval):
    return _integers(op, shape, *_key_and_counter(op, seed), minval, maxval)


@rule("StatelessRandomUniformIntV2")
def stateless_random_uniform_int_v2(op, shape, key, counter, alg, minval, maxval):
    _refuse_other_algorithms(alg)
    return _integers(op, shape, key, counter, minval, maxval)


@rule("StatelessRandomUniformFullInt")
def stateless_random_uniform_full_int(op, shape, seed, *, dtype=D.UINT64):
    return _as_integers(op, _bits(op, shape, *_key_and_counter(op, seed), dtype), dtype)


@rule("StatelessRandomUniformFullIntV2")
def stateless_random_uniform_full_int_v2(op, shape, key, counter, alg, *, dtype=D.UINT64):
    _refuse_other_algorithms(alg)
    return _as_integers(op, _bits(op, shape, key, counter, dtype), dtype)


@rule("StatelessRandomGetKeyCounter")
def stateless_random_get_key_counter(op, seed):
    return _key_and_counter(op, seed)


@rule("StatelessRandomGetAlg")
def stateless_random_get_alg(op):
    return op.constant(np.int32(_ALGORITHM))


@rule("StatelessRandomGetKeyCounterAlg")
def stateless_random_get_key_counter_alg(op, seed):
    return *_key_and_counter(op, seed), op.constant(np.int32(_ALGORITHM))
