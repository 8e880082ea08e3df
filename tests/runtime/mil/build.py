"""Small MIL programs for the tests, built with coremltools and run by the interpreter.

Every program that the frontend supports is also converted to the hub, where ONNX Runtime must match the interpreter.
"""

import numpy as np

from onnxbridge.frameworks import coremltools
from onnxbridge.frontends.coreml import frontend
from onnxbridge.hub import passes
from onnxbridge.runtime import devices
from onnxbridge.runtime.mil import Interpreter

ct = coremltools()
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, Program  # noqa: E402
from coremltools.converters.mil.mil.types.type_mapping import numpy_type_to_builtin_type  # noqa: E402


def program(build, opset=ct.target.iOS18, **inputs):
    """A program with inputs of the types of these arrays, whose body is build(**variables)."""
    placeholders = {n: mb.placeholder(shape=v.shape, dtype=numpy_type_to_builtin_type(v.dtype)) for n, v in inputs.items()}
    with Function(placeholders, opset_version=opset) as function:
        found = build(**function.inputs)
        function.set_outputs(list(found) if isinstance(found, tuple | list) else [found])
    built = Program()
    built.add_function("main", function)
    return built


def compute(build, opset=ct.target.iOS18, *, hub=True, **inputs):
    """Run such a program with the interpreter: one array, or a list. `hub`: also compare with ONNX Runtime."""
    built = program(build, opset, **inputs)
    found = Interpreter(built).run(inputs)
    if hub:
        assert_hub_matches(built, inputs, found)
    found = list(found.values())
    return found if len(found) > 1 else found[0]


def assert_hub_matches(built, inputs, found):
    """Check that the converted hub model matches the interpreter's results: up to 1e-3 of the largest number in float16, and
    1e-4 in float32."""
    model = passes.clean(frontend.to_hub(built))
    feeds = {v.name: np.asarray(inputs[v.name]) for v in model.graph.inputs}
    for want, got in zip(found.values(), devices.run(devices.session(model, "cpu"), feeds).values(), strict=True):
        want, got = np.asarray(want), np.asarray(got)
        assert got.dtype == want.dtype and got.shape == want.shape
        finite = np.abs(want[np.isfinite(want)]).max(initial=0) if want.dtype.kind == "f" else 0
        unit = 1e-3 if want.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(got, want, rtol=0, atol=unit * max(1, finite) if want.dtype.kind == "f" else 0)


def run(op, opset=ct.target.iOS18, parameters=None, *, hub=True, **inputs):
    """Run one operator with the interpreter: `inputs` are fed, `parameters` are constants of the program."""
    return compute(lambda **v: getattr(mb, op)(**v, **(parameters or {})), opset, hub=hub, **inputs)


def fold_with_coremltools(op, opset=ct.target.iOS18, parameters=None, **inputs):
    """The value that coremltools computes for the operator on constants."""
    with Function({}, opset_version=opset) as function:
        found = getattr(mb, op)(**inputs, **(parameters or {}))
        function.set_outputs([mb.const(val=0)])
    variables = found if isinstance(found, tuple | list) else [found]
    values = [np.asarray(v.val) for v in variables]
    return values if len(values) > 1 else values[0]
