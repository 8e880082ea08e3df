"""Categories, which may be texts."""

import numpy as np

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.rules import Int


@rule("category")
def category(op, x, keys, default: Int):
    kind = "keys_strings" if isinstance(keys[0], str) else "keys_int64s"
    places = {kind: list(keys), "values_int64s": list(range(len(keys))), "default_int64": default}
    return op.call("LabelEncoder", x, domain="ai.onnx.ml", **places)


@rule("name_of")
def name_of(op, places, names):
    return op.Gather(op.constant(np.array(names, dtype=object)), places, axis=0)
