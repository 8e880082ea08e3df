"""Random numbers. With a seed they are reproducible, but differ from Core ML's; -1 means no seed."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Float, Int, Ints, Str
from onnxbridge.runtime.mil.ops import rule


def _generator(seed):
    return np.random.default_rng(None if seed == -1 else seed & 0xFFFFFFFF)


@rule("random_bernoulli")
def random_bernoulli(shape: Ints, prob: Float = 0.5, seed: Int = -1):
    return (_generator(seed).random(shape) < prob).astype(np.float32)


@rule("random_normal")
def random_normal(shape: Ints, mean: Float = 0.0, stddev: Float = 1.0, seed: Int = -1):
    return _generator(seed).normal(mean, stddev, shape).astype(np.float32)


@rule("random_uniform")
def random_uniform(shape: Ints, low: Float = 0.0, high: Float = 1.0, seed: Int = -1):
    return _generator(seed).uniform(low, high, shape).astype(np.float32)


@rule("random_categorical")
def random_categorical(x, mode: Str = "logits", size: Int = 1, seed: Int = -1):
    """Samples with the Gumbel-max trick, which takes unnormalized logits."""
    if mode not in ("logits", "probs"):
        raise Unsupported(f"mode {mode}")
    logits = np.log(x) if mode == "probs" else x
    noise = _generator(seed).gumbel(size=(size, *x.shape))
    return np.moveaxis((logits + noise).argmax(-1), 0, -1).astype(np.float32)
