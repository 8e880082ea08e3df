"""A frontend for polynomials: the string "3 0 -1", or a `.poly` file with it, is 3x² - 1, evaluated elementwise."""

from __future__ import annotations

import os

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import SourceLocation, UnsafeFileError
from onnxbridge.hub.builder.target import HubTarget
from onnxbridge.lowering import Call, Ref, lower, resolve
from onnxbridge.plugins import Frontend
from onnxbridge.rules import Rules

rule = Rules("frontends.polynomial", writer=True)


@rule("horner")
def horner(op, y, x, *, coefficient=0.0):
    """One step of Horner's scheme."""
    return op.Add(op.Mul(y, x), coefficient)


@rule("constant")
def constant(op, x, *, value):
    return op.Add(op.Mul(x, 0.0), value)


def coefficients(source):
    text = source
    if os.path.exists(source):
        with open(source) as file:
            text = file.read(10_000)
    try:
        return [float(c) for c in text.split()]
    except ValueError:
        raise UnsafeFileError(f"{source} is not a polynomial: expected its coefficients, highest power first") from None


class PolynomialFrontend(Frontend):
    """Reads polynomials."""

    name = "polynomial"
    title = "Polynomial"
    aliases = ("poly",)
    rules = rule

    def accepts(self, source):
        return isinstance(source, str) and source.endswith(".poly")

    def to_hub(self, source, inputs, dynamic):
        first, *rest = coefficients(source)
        shape, dtype = (inputs or {}).get("x", (("N",), "float32"))
        target = HubTarget("Polynomial to ONNX", lambda key: (str(key), None, None))
        x = target.writer.input("x", ir.DataType.from_numpy(np.dtype(dtype)), list(shape))
        calls = [Call("constant", (Ref("x"),), {"value": first}, ("y0",), SourceLocation(node="y0"))]
        for i, c in enumerate(rest):
            name = f"y{i + 1}"
            calls.append(Call("horner", (Ref(f"y{i}"), Ref("x")), {"coefficient": c}, (name,), SourceLocation(node=name)))
        values = {"x": x}
        lower(calls, rule, values, target)
        (y,) = resolve([Ref(f"y{len(rest)}")], values)
        return target.writer.model([x], [target.writer.output(y, "y")])

    def runs_here(self):
        return True

    def runner(self, source, device="auto"):
        terms = coefficients(source)
        return lambda feeds: {"y": np.polyval(np.array(terms, feeds["x"].dtype), feeds["x"])}


frontend = PolynomialFrontend()
