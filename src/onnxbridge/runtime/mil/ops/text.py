"""Categories, which may be texts: no operators of MIL's, but what the models of classical machine learning do."""

import numpy as np

from onnxbridge.rules import Int
from onnxbridge.runtime.mil.ops import rule


@rule("category")
def category(x, keys, default: Int):
    """The place of each element among the keys, texts or whole numbers; `default` for what is none of them."""
    places = {key: place for place, key in enumerate(keys)}
    return np.array([places.get(k, default) for k in np.ravel(x).tolist()], np.int64).reshape(np.shape(x))


@rule("name_of")
def name_of(places, names):
    """The text at each place."""
    return np.asarray(np.array(names, dtype=object)[places], dtype=object)
