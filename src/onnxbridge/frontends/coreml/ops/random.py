"""Random numbers. With a seed they differ between runtimes; without one (-1) also between runs."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast
from onnxbridge.rules import Float, Int, Str


def _random(op, onnx, shape, seed, **attrs):
    """Random numbers of a shape that may be dynamic."""
    like = op.Expand(op.constant(np.float32(0)), cast(op, shape, ir.DataType.INT64))
    return op.call(onnx, like, seed=None if seed == -1 else float(seed), **attrs)


@rule("random_bernoulli")
def random_bernoulli(op, shape, prob: Float = 0.5, seed: Int = -1):
    uniform = _random(op, "RandomUniformLike", shape, seed)
    return op.Cast(op.Less(uniform, prob), to=uniform.dtype)


@rule("random_normal")
def random_normal(op, shape, mean: Float = 0.0, stddev: Float = 1.0, seed: Int = -1):
    return _random(op, "RandomNormalLike", shape, seed, mean=mean, scale=stddev)


@rule("random_uniform")
def random_uniform(op, shape, low: Float = 0.0, high: Float = 1.0, seed: Int = -1):
    return _random(op, "RandomUniformLike", shape, seed, low=low, high=high)


@rule("random_categorical", limits="rank 2")
def random_categorical(op, x, mode: Str = "logits", size: Int = 1, seed: Int = -1):
    if mode not in ("logits", "probs") or len(x.shape) != 2:
        raise Unsupported(f"mode {mode}, rank {len(x.shape)}")
    logits = op.Log(x) if mode == "probs" else x
    return op.Cast(op.Multinomial(logits, sample_size=size, seed=None if seed == -1 else float(seed)), to=x.dtype)
