"""Constants and the other forms that values are written in."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.adapters import down


@down("Constant", to=11)
def constant(
    op, *, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None, value_string=None, value_strings=None
):
    """The short forms as a tensor."""
    forms = (
        (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64),
        (value_string, object), (value_strings, object),
    )  # fmt: skip
    array = value if value is not None else next(np.array(v, dtype) for v, dtype in forms if v is not None)
    return op.Constant(value=array)


@down("Constant", to=8)
def constant_tensor(op, *, value):
    """Before opset 9 a Constant was a float; tensors of the graph may hold the other dtypes."""
    return op.constant(np.asarray(value))
