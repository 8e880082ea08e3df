"""Converts a random node to other dtypes and opsets that the operator's schema allows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.operators import Constant
from tests.fuzz.random_values import RandomValues

Node = tuple[str, list[Any], dict[str, Any], int]

# Inputs that were attributes before an opset: operator: (opset, {input index: attribute}).
ATTRIBUTES_BEFORE: dict[str, tuple[int, dict[int, str]]] = {
    "Squeeze": (13, {1: "axes"}), "Unsqueeze": (13, {1: "axes"}), "ReduceSum": (13, {1: "axes"}), "Split": (13, {1: "split"}),
    "Pad": (11, {1: "pads", 2: "value"}), "Slice": (10, {1: "starts", 2: "ends", 3: "axes"}), "Clip": (11, {1: "min", 2: "max"}),
    "TopK": (10, {1: "k"}), "Dropout": (12, {1: "ratio"}), "Tile": (1, {}), "DFT": (20, {2: "axis"}),
    **{f"Reduce{n}": (18, {1: "axes"}) for n in ("Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")},
}  # fmt: skip
# Operators whose input values have a meaning, such as quantization parameters or classes; their dtypes are not changed.
FIXED_DTYPES = {
    "QuantizeLinear", "DequantizeLinear", "QLinearMatMul", "QLinearConv", "ConvInteger", "MatMulInteger", "Cast", "BitCast",
    "Loop", "Scan", "If", "SequenceMap", "RegexFullMatch", "StringConcat", "StringSplit", "LabelEncoder", "TfIdfVectorizer",
    "ai.onnx.ml::OneHotEncoder", "ai.onnx.ml::LabelEncoder", "ai.onnx.ml::CategoryMapper",
}  # fmt: skip
SCALARS = {"k", "ratio", "min", "max", "value", "axis"}


def array_of(item: Any) -> Any:
    return item.array if isinstance(item, Constant) else item


def schema_of(op: str, version: int) -> onnx.defs.OpSchema:
    domain, _, kind = op.rpartition("::")
    return onnx.defs.get_schema(kind, 3 if domain else version, domain)


def type_string(value: Any) -> str:
    """The type string of a value as in schemas."""
    if isinstance(value, list):
        return f"seq({type_string(value[0])})"
    return f"tensor({TensorProto.DataType.Name(elem_type(value)).lower()})"


def elem_type(array: Any) -> int:
    return TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def at_opset(node: Node, version: int) -> Node | None:
    """A node at an older opset, None if that has no equivalent."""
    op, inputs, attrs, outputs = node
    inputs, attrs = list(inputs), dict(attrs)
    if version < 16 and any(isinstance(a, onnx.GraphProto) for a in attrs.values()):
        return None  # the nodes of subgraphs are generated for recent opsets
    since, attribute_names = ATTRIBUTES_BEFORE.get(op, (0, {}))
    if version < since:
        steps = array_of(inputs[4]) if op == "Slice" and len(inputs) > 4 else None
        if steps is not None and (steps != 1).any():
            return None
        for at, name in attribute_names.items():
            if at < len(inputs) and inputs[at] is not None:
                values = array_of(inputs[at]).reshape(-1).tolist()
                if not values:
                    return None  # attributes cannot be empty lists
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
    types = ["" if a is None else type_string(array_of(a)) for a in inputs]
    return (op, inputs, attrs, outputs) if _satisfies_constraints(formals, types) else None


def _satisfies_constraints(formals: Any, types: list[str]) -> bool:
    """Whether the input types satisfy the type constraints of the schema."""
    shared: dict[str, str] = {}
    for i, kind in enumerate(types):
        formal = formals[min(i, len(formals) - 1)]
        if kind and (kind not in formal.types or formal.is_homogeneous and shared.setdefault(formal.type_str, kind) != kind):
            return False
    return True


def with_other_dtype(d: RandomValues, node: Node, version: int) -> Node:
    """The node with another dtype for one of the type constraints of its operator."""
    op, inputs, attrs, outputs = node
    if op in FIXED_DTYPES:
        return node
    schema = schema_of(op, version)
    allowed_dtypes = {c.type_param_str: [t for t in c.allowed_type_strs if _is_supported(t)] for c in schema.type_constraints}
    names = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(inputs))]
    groups = sorted(
        {n for n, x in zip(names, inputs, strict=True) if n in allowed_dtypes and allowed_dtypes[n] and x is not None}
    )
    if not groups:
        return node
    name = d.choice(groups)
    kind = d.choice(allowed_dtypes[name]).removeprefix("tensor(").removesuffix(")")
    to = np.dtype(object) if kind == "string" else helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind.upper()))
    converted: dict[int, Any] = {}
    for i, item in enumerate(inputs):
        if names[i] == name and item is not None:
            array = array_of(item)
            changed = converted.setdefault(id(array), _converted(d, array, to, op))
            inputs = [*inputs[:i], Constant(changed) if isinstance(item, Constant) else changed, *inputs[i + 1 :]]
    return op, inputs, attrs, outputs


def _is_supported(kind: str) -> bool:
    return kind.startswith("tensor(") and "complex" not in kind and "float8e8m0" not in kind


def _converted(d: RandomValues, array: Any, to: Any, op: str) -> Any:
    """Converts an array to another dtype: clipped to its range, sometimes with its extreme values."""
    if isinstance(array, list):
        return [_converted(d, a, to, op) for a in array]
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
        converted = values.astype(np.int64).astype(to)
        if op in ("Div", "Mod"):
            return np.where(np.isin(values, (0, -1)), np.array(1, to), converted).astype(to)
        if d.coin(0.1) and converted.size and op != "BitShift":
            extremes = np.array([int(info.min), int(info.max)], object).astype(to)
            converted = np.where(d.rng.random(converted.shape) < 0.3, extremes[d.integer(0, 1)], converted).astype(to)
        return np.asarray(converted)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.float32) if array.dtype != np.float64 else array).astype(to)
