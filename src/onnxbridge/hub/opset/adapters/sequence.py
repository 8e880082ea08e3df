"""Constants, optionals and sequences."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import dtype_of


@down("Constant", to=11)
def constant(
    op, *, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None, value_string=None, value_strings=None
):
    """The attributes other than `value` as a tensor."""
    forms = (
        (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64),
        (value_string, object), (value_strings, object),
    )  # fmt: skip
    array = value if value is not None else next(np.array(v, dtype) for v, dtype in forms if v is not None)
    return op.Constant(value=array)


@down("Constant", to=8)
def constant_tensor(op, *, value):
    """Before opset 9 a Constant was a float; initializers may have other dtypes."""
    return op.constant(np.asarray(value))


@down("OptionalHasElement", to=17)
def optional_has_element(op, input=None):
    """True for values that are not optionals, false for a missing input."""
    if input is None:
        return op.constant(np.array(False))
    if not isinstance(input.type, ir.OptionalType):
        return op.constant(np.array(True))
    return op.OptionalHasElement(input)


@down("OptionalGetElement", to=17)
def optional_get_element(op, input):
    return op.OptionalGetElement(input) if isinstance(input.type, ir.OptionalType) else op.Identity(input)


def _same_sequence(op, input):
    """An identity of a sequence: an element is inserted at the front and erased again."""
    if isinstance(input.type, ir.OptionalType):
        raise Unsupported("an optional cannot be passed on before opset 16")
    if not isinstance(input.type, ir.SequenceType):
        return op.Identity(input)
    first = np.array(0, np.int64)
    return op.SequenceErase(op.SequenceInsert(input, op.constant(0, dtype=dtype_of(input)), first), first)


down("Identity", to=13)(_same_sequence)


@down("Identity", to=15)
def same_optional(op, input):
    if isinstance(input.type, ir.OptionalType):
        raise Unsupported("an optional cannot be passed on before opset 16")
    return op.Identity(input)
