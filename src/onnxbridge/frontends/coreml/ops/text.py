"""Categories as strings or integers."""

import numpy as np

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.rules import Int


@rule("category")
def category(op, x, keys, default: Int):
    key_attribute = "keys_strings" if isinstance(keys[0], str) else "keys_int64s"
    attrs = {key_attribute: list(keys), "values_int64s": list(range(len(keys))), "default_int64": default}
    return op.call("LabelEncoder", x, domain="ai.onnx.ml", **attrs)


@rule("name_of")
def name_of(op, indices, names):
    return op.Gather(op.constant(np.array(names, dtype=object)), indices, axis=0)
