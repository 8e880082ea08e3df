"""Type and shape inference of nodes, with checks against the schema and dtype promotion of constants."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.errors import UnsupportedDtype
from onnxbridge.hub.ir import strings
from onnxbridge.hub.ir.shape_corrections import correct_shapes, is_refused_wrongly

_NAMES = {
    "float": "FLOAT", "double": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "string": "STRING", "bool": "BOOL",
    "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}  # fmt: skip


@functools.cache
def dtype_of(type_str: str) -> ir.DataType | None:
    """ "tensor(float)" as a dtype; None for other types and type variables."""
    if not type_str.startswith("tensor("):
        return None
    inner = type_str[7:-1]
    return ir.DataType[_NAMES.get(inner, inner.upper())]


def type_str(value: ir.Value) -> str | None:
    """A value's type as the schemas write it, None if unknown or not a tensor."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        return None
    name = value.dtype.name.lower()
    return f"tensor({ {'float': 'float', 'double': 'double'}.get(name, name) })"


@dataclass(frozen=True)
class Formal:
    """An input declared by a schema, cached because each access to a schema's own copies it."""

    name: str
    type_str: str
    types: frozenset[str]
    homogeneous: bool
    variadic: bool


_read: dict[tuple[str, str, int], tuple[Formal, ...]] = {}


def _declared(schema: onnx.defs.OpSchema) -> tuple[Formal, ...]:
    key = schema.domain, schema.name, schema.since_version
    if key not in _read:
        variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
        _read[key] = tuple(
            Formal(f.name, f.type_str, frozenset(f.types), f.is_homogeneous, f.option == variadic) for f in schema.inputs
        )
    return _read[key]


def _formals(schema: onnx.defs.OpSchema, count: int) -> list[Formal]:
    known = _declared(schema)
    if count <= len(known):
        return list(known[:count])
    if not known or not known[-1].variadic:
        raise TypeError(f"{schema.name} takes {len(known)} inputs, not {count}")
    return [*known, *[known[-1]] * (count - len(known))]


def promote(schema: onnx.defs.OpSchema, inputs: Sequence[Any], constant: Callable[..., ir.Value]) -> list[ir.Value | None]:
    """The inputs as values: Python numbers and lists get the dtype of the operand with the same type variable.

    Raises:
        UnsupportedDtype: for a dtype that the operator does not take.
        TypeError: for a wrong number of inputs, operands whose dtypes differ but must not, or a constant that is not
            representable in the other operand's dtype (0.5 with an int64).
    """
    items = list(inputs)
    while items and items[-1] is None:
        items.pop()
    formals = _formals(schema, len(items))
    if len(items) < schema.min_input:
        raise TypeError(f"{schema.name} needs {schema.min_input} inputs, not {len(items)}")
    bound: dict[str, ir.DataType] = {}
    for formal, item in zip(formals, items, strict=True):
        if isinstance(item, (np.ndarray, np.generic, ir.Value)):
            dtype = item.dtype if isinstance(item, ir.Value) else ir.DataType.from_numpy(item.dtype)
            allowed = formal.types
            text = type_str(item) if isinstance(item, ir.Value) else f"tensor({dtype.name.lower()})" if dtype else None
            if text is not None and text not in allowed:
                reason = f"ONNX's {schema.name} does not take {text[7:-1]} as {formal.name!r}"
                raise UnsupportedDtype(reason, "cast it to a dtype that it takes")
            if dtype is not None and formal.type_str not in bound and formal.homogeneous:
                bound[formal.type_str] = dtype
            elif dtype is not None and formal.homogeneous and bound[formal.type_str] != dtype:
                raise TypeError(
                    f"{schema.name}: {formal.name!r} is {dtype.name}, its other operand is {bound[formal.type_str].name}"
                )
    values: list[ir.Value | None] = []
    for formal, item in zip(formals, items, strict=True):
        if item is None or isinstance(item, ir.Value):
            values.append(item)
        elif isinstance(item, (np.ndarray, np.generic)):
            values.append(constant(np.asarray(item)))
        else:
            dtype = bound.get(formal.type_str) or dtype_of(formal.type_str) or _default_dtype(item)
            values.append(constant(_exact(item, dtype, schema.name, formal.name)))
    return values


def _default_dtype(item: Any) -> ir.DataType:
    """The dtype of a Python constant that no operand determines."""
    kind = np.asarray(item).dtype.kind
    if kind in "OSU":
        return ir.DataType.STRING
    return {"f": ir.DataType.FLOAT, "b": ir.DataType.BOOL}.get(kind, ir.DataType.INT64)


def _exact(item: Any, dtype: ir.DataType, op: str, name: str) -> np.ndarray[Any, Any]:
    plain = np.asarray(item)
    if dtype == ir.DataType.STRING:
        return np.asarray(item, dtype=object)
    if plain.size == 0:
        return plain.astype(dtype.numpy())
    converted = plain.astype(dtype.numpy())
    if plain.dtype.kind == "f" and converted.dtype.kind in "iub" and not np.array_equal(converted.astype(plain.dtype), plain):
        raise TypeError(f"{op}: the constant {item!r} for {name!r} is not a {dtype.name}")
    if (
        plain.dtype.kind in "iu"
        and converted.dtype.kind in "iu"
        and not np.array_equal(converted.astype(object), plain.astype(object))
    ):
        raise TypeError(f"{op}: the constant {item!r} for {name!r} is out of range for {dtype.name}")
    return converted


def attribute_value(kind: ir.AttributeType, name: str, value: Any) -> Any:
    """A Python value converted to the type of an ONNX attribute; accepts dtypes for integers."""
    T = ir.AttributeType
    if kind == T.INT:
        if isinstance(value, (ir.DataType, int, np.integer)):
            return int(value)
        if isinstance(value, (np.dtype, type)):
            return int(ir.DataType.from_numpy(np.dtype(value)))
    elif kind == T.FLOAT and isinstance(value, (int, float, np.number)):
        return float(value)
    elif kind == T.STRING and isinstance(value, (str, bytes)):
        return strings.text(value)
    elif kind == T.INTS:
        return [int(v) for v in value]
    elif kind == T.FLOATS:
        return [float(v) for v in value]
    elif kind == T.STRINGS:
        return [strings.text(v) for v in value]
    elif kind == T.TENSOR:
        if isinstance(value, ir.TensorProtocol):
            return value
        array = np.asarray(value)
        return strings.tensor(array) if strings.is_strings(array) else ir.tensor(array)
    elif kind == T.TYPE_PROTO:
        return value
    raise TypeError(f"attribute {name!r} must be {kind.name.lower()}, not {value!r}")


def body_inputs(
    op_type: str, inputs: Sequence[ir.Value | None], attrs: Mapping[str, Any] = MappingProxyType({})
) -> list[tuple[str, ir.TypeAndShape]]:
    """Names and types of the inputs of a control-flow operator's body."""

    def like(v: ir.Value, label: str, drop: bool = False) -> tuple[str, ir.TypeAndShape]:
        shape = v.shape
        if drop and shape is not None:
            shape = ir.Shape(list(shape)[1:])
        return label, ir.TypeAndShape(v.type, shape)

    scalar = ir.Shape([])
    if op_type == "If":
        return []
    if op_type == "Loop":
        counters = [
            ("iteration", ir.TypeAndShape(ir.TensorType(ir.DataType.INT64), scalar)),
            ("condition", ir.TypeAndShape(ir.TensorType(ir.DataType.BOOL), scalar)),
        ]
        # the shape of a state may change from one iteration to the next, only its rank is fixed
        states = []
        for i, v in enumerate(inputs[2:]):
            assert v is not None
            rank = None if v.shape is None else ir.Shape([None] * len(v.shape))
            states.append((f"state_{i}", ir.TypeAndShape(v.type, rank)))
        return counters + states
    if op_type == "Scan" and not set(attrs) & {"scan_input_axes", "scan_output_axes"}:
        states = len(inputs) - attrs["num_scan_inputs"]
        known = [v for v in inputs if v is not None]
        return [like(v, f"state_{i}" if i < states else f"item_{i - states}", drop=i >= states) for i, v in enumerate(known)]
    raise TypeError(f"{op_type}: give the body as an ir.Graph")


Known = Callable[[ir.Value], np.ndarray[Any, Any] | None]


class Contradiction(TypeError):
    """Inputs of a node that the standard does not allow in combination."""


def infer(schema: onnx.defs.OpSchema, node: ir.Node, known: Known | None = None) -> None:
    """Set the dtypes and shapes of a node's outputs with onnx's inference.

    `known` may give the elements of further inputs that are not constants, such as computed sizes.

    Raises:
        Contradiction: if its inputs are inconsistent.
    """
    if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        _infer_from_bodies(node)
        return
    if node.op_type in _REMOVED:
        _infer_trees(node)
        return
    if any(v is not None and v.type is None for v in node.inputs) or is_refused_wrongly(node):
        by_type_variable(schema, node)  # inference would fail without a type
        correct_shapes(node)
        return
    key = _cache_key(schema, node, known)
    inferred = _cache.get(key) if key is not None else None
    if inferred is None:
        inferred = _infer_outputs(schema, node, known)
        if key is not None and all(type(kind) is ir.TensorType for kind, _ in inferred):
            if len(_cache) >= _MAX_CACHED:
                _cache.clear()
            _cache[key] = inferred
    for v, (kind, dims) in zip(node.outputs, inferred, strict=True):
        if kind is not None:
            v.type = ir.TensorType(kind.dtype) if type(kind) is ir.TensorType else kind  # a copy, since it may be changed later
            v.shape = None if dims is None else ir.Shape(dims)
    if any(v.dtype is None for v in node.outputs):
        by_type_variable(schema, node)
    correct_shapes(node)


Inferred = list[tuple[ir.TypeProtocol | None, list[int | ir.SymbolicDim] | None]]
_cache: dict[Hashable, Inferred] = {}
_MAX_CACHED = 8192
"""Models have many equal layers, so inferred types are cached; this is the size of the cache."""


def _cache_key(schema: onnx.defs.OpSchema, node: ir.Node, known: Known | None) -> Hashable | None:
    """All inputs of inference; None if they are too large for a key."""
    found: list[Hashable] = [schema.name, schema.domain, schema.since_version, len(node.outputs)]
    for a in node.attributes.values():
        if a.type not in _PLAIN or a.is_ref():
            return None
        found.append((a.name, tuple(a.value) if isinstance(a.value, (list, tuple)) else a.value))
    for v in node.inputs:
        if v is None:
            found.append(None)
            continue
        if type(v.type) is not ir.TensorType:
            return None
        dims = None if v.shape is None else tuple(d if isinstance(d, int) else d.value for d in v.shape)
        data = _data(v, known)
        found.append((v.type.dtype, dims, None if data is None else (data.dtype.str, data.shape, data.tobytes())))
    return tuple(found)


_PLAIN = frozenset(ir.AttributeType[name] for name in ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS"))


def _data(value: ir.Value, known: Known | None) -> np.ndarray[Any, Any] | None:
    """The elements of an input, if inference may need them."""
    c = value.const_value
    if c is not None and c.size <= 64 and c.dtype != ir.DataType.STRING:
        return np.asarray(c.numpy(), order="C")
    if known is not None and value.dtype in (ir.DataType.INT64, ir.DataType.INT32) and (found := known(value)) is not None:
        return np.asarray(found, order="C")
    return None


def _infer_outputs(schema: onnx.defs.OpSchema, node: ir.Node, known: Known | None) -> Inferred:
    """Types and shapes of a node's outputs according to onnx's inference."""
    inputs = [f"i{i}" if v is not None else "" for i, v in enumerate(node.inputs)]
    outputs = [f"o{i}" for i in range(len(node.outputs))]
    types, data = {}, {}
    for label, v in zip(inputs, node.inputs, strict=True):
        if v is None:
            continue
        if v.type is not None:
            proto = onnx.TypeProto()
            ir.serde.serialize_type_into(proto, v.type)
            if v.shape is not None:
                ir.serde.serialize_shape_into(proto, v.shape)
            types[label] = proto.SerializeToString()
        if (array := _data(v, known)) is not None:
            data[label] = onnx.numpy_helper.from_array(array).SerializeToString()
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=inputs, output=outputs)
    for a in node.attributes.values():
        proto.attribute.append(ir.serde.serialize_attribute(a))
    ceil_mode = node.attributes.get("ceil_mode")
    if ceil_mode is not None and ceil_mode.as_int():  # before opset 22 onnx counts a window that starts in the end padding
        schema = onnx.defs.get_schema(schema.name, schema.domain)
    try:
        inferred = schema._infer_node_outputs(proto.SerializeToString(), types, data, {}, {}, 13)  # type: ignore[call-arg]
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as e:
        raise Contradiction(f"{node.op_type}: {str(e).strip().splitlines()[0]}") from e
    found: Inferred = []
    for label in outputs:
        if label not in inferred:
            found.append((None, None))
            continue
        proto = onnx.TypeProto.FromString(inferred[label])
        if _has_map(proto):  # onnx_ir has no type for maps
            found.append((None, None))
            continue
        shape = ir.serde.deserialize_type_proto_for_shape(proto)
        found.append((ir.serde.deserialize_type_proto_for_type(proto), None if shape is None else list(shape)))
    return found


def _has_map(proto: onnx.TypeProto) -> bool:
    """Whether a type is a map, or a sequence or optional of maps."""
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return _has_map(getattr(proto, kind).elem_type)
    return bool(kind == "map_type")


_REMOVED = frozenset({"TreeEnsembleRegressor", "TreeEnsembleClassifier"})


def _infer_trees(node: ir.Node) -> None:
    """Scores and labels of each row: onnx has no inference for operators that a later version removed."""
    x, attrs = node.inputs[0], node.attributes
    rows = x.shape[0] if x is not None and x.shape is not None and len(x.shape) == 2 else None
    has_strings = "classlabels_strings" in attrs
    names = attrs.get("classlabels_strings" if has_strings else "classlabels_int64s")
    columns = len(names.value) if names is not None else attrs["n_targets"].as_int() if "n_targets" in attrs else None
    scores, *label = reversed(node.outputs)
    scores.type, scores.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([rows, columns])
    for v in label:
        v.type, v.shape = ir.TensorType(ir.DataType.STRING if has_strings else ir.DataType.INT64), ir.Shape([rows])


def by_type_variable(schema: onnx.defs.OpSchema, node: ir.Node) -> None:
    """Without an inferred type, an output has the type of the input with the same type variable, or its only allowed type."""
    inputs = zip(_formals(schema, len(node.inputs)), node.inputs, strict=True)
    bound = {f.type_str: v.type for f, v in inputs if v is not None and f.homogeneous}
    for i, v in enumerate(node.outputs):
        if v.dtype is not None:
            continue
        formal = schema.outputs[min(i, len(schema.outputs) - 1)]
        if not formal.is_homogeneous:  # each output has its own type
            continue
        fixed = dtype_of(formal.type_str)
        v.type = bound.get(formal.type_str) or (ir.TensorType(fixed) if fixed else None)


def _infer_from_bodies(node: ir.Node) -> None:
    bodies = [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]
    if node.op_type == "If":
        for i, v in enumerate(node.outputs):
            ends = [b.outputs[i] for b in bodies]
            v.type = ends[0].type
            v.shape = _common(ends[0].shape, ends[1].shape)
    elif node.op_type == "Loop":
        states = len(node.inputs) - 2
        for i, v in enumerate(node.outputs):
            end = bodies[0].outputs[i + 1]
            v.type = end.type
            if end.shape is not None:
                start = node.inputs[i + 2].shape if i < states and node.inputs[i + 2] is not None else None  # type: ignore[union-attr]
                v.shape = _common(end.shape, start) if i < states else ir.Shape([None, *end.shape])
    elif node.op_type == "SequenceMap":
        for v, end in zip(node.outputs, bodies[0].outputs, strict=True):
            v.type = None if end.type is None else ir.SequenceType(end.type)
    elif node.op_type == "Scan":
        states = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
        from_axes, to_axes = (
            node.attributes[name].as_ints() if name in node.attributes else [0] * count
            for name, count in (("scan_input_axes", len(node.inputs) - states), ("scan_output_axes", len(node.outputs) - states))
        )
        scanned = zip(node.inputs[states:], from_axes, strict=True)
        length: Any = next((v.shape[axis] for v, axis in scanned if v is not None and v.shape is not None), None)
        for i, (v, end) in enumerate(zip(node.outputs, bodies[0].outputs, strict=True)):
            v.type, dims = end.type, None if end.shape is None else list(end.shape)
            if i >= states and dims is not None:
                dims.insert(to_axes[i - states] % (len(dims) + 1), length)
            v.shape = None if dims is None else ir.Shape(dims)


def _common(a: ir.Shape | None, b: ir.Shape | None) -> ir.Shape | None:
    """The dimensions that two shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return ir.Shape([x if x == y else None for x, y in zip(a, b, strict=True)])
