"""Third-party operators (torch.library) without a rule become calls of ONNX functions, traced from their Python code."""

from __future__ import annotations

from typing import Any

from onnxbridge.errors import Unsupported
from onnxbridge.lowering import Body, Call, Ref

FUNCTION = "library::function"
"""The name of calls of such functions."""


def call_of(call: Call, target: Any, body: Body, operands: tuple[Any, ...]) -> Body:
    """The operator as a call of a function with its name; `operands` are the values of the body's inputs."""
    schema = target._schema
    name = schema.name.partition("::")[2]
    name = f"{name}_{schema.overload_name}" if schema.overload_name else name
    # constants in the body: calls that differ in them call different functions
    constants = str((_masked(call.inputs), sorted((k, _masked(v)) for k, v in call.attrs.items())))
    names = _parameter_names(call)
    labels = tuple(names.get(o, "x") for o in operands)
    attrs = {"domain": target.namespace, "name": name, "body": body, "form": constants, "labels": labels}
    inner = Call(FUNCTION, operands, attrs, call.outputs, call.location)
    return Body((), [inner], tuple(None if key is None else Ref(key) for key in call.outputs))


def _masked(item: Any) -> Any:
    """An argument with its tensors and sizes masked."""
    if isinstance(item, Ref):
        return "x"
    return tuple(map(_masked, item)) if isinstance(item, tuple) else item


def _parameter_names(call: Call) -> dict[Any, str]:
    """The operator's parameter name of each input."""
    params = call.schema.params if call.schema is not None else ()
    found: dict[Any, str] = {}
    for name, item in (*zip(params, call.inputs, strict=False), *call.attrs.items()):
        for value in item if isinstance(item, tuple) else (item,):
            if isinstance(value, Ref):
                found.setdefault(value, name)
    return found


def unknown(target: Any) -> Unsupported:
    """The error for a third-party operator that cannot be traced, with the rule to write for it."""
    schema = target._schema
    arguments = [a.name if not a.has_default_value() else f"{a.name}={a.default_value!r}" for a in schema.arguments]
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    signature = f'@rule("{name}") def {schema.name.partition("::")[2]}(op, {", ".join(arguments)})'
    return Unsupported(
        "no rule, and no Python implementation that can be traced for all sizes and values",
        f"write a rule in ONNX operators, using `from onnxbridge.frontends.pytorch.ops import rule`: {signature}: ...",
    )
