"""Generators of nodes with subgraphs, of low-precision dtypes, and of sequence, optional and string operators."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.operators import Constant, generator, ints
from tests.fuzz.random_values import FLOATS

UNARY = ("Abs", "Neg", "Tanh", "Exp", "Floor", "Relu", "Sigmoid", "Identity")
BINARY_OPS = ("Add", "Sub", "Mul", "Max", "Min")


def _elem_type(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def _value(name, array):
    return helper.make_tensor_value_info(name, _elem_type(array), array.shape)


def _chain(d, source, target, tag):
    """One to three unary nodes from value `source` to value `target`."""
    count = d.integer(1, 3)
    names = [source, *(f"{target}_{tag}{i}" for i in range(count - 1)), target]
    return [helper.make_node(d.choice(UNARY), [a], [b]) for a, b in zip(names, names[1:], strict=False)]


def _branch(d, source, like, tag):
    """A branch that reads a value of the outer graph."""
    return helper.make_graph(_chain(d, source, f"out{tag}", tag), f"branch{tag}", [], [_value(f"out{tag}", like)])


@generator(3)
def loop(d):
    """A Loop with states and scan outputs, terminated by trip count or condition, with an If that reads values of the body."""
    x = d.operand(FLOATS[:2], 0, 3, edges=False)
    other = d.array(x.dtype, x.shape, edges=False)
    max_trip_count = d.integer(0, 4)
    limit = d.integer(0, 5)
    branches = {"then_branch": _branch(d, "sum", x, "a"), "else_branch": _branch(d, "state", x, "b")}
    nodes = [
        helper.make_node("Constant", [], ["limit"], value_int=limit),
        helper.make_node("Less", ["iteration", "limit"], ["condition"]),
        helper.make_node(d.choice(BINARY_OPS), ["state", "other"], ["sum"]),
        helper.make_node("If", ["condition"], ["chosen"], **branches),
        helper.make_node("Constant", [], ["half"], value=helper.make_tensor("h", _elem_type(x), [], [0.5])),
        helper.make_node("Mul", ["chosen", "half"], ["next"]),
        *_chain(d, "next", "scanned", "c"),
        helper.make_node("Identity", ["other"], ["unchanged"]),
    ]  # fmt: skip
    iteration, condition = np.array(0, np.int64), np.array(True)
    inputs = [_value("iteration", iteration), _value("condition_in", condition), _value("state", x), _value("other", x)]
    outputs = [_value("condition", condition), _value("next", x), _value("unchanged", x), _value("scanned", x)]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    count = None if d.coin(0.2) else np.array(max_trip_count, np.int64)
    condition = None if d.coin(0.3) else np.array(d.coin(0.9))
    return "Loop", [count, condition, x, other], {"body": body}, 3


@generator(2)
def scan(d):
    """A Scan with a state, over any axis and in both directions."""
    x = d.operand(FLOATS[:2], 2, 3, empty=False, edges=False)
    axis = d.integer(0, 1)
    rest = tuple(n for i, n in enumerate(x.shape) if i != axis)
    state = d.array(x.dtype, rest, edges=False)
    nodes = [
        helper.make_node(d.choice(BINARY_OPS), ["state", "item"], ["next"]),
        *_chain(d, "next", "scanned", "c"),
    ]
    item = np.zeros(rest, x.dtype)
    inputs, outputs = ([_value(name, item) for name in names] for names in (("state", "item"), ("next", "scanned")))
    body = helper.make_graph(nodes, "body", inputs, outputs)
    attrs = {
        "body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [d.integer(0, 1)],
        "scan_output_axes": [d.integer(0, len(rest))], "scan_output_directions": [d.integer(0, 1)],
    }  # fmt: skip
    return "Scan", [state, x], attrs, 2


@generator(2)
def if_(d):
    """An If whose branches return constants of equal or different shapes."""
    kind = d.choice((np.float32, np.int64))

    def branch(tag):
        array = d.array(kind, d.shape(0, 2))
        tensor = helper.make_tensor("v", _elem_type(array), array.shape, array.tobytes(), raw=True)
        nodes = [helper.make_node("Constant", [], [f"k{tag}"], value=tensor), helper.make_node("Neg", [f"k{tag}"], [f"y{tag}"])]
        return helper.make_graph(nodes, tag, [], [helper.make_tensor_value_info(f"y{tag}", _elem_type(array), None)])

    return "If", [np.array(d.coin(0.5))], {"then_branch": branch("a"), "else_branch": branch("b")}, 1


LOW_PRECISION = {
    ml_dtypes.float8_e4m3fn: 17, ml_dtypes.float8_e4m3fnuz: 18, ml_dtypes.float8_e5m2: 19, ml_dtypes.float8_e5m2fnuz: 20,
    ml_dtypes.uint4: 21, ml_dtypes.int4: 22,
}  # fmt: skip


def _low_precision(d, kind, shape):
    if np.dtype(kind).name.startswith("float8"):
        return d.array(np.float32, shape, edges=False).astype(kind)
    low = -8 if kind is ml_dtypes.int4 else 0
    return np.asarray(d.rng.integers(low, low + 16, shape)).astype(kind)


@generator(3)
def low_precision(d):
    """float8 and int4 dtypes: cast, and quantized per tensor, axis or block."""
    kind = d.choice(list(LOW_PRECISION))
    op = d.choice(("QuantizeLinear", "DequantizeLinear", "Cast", "CastTo"))
    shape = (d.integer(1, 4), d.choice((2, 4)))
    scale_kind = np.float32
    if op == "Cast":
        return op, [_low_precision(d, kind, shape)], {"to": TensorProto.FLOAT}, 1
    if op == "CastTo":
        x = d.array(np.float32, shape, edges=False)
        if not np.dtype(kind).name.startswith("float8"):
            x = np.clip(np.round(x), 0, 7).astype(np.float32)
        return "Cast", [x], {"to": LOW_PRECISION[kind]}, 1
    attrs = {"axis": d.choice((0, 1, -1))}
    granularity = d.choice(("tensor", "axis", "block"))
    if granularity == "block":
        attrs |= {"axis": 1, "block_size": 2}
    lengths = {"tensor": (), "axis": (shape[attrs["axis"]],), "block": (shape[0], shape[1] // 2)}[granularity]
    scale = np.asarray(d.rng.random(lengths) + 0.1, scale_kind)
    zero = np.zeros(lengths, kind) if np.dtype(kind).name.startswith("float8") else _low_precision(d, kind, lengths)
    if op == "DequantizeLinear":
        return op, [_low_precision(d, kind, shape), scale, zero], attrs, 1
    return op, [d.array(np.float32, shape, edges=False), scale, zero], attrs, 1


@generator(2)
def half_precision(d):
    """bfloat16 and float16. ONNX Runtime has few bfloat16 kernels, so these are compared with decompositions and float64."""
    op = d.choice(("Add", "Mul", "Softmax", "Tanh", "Exp", "ReduceSum", "MatMul", "LayerNormalization", "Where", "Gelu", "Clip"))
    kind = d.choice((ml_dtypes.bfloat16, np.float16))

    def values(*shape):
        return d.array(np.float32, shape, edges=False).astype(kind)

    x = values(d.integer(1, 3), 4)
    if op in ("Add", "Mul"):
        return op, [x, values(4)], {}, 1
    if op == "MatMul":
        return op, [x, values(4, 3)], {}, 1
    if op == "ReduceSum":
        return op, [x, ints(1)], {"keepdims": d.integer(0, 1)}, 1
    if op == "LayerNormalization":
        return op, [x, values(4), values(4)], {}, 1
    if op == "Where":
        return op, [d.array(np.bool_, x.shape), x, values(4)], {}, 1
    return op, [x], {}, 1


@generator(3)
def sequence_operators(d):
    """Operators on a sequence, which is a graph input."""
    kind = d.choice((np.float32, np.int64, object))
    rows = [d.array(kind, (d.integer(1, 3), 2), edges=False) for _ in range(d.integer(1, 3))]
    last = len(rows) - 1
    op = d.choice(("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence", "Identity"))
    at = np.array(d.integer(-last - 1, last), np.int64)
    if op == "SequenceInsert":
        return op, [rows, d.array(kind, (1, 2), edges=False), at if d.coin(0.7) else None], {}, 1
    if op in ("SequenceAt", "SequenceErase"):
        return op, [rows, at if op == "SequenceAt" or d.coin(0.7) else None], {}, 1
    if op == "ConcatFromSequence":
        same = d.coin(0.3)
        rows = [rows[0]] * len(rows) if same else rows
        return op, [rows], {"axis": 0, "new_axis": int(same)}, 1
    return op, [rows], {}, 1


@generator()
def optional(d):
    x = d.array(np.float32, (2,))
    if d.coin(0.5):
        return "OptionalHasElement", [x], {}, 1
    return "OptionalGetElement", [x], {}, 1


@generator()
def string_operators(d):
    x = d.array(object, (d.integer(1, 4),))
    if d.coin(0.5):
        attrs = {"case_change_action": d.choice(("NONE", "LOWER", "UPPER")), "is_case_sensitive": d.integer(0, 1)}
        return "StringNormalizer", [x], attrs | ({"stopwords": ["a", "é"]} if d.coin(0.5) else {}), 1
    at = d.rng.integers(0, len(x), (2,))
    return "Gather", [x, Constant(np.asarray(at))], {}, 1
