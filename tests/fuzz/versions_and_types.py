"""A node in other types and other versions of the standard than it was drawn in, wherever the operator's schema takes them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.draw import Draw
from tests.fuzz.operators import Held

Node = tuple[str, list[Any], dict[str, Any], int]

# What was an attribute before a version and is an input now.
MOVED: dict[str, tuple[int, dict[int, str]]] = {
    "Squeeze": (13, {1: "axes"}), "Unsqueeze": (13, {1: "axes"}), "ReduceSum": (13, {1: "axes"}), "Split": (13, {1: "split"}),
    "Pad": (11, {1: "pads", 2: "value"}), "Slice": (10, {1: "starts", 2: "ends", 3: "axes"}), "Clip": (11, {1: "min", 2: "max"}),
    "TopK": (10, {1: "k"}), "Dropout": (12, {1: "ratio"}), "Tile": (1, {}), "DFT": (20, {2: "axis"}),
    **{f"Reduce{n}": (18, {1: "axes"}) for n in ("Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")},
}  # fmt: skip
# Numbers of these mean more than their values: codes, scales, classes.
AS_DRAWN = {
    "QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv", "ConvInteger", "MatMulInteger", "Cast", "BitCast",
    "Loop", "Scan", "If", "SequenceMap", "RegexFullMatch", "StringConcat", "StringSplit", "LabelEncoder", "TfIdfVectorizer",
    "ai.onnx.ml::OneHotEncoder", "ai.onnx.ml::LabelEncoder", "ai.onnx.ml::CategoryMapper",
}  # fmt: skip
SCALARS = {"k", "ratio", "min", "max", "value", "axis"}


def array_of(item: Any) -> Any:
    return item.array if isinstance(item, Held) else item


def schema_of(op: str, version: int) -> onnx.defs.OpSchema:
    domain, _, kind = op.rpartition("::")
    return onnx.defs.get_schema(kind, 3 if domain else version, domain)


def text(value: Any) -> str:
    """The type of a value as the schemas write it."""
    if isinstance(value, list):
        return f"seq({text(value[0])})"
    return f"tensor({TensorProto.DataType.Name(code(value)).lower()})"


def code(array: Any) -> int:
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def older(node: Node, version: int) -> Node | None:
    """A node as a version of the standard writes it, None where it cannot."""
    op, inputs, attrs, outputs = node
    inputs, attrs = list(inputs), dict(attrs)
    if version < 16 and any(isinstance(a, onnx.GraphProto) for a in attrs.values()):
        return None  # the operators inside are drawn as they are today
    since, moved = MOVED.get(op, (0, {}))
    if version < since:
        steps = array_of(inputs[4]) if op == "Slice" and len(inputs) > 4 else None
        if steps is not None and (steps != 1).any():
            return None
        for at, name in moved.items():
            if at < len(inputs) and inputs[at] is not None:
                values = array_of(inputs[at]).reshape(-1).tolist()
                if not values:
                    return None  # no attribute is an empty list
                attrs[name] = values[0] if name in SCALARS else values
        inputs = inputs[:1]
        if op == "Dropout":
            attrs.pop("seed", None)
    try:
        schema = schema_of(op, version)
    except onnx.defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    attrs = {k: v for k, v in attrs.items() if k in schema.attributes or v not in (0, [])}
    while inputs and inputs[-1] is None:
        inputs.pop()
    fits = set(attrs) <= set(schema.attributes) and schema.min_input <= len(inputs) <= schema.max_input
    if not fits or not schema.min_output <= outputs <= schema.max_output:
        return None
    if any(a.required and name not in attrs for name, a in schema.attributes.items()):
        return None
    formals = schema.inputs
    given = ["" if a is None else text(array_of(a)) for a in inputs]
    return (op, inputs, attrs, outputs) if _bound(formals, given) else None


def _bound(formals: Any, given: list[str]) -> bool:
    """Whether types are allowed, and one for all inputs that share a type."""
    shared: dict[str, str] = {}
    for i, kind in enumerate(given):
        formal = formals[min(i, len(formals) - 1)]
        if kind and (kind not in formal.types or formal.is_homogeneous and shared.setdefault(formal.type_str, kind) != kind):
            return False
    return True


def retyped(d: Draw, node: Node, version: int) -> Node:
    """The node in another type of those that its operator takes, for one of the types that it leaves open."""
    op, inputs, attrs, outputs = node
    if op in AS_DRAWN:
        return node
    schema = schema_of(op, version)
    open_ = {c.type_param_str: [t for t in c.allowed_type_strs if _drawable(t)] for c in schema.type_constraints}
    names = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(inputs))]
    groups = sorted({n for n, x in zip(names, inputs, strict=True) if n in open_ and open_[n] and x is not None})
    if not groups:
        return node
    name = d.pick(groups)
    kind = d.pick(open_[name]).removeprefix("tensor(").removesuffix(")")
    to = np.dtype(object) if kind == "string" else helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind.upper()))
    made: dict[int, Any] = {}
    for i, item in enumerate(inputs):
        if names[i] == name and item is not None:
            array = array_of(item)
            changed = made.setdefault(id(array), _as(d, array, to, op))
            inputs = [*inputs[:i], Held(changed) if isinstance(item, Held) else changed, *inputs[i + 1 :]]
    return op, inputs, attrs, outputs


def _drawable(kind: str) -> bool:
    return kind.startswith("tensor(") and "complex" not in kind and "float8e8m0" not in kind


def _as(d: Draw, array: Any, to: Any, op: str) -> Any:
    """The numbers of an array in another type, those that it has not as near as it comes, and now and then its ends."""
    if isinstance(array, list):
        return [_as(d, a, to, op) for a in array]
    if array.dtype == to:
        return array
    if array.dtype == object:
        array = d.array(np.float32, array.shape, edges=False)
    if to.kind == "O":
        return array.astype(np.float32).astype(str).astype(object)
    if to.kind == "b":
        return array != 0
    if to.kind in "iu" or to.name in ("int4", "uint4", "int2", "uint2"):
        info = np.iinfo(to) if to.kind in "iu" else ml_dtypes.iinfo(to)
        low, high = max(int(info.min), -9), min(int(info.max), 9)
        values = np.clip(np.nan_to_num(array.astype(np.float64)), low, high).round()
        made = values.astype(np.int64).astype(to)
        if op in ("Div", "Mod"):
            return np.where(np.isin(values, (0, -1)), np.array(1, to), made).astype(to)
        if d.chance(0.1) and made.size and op != "BitShift":
            ends = np.array([int(info.min), int(info.max)], object).astype(to)
            made = np.where(d.rng.random(made.shape) < 0.3, ends[d.whole(0, 1)], made).astype(to)
        return np.asarray(made)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.float32) if array.dtype != np.float64 else array).astype(to)
