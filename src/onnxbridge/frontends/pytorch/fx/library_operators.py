"""Operators of libraries' own (torch.library) without a rule: calls of ONNX functions, with bodies traced from their code."""

from __future__ import annotations

from typing import Any

from onnxbridge.errors import Unsupported
from onnxbridge.lowering import Body, Call, Ref

FUNCTION = "library::function"
"""The operator that stands for a call of such a function."""


def call_of(call: Call, target: Any, body: Body, operands: tuple[Any, ...]) -> Body:
    """The operator as one call of a function of its own name; `operands` are what the body's inputs stand for."""
    schema = target._schema
    name = schema.name.partition("::")[2]
    name = f"{name}_{schema.overload_name}" if schema.overload_name else name
    # what is fixed in the body: two calls that differ in it are calls of two functions
    fixed = str((_fixed(call.inputs), sorted((k, _fixed(v)) for k, v in call.attrs.items())))
    names = _names(call)
    labels = tuple(names.get(o, "x") for o in operands)
    attrs = {"domain": target.namespace, "name": name, "body": body, "form": fixed, "labels": labels}
    inner = Call(FUNCTION, operands, attrs, call.outputs, call.where)
    return Body((), [inner], tuple(None if key is None else Ref(key) for key in call.outputs))


def _fixed(item: Any) -> Any:
    """An argument with the tensors and sizes in it left out."""
    if isinstance(item, Ref):
        return "x"
    return tuple(map(_fixed, item)) if isinstance(item, tuple) else item


def _names(call: Call) -> dict[Any, str]:
    """The operator's own names for what comes in."""
    params = call.schema.params if call.schema is not None else ()
    found: dict[Any, str] = {}
    for name, item in (*zip(params, call.inputs, strict=False), *call.attrs.items()):
        for each in item if isinstance(item, tuple) else (item,):
            if isinstance(each, Ref):
                found.setdefault(each, name)
    return found


def unknown(target: Any) -> Unsupported:
    """Why an operator of a library's own is refused, and the rule to write for it."""
    schema = target._schema
    arguments = [a.name if not a.has_default_value() else f"{a.name}={a.default_value!r}" for a in schema.arguments]
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    written = f'@rule("{name}") def {schema.name.partition("::")[2]}(op, {", ".join(arguments)})'
    return Unsupported(
        "no rule, and no code in Python that can be traced for any sizes and values",
        f"write a rule in ONNX operators, with `from onnxbridge.frontends.pytorch.ops import rule`: {written}: ...",
    )
