"""Random samples, new ones in every run, and random bits from a state: the same bits as TensorFlow Lite's kernel."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.counter_based_random import high, joined, low, philox, threefry
from onnxbridge.frontends.tensorflow.ops import random as tf
from onnxbridge.frontends.tflite.ops import rule

D = ir.DataType
_WORDS = {"THREEFRY": 2, "PHILOX": 4, "DEFAULT": 4}
SAMPLES = "other samples of the same distribution than TensorFlow Lite's"


@rule("RANDOM_UNIFORM", limits=SAMPLES, kind="random")
def random_uniform(op, shape, *, seed=0, seed2=0):
    return tf.uniform(op, shape)


@rule("RANDOM_STANDARD_NORMAL", limits=SAMPLES, kind="random")
def random_standard_normal(op, shape, *, seed=0, seed2=0):
    return tf.normal(op, shape)


@rule("MULTINOMIAL", limits=SAMPLES, kind="random")
def multinomial(op, logits, num_samples, *, seed=0, seed2=0, output_dtype):
    """`output_dtype` is that of the result."""
    return tf.multinomial(op, logits, num_samples, output_dtype=output_dtype)


@rule("STABLEHLO_RNG_BIT_GENERATOR", limits="a static shape")
def stablehlo_rng_bit_generator(op, initial_state, *, algorithm="DEFAULT", result):
    """The next state and the bits; `result` is the dtype and the shape of the bits.

    The state is a key of 64 bits and a counter. Each value of the counter is encrypted to the words of some elements.
    """
    dtype, shape = result
    if algorithm not in _WORDS or shape is None or None in shape:
        raise Unsupported(f"random bits of the algorithm {algorithm} and the shape {shape}")
    if len(initial_state.shape) != 1 or initial_state.shape[0] not in ((2,) if algorithm == "THREEFRY" else (2, 3)):
        raise Unsupported("a random state of another size than the algorithm's", "get the file again")
    per_call, wide = _WORDS[algorithm], dtype.bitwidth == 64
    count = math.prod(shape)
    calls = -(-count * (2 if wide else 1) // per_call)
    key, counter, *more = (op.Gather(initial_state, np.int64(i)) for i in range(initial_state.shape[0]))
    counters = op.Add(counter, np.arange(calls, dtype=np.uint64))
    words = [low(op, counters), high(op, counters)]
    keys = [low(op, key), high(op, key)]
    if algorithm == "THREEFRY":
        numbers = threefry(op, words, keys)
    else:  # the upper half of the counter, which stays; without one in the state, the kernel uses the key
        upper = more[0] if more else key
        numbers = philox(op, [*words, low(op, upper), high(op, upper)], keys)
    if wide:
        numbers = [joined(op, numbers[i], numbers[i + 1]) for i in range(0, per_call, 2)]
    bits = op.Concat(*(op.Unsqueeze(n, [1]) for n in numbers), axis=1)
    bits = op.Slice(op.Reshape(bits, [-1]), [0], [count], [0])
    following = [key, op.Add(counter, np.uint64(calls)), *more]
    state = op.Concat(*(op.Unsqueeze(s, [0]) for s in following), axis=0)
    return state, op.Cast(op.Reshape(bits, list(shape), allowzero=1), to=dtype)
