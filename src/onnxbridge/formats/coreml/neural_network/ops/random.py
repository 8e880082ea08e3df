"""Random numbers."""

import numpy as np

from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import number
from onnxbridge.formats.coreml.neural_network.ops.shape import whole


def _family(name, op, parameters):
    """Three layers: in the shape of a blob, in a fixed one, in one that a blob tells. `parameters` are MIL's by the file's."""

    def drawn(mil, shape, seed, given):
        values = {theirs: number(given.get(ours, default)) for ours, (theirs, default) in parameters.items()}
        return mil.emit(op, shape=shape, seed=seed, **values)

    @rule(f"random{name}Like")
    def like(mil, x, *, seed=0, **given):
        return drawn(mil, mil.shape(x=x), seed, given)

    @rule(f"random{name}Static")
    def static(mil, *, outputShape, seed=0, **given):
        return drawn(mil, np.array([int(n) for n in outputShape]), seed, given)

    @rule(f"random{name}Dynamic")
    def dynamic(mil, shape, *, seed=0, **given):
        return drawn(mil, whole(mil, shape), seed, given)


@rule("categoricalDistribution")
def categorical_distribution(mil, x, *, seed=0, numSamples=1, isLogits=False, eps=0.0, temperature=0.0):
    """Drawn by probabilities along the last axis, or by logits over the temperature; `eps` keeps zeros from the logarithm."""
    if temperature not in (0, 1):
        logits = x if isLogits else mil.log(x=x, epsilon=number(eps))
        x, isLogits = mil.real_div(x=logits, y=number(temperature)), True
    drawn = mil.random_categorical(x=x, mode="logits" if isLogits else "probs", size=int(numSamples), seed=seed)
    return mil.cast(x=drawn, dtype="fp32")


_family("Normal", "random_normal", {"mean": ("mean", 0.0), "stdDev": ("stddev", 0.0)})
_family("Uniform", "random_uniform", {"minVal": ("low", 0.0), "maxVal": ("high", 0.0)})
_family("Bernoulli", "random_bernoulli", {"prob": ("prob", 0.0)})
