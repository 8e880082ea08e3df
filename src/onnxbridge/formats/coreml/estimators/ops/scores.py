"""What is done to the score of a model at its end."""

import numpy as np

from onnxbridge.errors import Unsupported


def transformed(mil, scores, transform):
    """The scores (n,) after a transform that the specification names."""
    if transform == "NoTransform":
        return scores
    if transform in ("Logit", "Regression_Logistic"):
        return mil.sigmoid(x=scores)
    if transform == "Probit":  # erf is float32 in most runtimes
        small = mil.erf(x=mil.cast(x=mil.mul(x=scores, y=np.float64(np.sqrt(0.5))), dtype="fp32"))
        return mil.mul(x=mil.add(x=mil.cast(x=small, dtype="fp64"), y=np.float64(1)), y=np.float64(0.5))
    if transform == "Classification_SoftMaxWithZeroClassReference":
        scores = mil.concat(values=[np.zeros(1), scores], axis=0)
    elif transform != "Classification_SoftMax":
        raise Unsupported(f"postEvaluationTransform {transform}")
    return mil.softmax(x=scores, axis=-1)


def shares(mil, scores, count, classes):
    """Probabilities of all classes from `count` scores; of two classes one score may be of the second only."""
    if count == classes:
        return scores
    if (count, classes) != (1, 2):
        raise Unsupported(f"{count} scores of {classes} classes")
    return mil.concat(values=[mil.sub(x=np.float64(1), y=scores), scores], axis=0)


def vector(mil, values):
    """The features of all inputs, one after the other, as float64."""
    parts = [mil.cast(x=mil.reshape(x=v, shape=np.array([-1])), dtype="fp64") for v in values]
    return parts[0] if len(parts) == 1 else mil.concat(values=parts, axis=0)
