"""Recurrent layers with every choice of optional inputs, and what ONNX Runtime computes for them."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
STEPS, BATCH, FEATURES, HIDDEN = 3, 2, 5, 4


def states_of(op):
    """Every choice of initial states that the operator has."""
    return ["", "h", "c", "hc"] if op == "LSTM" else ["", "h"]


def model(
    op, *, directions=tuple(DIRECTIONS), lengths=False, peephole=False, bias=True, only=None, constant=False, layout=0, **attrs
):  # fmt: skip
    """A model with one node for each direction and each choice of initial states; initial states are inputs or `constant`.

    `only` is the one output that is used, "Y", "Y_h" or "Y_c".
    """
    rng = np.random.default_rng(7)
    gates, nodes, initializers, outputs = GATES[op], [], [], []
    inputs = {"X": _swapped((STEPS, BATCH, FEATURES), layout)}

    def weight(name, *shape):
        initializers.append(numpy_helper.from_array((rng.standard_normal(shape) * 0.5).astype(np.float32), name))
        return name

    for direction, states in itertools.product(directions, states_of(op)):
        ways, tag = DIRECTIONS[direction], f"{direction}_{states or 'none'}"
        first = _swapped((ways, BATCH, HIDDEN), layout)
        for s in states:
            if constant:
                weight(f"{s}_{tag}", *first)
            else:
                inputs.setdefault(f"{s}_{ways}", first)
        names = {s: (f"{s}_{tag}" if constant else f"{s}_{ways}") if s in states else "" for s in "hc"}
        given = [
            "X", weight(f"W_{tag}", ways, gates * HIDDEN, FEATURES), weight(f"R_{tag}", ways, gates * HIDDEN, HIDDEN),
            weight(f"B_{tag}", ways, 2 * gates * HIDDEN) if bias else "", "lengths" if lengths else "", names["h"],
        ]  # fmt: skip
        if op == "LSTM":
            given += [names["c"], weight(f"P_{tag}", ways, 3 * HIDDEN) if peephole else ""]
        made = {"Y": _swapped_y((STEPS, ways, BATCH, HIDDEN), layout), "Y_h": first} | ({"Y_c": first} if op == "LSTM" else {})
        used = {n: s for n, s in made.items() if only in (None, n)}
        results = [f"{n}_{tag}" if n in used else "" for n in made]
        more = attrs | ({"layout": layout} if layout else {})
        nodes.append(helper.make_node(op, given, results, hidden_size=HIDDEN, direction=direction, **more))
        outputs += [helper.make_tensor_value_info(f"{n}_{tag}", TensorProto.FLOAT, s) for n, s in used.items()]
    if lengths:
        initializers.append(numpy_helper.from_array(np.array([2, 3], np.int32), "lengths"))
    declared = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    graph = helper.make_graph(nodes, "recurrent", declared, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _swapped(shape, layout):
    return [shape[1], shape[0], shape[2]] if layout else list(shape)


def _swapped_y(shape, layout):
    return [shape[2], shape[0], shape[1], shape[3]] if layout else list(shape)


def feeds_of(proto):
    rng = np.random.default_rng(11)
    return {
        v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(np.float32)
        for v in proto.graph.input
    }


def expected(proto, feeds):
    """What ONNX Runtime computes; it has no layout=1, so that is its layout=0 on transposed values."""
    turned = any(a.name == "layout" and a.i for n in proto.graph.node for a in n.attribute)
    if turned:
        changed = type(proto)()
        changed.CopyFrom(proto)
        for node in changed.graph.node:
            kept = [a for a in node.attribute if a.name != "layout"]
            del node.attribute[:]
            node.attribute.extend(kept)
        for tensor in changed.graph.initializer:
            if tensor.name[:2] in ("h_", "c_"):
                swapped = np.ascontiguousarray(numpy_helper.to_array(tensor).swapaxes(0, 1))
                tensor.CopyFrom(numpy_helper.from_array(swapped, tensor.name))
        for value in (*changed.graph.input, *changed.graph.output):
            value.type.tensor_type.ClearField("shape")
        proto, feeds = changed, {n: np.ascontiguousarray(a.swapaxes(0, 1)) for n, a in feeds.items()}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    if turned:
        found = {n: a.transpose(2, 0, 1, 3) if a.ndim == 4 else a.swapaxes(0, 1) for n, a in found.items()}
    return found


VARIANTS = {
    "all outputs": {}, "constant states": {"constant": True}, "without bias": {"bias": False}, "only Y": {"only": "Y"},
    "only Y_h": {"only": "Y_h"}, "lengths": {"lengths": True}, "batch first": {"layout": 1},
    "batch first, constant states": {"layout": 1, "constant": True},
}  # fmt: skip
# LSTM has no clip here: ONNX Runtime leaves the cell out of it (docs/disagreements.md).
SPECIAL = {
    "LSTM": {"only Y_c": {"only": "Y_c"}, "peepholes": {"peephole": True}, "coupled": {"input_forget": 1}},
    "GRU": {
        "clip": {"clip": 0.3}, "reset after": {"linear_before_reset": 1},
        "reset after, lengths": {"linear_before_reset": 1, "lengths": True},
    },
    "RNN": {"clip": {"clip": 0.3}, "relu": {"activations": ["Relu"], "directions": ("forward", "reverse")}},
}
CASES = [(op, name) for op in GATES for name in VARIANTS | SPECIAL[op]]


def case(op, name):
    """The model of a case, inputs and ONNX Runtime's results."""
    proto = model(op, **(VARIANTS | SPECIAL[op])[name])
    feeds = feeds_of(proto)
    return proto, feeds, expected(proto, feeds)


def assert_same(got, wanted):
    got = dict(zip(wanted, got, strict=True)) if not isinstance(got, dict) else got
    assert set(got) == set(wanted)
    wrong = [n for n in wanted if np.shape(got[n]) != wanted[n].shape or not np.allclose(got[n], wanted[n], rtol=1e-4, atol=1e-5)]
    assert not wrong
