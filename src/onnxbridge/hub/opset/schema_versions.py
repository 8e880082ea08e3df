"""What the schemas say about an operator's versions: which steps change it, and what of a node an older version cannot hold."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from onnxbridge.hub.ir import schemas
from onnxbridge.hub.ir.schemas import attribute, plain
from onnxbridge.lowering import Schema, same

LOWEST, NEWEST = 1, onnx.defs.onnx_opset_version()
NEWEST_ML = onnx.defs.onnx_ml_opset_version()

# Attributes that only hint at memory, or that say twice what the number of outputs says.
_IDLE = {"consumed_inputs"}
# Values that a version adds to an attribute which was there already.
_NEW_VALUES: Mapping[tuple[str, int], Mapping[str, set[Any]]] = {
    ("Pad", 19): {"mode": {"wrap"}},
    ("Resize", 19): {"coordinate_transformation_mode": {"half_pixel_symmetric"}},
    ("ScatterElements", 18): {"reduction": {"max", "min"}},
    ("ScatterND", 18): {"reduction": {"max", "min"}},
    ("DepthToSpace", 11): {"mode": {"CRD"}},
}
# What an older version may be silent of and still mean what newer ones do.
_LEFT_OUT = {"spatial"}
_SATURATING = {"Cast", "CastLike", "QuantizeLinear"}


@functools.cache
def history(op: str) -> dict[int, onnx.defs.OpSchema]:
    """An operator's schemas by the version of its domain that each came with, oldest first.

    Operators of ai.onnx.ml are called by `name_of`: "ai.onnx.ml::LabelEncoder".
    """
    domain, _, name = op.rpartition("::")
    found: dict[int, onnx.defs.OpSchema] = {}
    version = NEWEST if not domain else NEWEST_ML
    while version >= LOWEST and domain in ("", "ai.onnx.ml"):  # the list of all schemas takes longer to make than most models
        try:
            schema = onnx.defs.get_schema(name, version, domain)
        except onnx.defs.SchemaError:
            break
        found[schema.since_version] = schema
        version = schema.since_version - 1
    return dict(reversed(found.items()))


def names() -> Iterable[str]:
    """Every operator that ai.onnx has had."""
    return {schema.name: None for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == ""}


def name_of(node: ir.Node) -> str:
    """The name by which this module knows a node's operator."""
    return schemas.name_of(node.op_type, node.domain)


@functools.cache
def since(op: str, opset: int) -> int | None:
    """The version of an operator that an opset has, None where it has none or has given it up."""
    version = max((v for v in history(op) if v <= opset), default=None)
    if version is None or (history(op)[version].deprecated and version != min(history(op))):
        return None
    return version


@functools.cache
def first(op: str) -> int:
    """The first version that may still be written; GroupNormalization's first one may only be read."""
    return min(v for v, schema in history(op).items() if not schema.deprecated)


@functools.cache
def binding(op: str, version: int) -> Schema:
    """Parameter names and defaults of one version, for the walker's binding."""
    schema = history(op)[version]
    return Schema(tuple(i.name for i in schema.inputs), defaults(op, version))


@functools.cache
def defaults(op: str, version: int) -> dict[str, Any]:
    schema = history(op)[version]
    return {name: attribute(a.default_value) for name, a in schema.attributes.items() if a.default_value.type}


@functools.cache
def signature_change(op: str, old: int, new: int) -> str:
    """Why a node of the old version may not stand as it is at the new one, "" where it may."""
    a, b = history(op)[old], history(op)[new]
    if b.deprecated:
        return "it was given up"
    if len(b.inputs) < len(a.inputs) or b.min_input > a.min_input or len(b.outputs) < len(a.outputs):
        return "its inputs or outputs changed"
    gone = [n for n in a.attributes if n not in b.attributes and n not in _IDLE]
    if gone:
        return f"the attribute {gone[0]!r} went away"
    x, y = defaults(op, old), defaults(op, new)
    moved = [n for n in a.attributes if n in b.attributes and x.get(n) != y.get(n) and not (n not in x and _absent_is(op, n))]
    retyped = [n for n in a.attributes if n in b.attributes and a.attributes[n].type != b.attributes[n].type]
    required = [n for n, p in b.attributes.items() if p.required and not (n in a.attributes and a.attributes[n].required)]
    changed = [*moved, *retyped, *required]
    return f"the attribute {changed[0]!r} changed" if changed else ""


def _absent_is(op: str, name: str) -> bool:
    """Whether a default only puts into words what leaving the attribute out meant before."""
    return (op, name) in {("Clip", "min"), ("Clip", "max")}


def upward(node: ir.Node, old: int, new: int) -> str:
    """Make a node of one version one of the next in place; the reason where only an adapter could."""
    reason = signature_change(name_of(node), old, new)
    if not reason:
        for name in _IDLE & set(node.attributes):
            if name not in history(name_of(node))[new].attributes:
                del node.attributes[name]
    return reason


def downward(node: ir.Node, new: int, old: int) -> tuple[str, list[str]]:
    """What keeps a node of one version from standing at the one before, and else which attributes must be left out there."""
    op = name_of(node)
    a, b = history(op)[old], history(op)[new]
    inputs = [i for i, v in enumerate(node.inputs) if v is not None]
    variadic = bool(a.inputs) and a.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    if inputs and inputs[-1] >= len(a.inputs) and not variadic:
        return f"opset {new} added the input {b.inputs[min(inputs[-1], len(b.inputs) - 1)].name!r}", []
    if len(inputs) < a.min_input:
        return f"opset {old} needs the input {a.inputs[len(inputs)].name!r}", []
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
            idle = same(value, y.get(name)) or (name == "dilations" and all(d == 1 for d in value)) or _idle_saturate(node, name)
            if not idle:
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
    """Whether leaving an attribute out says the same at both versions."""
    if declared.required:
        return False
    if name in newer.attributes:
        return same(x.get(name), y.get(name)) or (x.get(name) is None and y.get(name) is None)
    return name in _IDLE or name in _LEFT_OUT


def _variadic_outputs(schema: onnx.defs.OpSchema) -> bool:
    return bool(schema.outputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic)


def _idle_saturate(node: ir.Node, name: str) -> bool:
    """`saturate` and `round_mode` speak of float8 targets only."""
    if name not in ("saturate", "round_mode") or node.op_type not in _SATURATING:
        return False
    dtype = node.outputs[0].dtype
    return dtype is not None and not dtype.name.startswith("FLOAT8")


def wrong_dtype(node: ir.Node, version: int) -> str:
    """The first dtype that an operator does not take at a version, as a reason; "" where all are fine or not known."""
    schema = history(name_of(node))[version]
    variables = {c.type_param_str for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for kind, values, formals in (("takes", node.inputs, schema.inputs), ("gives", node.outputs, schema.outputs)):
        for i, value in enumerate(values):
            found = formal(formals, i)
            text = _type(value.type) if value is not None else None
            if found is None or text is None:
                continue
            short = text.removeprefix("tensor(").removesuffix(")") if text.startswith("tensor") else text
            if text not in found.types:
                return f"opset {version} {kind} no {short} as {found.name!r}"
            if found.type_str in variables and found.is_homogeneous and bound.setdefault(found.type_str, text) != text:
                return f"opset {version} {kind} no {short} as {found.name!r} beside another dtype"
    return ""


def may_leave_out(node: ir.Node, i: int) -> bool:
    """Whether an output may go without a name, in whatever version."""
    schemas = history(name_of(node)).values()
    formals = [found for s in schemas if (found := formal(s.outputs, i)) is not None]
    return all(f.option != onnx.defs.OpSchema.FormalParameterOption.Single for f in formals)


def takes(formal: onnx.defs.OpSchema.FormalParameter, value: ir.Value) -> bool:
    """Whether an input or output may have the value's type, as far as that is known."""
    text = _type(value.type)
    return text is None or text in formal.types


def _type(kind: ir.TypeProtocol | None) -> str | None:
    """A type as the schemas write it, None where it is not known."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _type(kind.elem_type)
        return None if inner is None else f"{'seq' if isinstance(kind, ir.SequenceType) else 'optional'}({inner})"
    return f"tensor({kind.dtype.name.lower()})" if isinstance(kind, ir.TensorType) else None


def formal(formals: Sequence[Any], i: int) -> Any:
    """The declaration of an operator's input or output `i`, None where it has none."""
    if i < len(formals):
        return formals[i]
    variadic = formals and formals[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return formals[-1] if variadic else None
