"""How nodes with graphs inside, small types, sequences, optional values and texts are drawn."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.draw import FLOATS
from tests.fuzz.operators import Held, ints, spec

INNER = ("Abs", "Neg", "Tanh", "Exp", "Floor", "Relu", "Sigmoid", "Identity")
PAIRS = ("Add", "Sub", "Mul", "Max", "Min")


def _code(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def _value(name, array):
    return helper.make_tensor_value_info(name, _code(array), array.shape)


def _chain(d, source, target, tag):
    """One to three operators of one operand, from one name to another."""
    count = d.whole(1, 3)
    names = [source, *(f"{target}_{tag}{i}" for i in range(count - 1)), target]
    return [helper.make_node(d.pick(INNER), [a], [b]) for a, b in zip(names, names[1:], strict=False)]


def _branch(d, source, like, tag):
    """A graph without inputs that reads a value of the graph around it."""
    return helper.make_graph(_chain(d, source, f"out{tag}", tag), f"branch{tag}", [], [_value(f"out{tag}", like)])


@spec(3)
def looped(d):
    """States and gathered values, an end by count or by a condition, and a branch that sees the loop's own values."""
    x = d.some(FLOATS[:2], 0, 3, edges=False)
    other = d.array(x.dtype, x.shape, edges=False)
    most = d.whole(0, 4)
    ends = d.whole(0, 5)
    branches = {"then_branch": _branch(d, "sum", x, "a"), "else_branch": _branch(d, "state", x, "b")}
    nodes = [
        helper.make_node("Constant", [], ["last"], value_int=ends),
        helper.make_node("Less", ["turn", "last"], ["goes"]),
        helper.make_node(d.pick(PAIRS), ["state", "other"], ["sum"]),
        helper.make_node("If", ["goes"], ["chosen"], **branches),
        helper.make_node("Constant", [], ["half"], value=helper.make_tensor("h", _code(x), [], [0.5])),
        helper.make_node("Mul", ["chosen", "half"], ["next"]),
        *_chain(d, "next", "seen", "c"),
        helper.make_node("Identity", ["other"], ["kept"]),
    ]  # fmt: skip
    turn, go = np.array(0, np.int64), np.array(True)
    takes = [_value("turn", turn), _value("goes_in", go), _value("state", x), _value("other", x)]
    gives = [_value("goes", go), _value("next", x), _value("kept", x), _value("seen", x)]
    body = helper.make_graph(nodes, "body", takes, gives)
    count = None if d.chance(0.2) else np.array(most, np.int64)
    go = None if d.chance(0.3) else np.array(d.chance(0.9))
    return "Loop", [count, go, x, other], {"body": body}, 3


@spec(2)
def scanned(d):
    """Forwards or backwards over one axis or another, with a state."""
    x = d.some(FLOATS[:2], 2, 3, empty=False, edges=False)
    axis = d.whole(0, 1)
    rest = tuple(n for i, n in enumerate(x.shape) if i != axis)
    state = d.array(x.dtype, rest, edges=False)
    nodes = [
        helper.make_node(d.pick(PAIRS), ["state", "item"], ["next"]),
        *_chain(d, "next", "seen", "c"),
    ]
    item = np.zeros(rest, x.dtype)
    takes, gives = ([_value(name, item) for name in names] for names in (("state", "item"), ("next", "seen")))
    body = helper.make_graph(nodes, "body", takes, gives)
    attrs = {
        "body": body, "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_input_directions": [d.whole(0, 1)],
        "scan_output_axes": [d.whole(0, len(rest))], "scan_output_directions": [d.whole(0, 1)],
    }  # fmt: skip
    return "Scan", [state, x], attrs, 2


@spec(2)
def chosen_branch(d):
    """Branches of constants, of one shape or two."""
    kind = d.pick((np.float32, np.int64))

    def branch(tag):
        array = d.array(kind, d.sizes(0, 2))
        made = helper.make_tensor("v", _code(array), array.shape, array.tobytes(), raw=True)
        nodes = [helper.make_node("Constant", [], [f"k{tag}"], value=made), helper.make_node("Neg", [f"k{tag}"], [f"y{tag}"])]
        return helper.make_graph(nodes, tag, [], [helper.make_tensor_value_info(f"y{tag}", _code(array), None)])

    return "If", [np.array(d.chance(0.5))], {"then_branch": branch("a"), "else_branch": branch("b")}, 1


SMALL = {
    ml_dtypes.float8_e4m3fn: 17, ml_dtypes.float8_e4m3fnuz: 18, ml_dtypes.float8_e5m2: 19, ml_dtypes.float8_e5m2fnuz: 20,
    ml_dtypes.uint4: 21, ml_dtypes.int4: 22,
}  # fmt: skip


def _small(d, kind, shape):
    if np.dtype(kind).name.startswith("float8"):
        return d.array(np.float32, shape, edges=False).astype(kind)
    low = -8 if kind is ml_dtypes.int4 else 0
    return np.asarray(d.rng.integers(low, low + 16, shape)).astype(kind)


@spec(3)
def few_bits(d):
    """Numbers of 4 and 8 bits: quantized, dequantized by tensor, axis or block, cast."""
    kind = d.pick(list(SMALL))
    op = d.pick(("QuantizeLinear", "DequantizeLinear", "Cast", "CastTo"))
    shape = (d.whole(1, 4), d.pick((2, 4)))
    scale_kind = np.float32
    if op == "Cast":
        return op, [_small(d, kind, shape)], {"to": TensorProto.FLOAT}, 1
    if op == "CastTo":
        x = d.array(np.float32, shape, edges=False)
        if not np.dtype(kind).name.startswith("float8"):
            x = np.clip(np.round(x), 0, 7).astype(np.float32)
        return "Cast", [x], {"to": SMALL[kind]}, 1
    attrs = {"axis": d.pick((0, 1, -1))}
    each = d.pick(("tensor", "axis", "block"))
    if each == "block":
        attrs |= {"axis": 1, "block_size": 2}
    lengths = {"tensor": (), "axis": (shape[attrs["axis"]],), "block": (shape[0], shape[1] // 2)}[each]
    scale = np.asarray(d.rng.random(lengths) + 0.1, scale_kind)
    zero = np.zeros(lengths, kind) if np.dtype(kind).name.startswith("float8") else _small(d, kind, lengths)
    if op == "DequantizeLinear":
        return op, [_small(d, kind, shape), scale, zero], attrs, 1
    return op, [d.array(np.float32, shape, edges=False), scale, zero], attrs, 1


@spec(2)
def short_floats(d):
    """bfloat16, of which ONNX Runtime has few kernels: the expansions and float64 judge it."""
    op = d.pick(("Add", "Mul", "Softmax", "Tanh", "Exp", "ReduceSum", "MatMul", "LayerNormalization", "Where", "Gelu", "Clip"))
    kind = d.pick((ml_dtypes.bfloat16, np.float16))

    def drawn(*shape):
        return d.array(np.float32, shape, edges=False).astype(kind)

    x = drawn(d.whole(1, 3), 4)
    if op in ("Add", "Mul"):
        return op, [x, drawn(4)], {}, 1
    if op == "MatMul":
        return op, [x, drawn(4, 3)], {}, 1
    if op == "ReduceSum":
        return op, [x, ints(1)], {"keepdims": d.whole(0, 1)}, 1
    if op == "LayerNormalization":
        return op, [x, drawn(4), drawn(4)], {}, 1
    if op == "Where":
        return op, [d.array(np.bool_, x.shape), x, drawn(4)], {}, 1
    return op, [x], {}, 1


@spec(3)
def listed(d):
    """Operators on a sequence, which is an input of the graph."""
    kind = d.pick((np.float32, np.int64, object))
    rows = [d.array(kind, (d.whole(1, 3), 2), edges=False) for _ in range(d.whole(1, 3))]
    last = len(rows) - 1
    op = d.pick(("SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence", "Identity"))
    at = np.array(d.whole(-last - 1, last), np.int64)
    if op == "SequenceInsert":
        return op, [rows, d.array(kind, (1, 2), edges=False), at if d.chance(0.7) else None], {}, 1
    if op in ("SequenceAt", "SequenceErase"):
        return op, [rows, at if op == "SequenceAt" or d.chance(0.7) else None], {}, 1
    if op == "ConcatFromSequence":
        same = d.chance(0.3)
        rows = [rows[0]] * len(rows) if same else rows
        return op, [rows], {"axis": 0, "new_axis": int(same)}, 1
    return op, [rows], {}, 1


@spec()
def perhaps(d):
    x = d.array(np.float32, (2,))
    if d.chance(0.5):
        return "OptionalHasElement", [x], {}, 1
    return "OptionalGetElement", [x], {}, 1


@spec()
def words(d):
    x = d.array(object, (d.whole(1, 4),))
    if d.chance(0.5):
        attrs = {"case_change_action": d.pick(("NONE", "LOWER", "UPPER")), "is_case_sensitive": d.whole(0, 1)}
        return "StringNormalizer", [x], attrs | ({"stopwords": ["a", "é"]} if d.chance(0.5) else {}), 1
    at = d.rng.integers(0, len(x), (2,))
    return "Gather", [x, Held(np.asarray(at))], {}, 1
