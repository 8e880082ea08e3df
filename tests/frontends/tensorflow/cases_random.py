# ruff: noqa: E501  one operator per line
"""Samples of random operators with explicit seeds, which give TensorFlow's numbers."""

from __future__ import annotations

import numpy as np

from tests.frontends.tensorflow.samples import Input, S

SEEDS = Input(np.array([-5, 1 << 40]))
KEY = Input(np.array([0x9E3779B97F4A7C15], np.uint64))
COUNTER = Input(np.array([(1 << 64) - 2, 7], np.uint64))  # the carry
SHAPE = Input(np.array([3, 5], np.int32))
INTEGERS = (np.int32, np.int64)

for _op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
    for _dtype in (np.float32, np.float64, np.float16):
        S(_op, shape=[7, 3], seed=SEEDS, dtype=np.dtype(_dtype).name)
        S(f"{_op}V2", shape=SHAPE, key=KEY, counter=COUNTER, alg=np.int32(1), dtype=np.dtype(_dtype).name)
    S(_op, shape=[], seed=SEEDS, dtype="float32")
    S(f"{_op}V2", shape=[2, 0], key=KEY, counter=COUNTER, alg=np.int32(3), dtype="float32")
for _dtype in INTEGERS:
    S("StatelessRandomUniformInt", shape=SHAPE, seed=SEEDS, minval=_dtype(-3), maxval=_dtype(1000))
    S("StatelessRandomUniformIntV2", shape=[9], key=KEY, counter=COUNTER, alg=np.int32(1), minval=Input(np.array(-3, _dtype)), maxval=Input(np.array(8, _dtype)))
for _dtype in (*INTEGERS, np.uint32, np.uint64):
    S("StatelessRandomUniformFullInt", shape=SHAPE, seed=SEEDS, dtype=np.dtype(_dtype).name)
    S("StatelessRandomUniformFullIntV2", shape=[9], key=KEY, counter=COUNTER, alg=np.int32(1), dtype=np.dtype(_dtype).name)
S("StatelessRandomGetKeyCounter", seed=SEEDS)
S("StatelessRandomGetKeyCounterAlg", seed=SEEDS)
S("StatelessRandomGetKeyCounter", seed=Input(np.array([3, -4], np.int32)))
