"""Categories as strings or integers. These are not MIL operators; classical machine learning models need them."""

import numpy as np

from onnxbridge.rules import Int
from onnxbridge.runtime.mil.ops import rule


@rule("category")
def category(x, keys, default: Int):
    """The index of each element among the keys, which are strings or integers; `default` for unknown ones."""
    index_of = {key: index for index, key in enumerate(keys)}
    return np.array([index_of.get(k, default) for k in np.ravel(x).tolist()], np.int64).reshape(np.shape(x))


@rule("name_of")
def name_of(indices, names):
    """The string at each index."""
    return np.asarray(np.array(names, dtype=object)[indices], dtype=object)
