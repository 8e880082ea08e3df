"""Small MIL programs for the tests, built with coremltools and run by the interpreter."""

import numpy as np

from onnxbridge.frameworks import coremltools
from onnxbridge.runtime.mil import Interpreter

ct = coremltools()
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, Program  # noqa: E402
from coremltools.converters.mil.mil.types.type_mapping import numpy_type_to_builtin_type  # noqa: E402


def program(build, opset=ct.target.iOS18, **inputs):
    """A program whose inputs are like these arrays, and whose body is build(**variables)."""
    placeholders = {n: mb.placeholder(shape=v.shape, dtype=numpy_type_to_builtin_type(v.dtype)) for n, v in inputs.items()}
    with Function(placeholders, opset_version=opset) as function:
        found = build(**function.inputs)
        function.set_outputs(list(found) if isinstance(found, tuple | list) else [found])
    built = Program()
    built.add_function("main", function)
    return built


def compute(build, opset=ct.target.iOS18, **inputs):
    """What the interpreter makes of such a program: one array, or a list."""
    found = list(Interpreter(program(build, opset, **inputs)).run(inputs).values())
    return found if len(found) > 1 else found[0]


def run(op, opset=ct.target.iOS18, parameters=None, **inputs):
    """What the interpreter makes of one operator, with tensors fed when running and parameters fixed in the program."""
    return compute(lambda **v: getattr(mb, op)(**v, **(parameters or {})), opset, **inputs)


def folded(op, opset=ct.target.iOS18, parameters=None, **inputs):
    """What coremltools itself computes for the operator on constants."""
    with Function({}, opset_version=opset) as function:
        found = getattr(mb, op)(**inputs, **(parameters or {}))
        function.set_outputs([mb.const(val=0)])
    variables = found if isinstance(found, tuple | list) else [found]
    values = [np.asarray(v.val) for v in variables]
    return values if len(values) > 1 else values[0]
