"""Compares operator versions by their schemas: which steps change an operator, and what an older version does not support."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from onnxbridge.hub.ir import schemas
from onnxbridge.hub.ir.schemas import attribute, plain
from onnxbridge.lowering import Schema, same_value

LOWEST, NEWEST = 1, onnx.defs.onnx_opset_version()
NEWEST_ML = onnx.defs.onnx_ml_opset_version()

# Attributes that only optimize memory, or that repeat what the number of outputs says.
_REDUNDANT = {"consumed_inputs"}
# Values that a version adds to an existing attribute.
_NEW_VALUES: Mapping[tuple[str, int], Mapping[str, set[Any]]] = {
    ("Pad", 19): {"mode": {"wrap"}},
    ("Resize", 19): {"coordinate_transformation_mode": {"half_pixel_symmetric"}},
    ("ScatterElements", 18): {"reduction": {"max", "min"}},
    ("ScatterND", 18): {"reduction": {"max", "min"}},
    ("DepthToSpace", 11): {"mode": {"CRD"}},
}
# Attributes of older versions that may be absent without changing the meaning in newer ones.
_OPTIONAL = {"spatial"}
_SATURATING = {"Cast", "CastLike", "QuantizeLinear"}


@functools.cache
def history(op: str) -> dict[int, onnx.defs.OpSchema]:
    """An operator's schemas by the domain version that introduced each, oldest first.

    Operators of ai.onnx.ml are named as by `name_of`: "ai.onnx.ml::LabelEncoder".
    """
    domain, _, name = op.rpartition("::")
    found: dict[int, onnx.defs.OpSchema] = {}
    version = NEWEST if not domain else NEWEST_ML
    while version >= LOWEST and domain in ("", "ai.onnx.ml"):  # listing all schemas takes longer than most conversions
        try:
            schema = onnx.defs.get_schema(name, version, domain)
        except onnx.defs.SchemaError:
            break
        found[schema.since_version] = schema
        version = schema.since_version - 1
    return dict(reversed(found.items()))


def names() -> Iterable[str]:
    """Every operator of ai.onnx, including removed ones."""
    return {schema.name: None for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}


def name_of(node: ir.Node) -> str:
    """The qualified name of a node's operator, as used in this module."""
    return schemas.name_of(node.op_type, node.domain)


@functools.cache
def since(op: str, opset: int) -> int | None:
    """The version of an operator at an opset, None if it does not exist there or was removed."""
    version = max((v for v in history(op) if v <= opset), default=None)
    if version is None or (history(op)[version].deprecated and version != min(history(op))):
        return None
    return version


def missing_reason(op: str, opset: int) -> str:
    """Why an opset does not have an operator."""
    first_version = min(history(op), default=None)
    if first_version is None:
        return "ai.onnx has no such operator"
    return f"added in opset {first_version}" if first_version > opset else f"removed in opset {opset}"


@functools.cache
def first(op: str) -> int:
    """The first version that may be written; GroupNormalization's first one is deprecated and may only be read."""
    return min(v for v, schema in history(op).items() if not schema.deprecated)


@functools.cache
def binding(op: str, version: int) -> Schema:
    """Parameter names and defaults of one version, for argument binding."""
    schema = history(op)[version]
    return Schema(tuple(i.name for i in schema.inputs), defaults(op, version))


@functools.cache
def defaults(op: str, version: int) -> dict[str, Any]:
    schema = history(op)[version]
    return {name: attribute(a.default_value) for name, a in schema.attributes.items() if a.default_value.type}


@functools.cache
def signature_change(op: str, old: int, new: int) -> str:
    """Why a node of the old version is not valid at the new one, "" if it is."""
    a, b = history(op)[old], history(op)[new]
    if b.deprecated:
        return "it was removed"
    if len(b.inputs) < len(a.inputs) or b.min_input > a.min_input or len(b.outputs) < len(a.outputs):
        return "its inputs or outputs changed"
    gone = [n for n in a.attributes if n not in b.attributes and n not in _REDUNDANT]
    if gone:
        return f"the attribute {gone[0]!r} was removed"
    x, y = defaults(op, old), defaults(op, new)
    moved = [
        n for n in a.attributes if n in b.attributes and x.get(n) != y.get(n) and not (n not in x and _same_as_absent(op, n))
    ]
    retyped = [n for n in a.attributes if n in b.attributes and a.attributes[n].type != b.attributes[n].type]
    required = [n for n, p in b.attributes.items() if p.required and not (n in a.attributes and a.attributes[n].required)]
    changed = [*moved, *retyped, *required]
    return f"the attribute {changed[0]!r} changed" if changed else ""


def _same_as_absent(op: str, name: str) -> bool:
    """Whether a new default has the meaning that an absent attribute had before."""
    return (op, name) in {("Clip", "min"), ("Clip", "max")}


def upward(node: ir.Node, old: int, new: int) -> str:
    """Convert a node to the next version in place; returns the reason if this needs an adapter."""
    reason = signature_change(name_of(node), old, new)
    if not reason:
        for name in _REDUNDANT & set(node.attributes):
            if name not in history(name_of(node))[new].attributes:
                del node.attributes[name]
    return reason


def downward(node: ir.Node, new: int, old: int) -> tuple[str, list[str]]:
    """Why a node of version `new` is not valid at version `old` ("" if it is), and the attributes to remove for that."""
    op = name_of(node)
    a, b = history(op)[old], history(op)[new]
    inputs = [i for i, v in enumerate(node.inputs) if v is not None]
    variadic = bool(a.inputs) and a.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    if inputs and inputs[-1] >= len(a.inputs) and not variadic:
        return f"opset {new} added the input {b.inputs[min(inputs[-1], len(b.inputs) - 1)].name!r}", []
    if len(inputs) < a.min_input:
        return f"opset {old} requires the input {a.inputs[len(inputs)].name!r}", []
    used = [i for i, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()]
    if used and used[-1] >= len(a.outputs) and a.outputs and not _variadic_outputs(a):
        return f"opset {new} added output {used[-1]}", []
    x, y = defaults(op, old), defaults(op, new)
    drop = []
    for name, attr in node.attributes.items():
        if attr.is_ref():
            if name not in a.attributes:
                return f"opset {new} added the attribute {name!r}", []
            continue
        value = plain(attr)
        if name not in a.attributes:
            redundant = (
                same_value(value, y.get(name))
                or (name == "dilations" and all(d == 1 for d in value))
                or _is_redundant_saturate(node, name)
            )
            if not redundant:
                return f"opset {new} added the attribute {name!r}, here {value!r}", []
            drop.append(name)
        elif value in _NEW_VALUES.get((node.op_type, new), {}).get(name, ()) if isinstance(value, str) else False:
            return f"opset {new} added {name}={value!r}", []
    for name, declared in a.attributes.items():
        if name not in node.attributes and not _same_when_absent(name, declared, b, x, y):
            return f"the attribute {name!r} changed with opset {new}", []
        if name in b.attributes and declared.type != b.attributes[name].type:
            return f"the attribute {name!r} changed with opset {new}", []
    return "", drop


def _same_when_absent(name: str, declared: Any, newer: onnx.defs.OpSchema, x: Mapping[str, Any], y: Mapping[str, Any]) -> bool:
    """Whether an absent attribute has the same meaning at both versions."""
    if declared.required:
        return False
    if name in newer.attributes:
        return same_value(x.get(name), y.get(name)) or (x.get(name) is None and y.get(name) is None)
    return name in _REDUNDANT or name in _OPTIONAL


def _variadic_outputs(schema: onnx.defs.OpSchema) -> bool:
    return bool(schema.outputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic)


def _is_redundant_saturate(node: ir.Node, name: str) -> bool:
    """`saturate` and `round_mode` apply only to float8 outputs."""
    if name not in ("saturate", "round_mode") or node.op_type not in _SATURATING:
        return False
    dtype = node.outputs[0].dtype
    return dtype is not None and not dtype.name.startswith("FLOAT8")


def wrong_dtype(node: ir.Node, version: int) -> str:
    """Describes the first dtype that an operator does not support at a version; "" if all are supported or unknown."""
    schema = history(name_of(node))[version]
    variables = {c.type_param_str for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for kind, values, formals in (("input", node.inputs, schema.inputs), ("output", node.outputs, schema.outputs)):
        for i, value in enumerate(values):
            found = formal(formals, i)
            text = _type(value.type) if value is not None else None
            if found is None or text is None:
                continue
            short = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor") else text
            if text not in found.types:
                return f"opset {version} does not support {short} for the {kind} {found.name!r}"
            if found.type_str in variables and found.is_homogeneous and bound.setdefault(found.type_str, text) != text:
                return f"opset {version} does not support {short} for the {kind} {found.name!r} together with another dtype"
    return ""


def is_optional_output(node: ir.Node, i: int) -> bool:
    """Whether an output is optional in every version."""
    schemas = history(name_of(node)).values()
    formals = [found for s in schemas if (found := formal(s.outputs, i)) is not None]
    return all(f.option != onnx.defs.OpSchema.FormalParameterOption.Single for f in formals)


def supports(formal: onnx.defs.OpSchema.FormalParameter, value: ir.Value) -> bool:
    """Whether an input or output supports the value's type; true if the type is unknown."""
    text = _type(value.type)
    return text is None or text in formal.types


def _type(kind: ir.TypeProtocol | None) -> str | None:
    """A type as the schemas write it, None if unknown."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _type(kind.elem_type)
        return None if inner is None else f"{'seq' if isinstance(kind, ir.SequenceType) else 'optional'}({inner})"
    return f"tensor({kind.dtype.name.lower()})" if isinstance(kind, ir.TensorType) else None


def formal(formals: Sequence[Any], i: int) -> Any:
    """The schema's declaration of input or output `i`, None if there is none."""
    if i < len(formals):
        return formals[i]
    variadic = formals and formals[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return formals[-1] if variadic else None
