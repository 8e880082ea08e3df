"""Random number layers."""

import numpy as np

from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32
from onnxbridge.formats.coreml.neural_network.ops.shape import to_int32


def _distribution(name, op, parameters):
    """Register three layers: in the shape of a blob, in a static shape, and in a shape given by a blob.

    `parameters`: MIL's name and the default by the file's name.
    """

    def sample(mil, shape, seed, params):
        values = {mil_name: float32(params.get(name_, default)) for name_, (mil_name, default) in parameters.items()}
        return mil.emit(op, shape=shape, seed=seed, **values)

    @rule(f"random{name}Like")
    def like(mil, x, *, seed=0, **params):
        return sample(mil, mil.shape(x=x), seed, params)

    @rule(f"random{name}Static")
    def static(mil, *, outputShape, seed=0, **params):
        return sample(mil, np.array([int(n) for n in outputShape]), seed, params)

    @rule(f"random{name}Dynamic")
    def dynamic(mil, shape, *, seed=0, **params):
        return sample(mil, to_int32(mil, shape), seed, params)


@rule("categoricalDistribution")
def categorical_distribution(mil, x, *, seed=0, numSamples=1, isLogits=False, eps=0.0, temperature=0.0):
    """Samples from probabilities along the last axis, or from logits / temperature; `eps` avoids the logarithm of 0."""
    if temperature not in (0, 1):
        logits = x if isLogits else mil.log(x=x, epsilon=float32(eps))
        x, isLogits = mil.real_div(x=logits, y=float32(temperature)), True
    sample = mil.random_categorical(x=x, mode="logits" if isLogits else "probs", size=int(numSamples), seed=seed)
    return mil.cast(x=sample, dtype="fp32")


_distribution("Normal", "random_normal", {"mean": ("mean", 0.0), "stdDev": ("stddev", 0.0)})
_distribution("Uniform", "random_uniform", {"minVal": ("low", 0.0), "maxVal": ("high", 0.0)})
_distribution("Bernoulli", "random_bernoulli", {"prob": ("prob", 0.0)})
