"""Branches, loops and composites of TensorFlow Lite, as ONNX's If and Loop."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, constant, model
from tests.frontends.tflite.compare import agree, hub_of, saved

VALUES = np.array([1.5, -2.0, 3.0], np.float32)


def floats():
    return T(type="FLOAT32", shape=(3,))


def scalar(kind):
    return T(type=kind, shape=())


def _branches():
    """One graph that doubles and one that subtracts 1, each with a tensor of its own scope."""
    graphs = []
    for name, options, number in (("MUL", "MulOptions", 2.0), ("SUB", "SubOptions", 1.0)):
        x, y = floats(), floats()
        graphs.append(G([x], [y], [Op(name, [x, constant(np.float32(number))], [y], options)]))
    return graphs


@pytest.mark.parametrize("flag", [True, False])
def test_if(tmp_path, flag):
    condition, x, y = T(np.array(flag), name="condition"), T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y")
    made = Op("IF", [condition, x], [y], "IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})
    source = saved(tmp_path, model(G([condition, x], [y], [made]), *_branches()))
    agree(source, {"condition": np.array(flag), "x": VALUES})


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while(tmp_path, count):
    """i counts up to n, which the loop hands on unchanged, while x is doubled."""
    i, n, x = T(np.array(0, np.int32), name="i"), T(np.array(count, np.int32), name="n"), T(VALUES, name="x")
    outputs = [T(type=k, shape=s, name=f"y{p}") for p, (k, s) in enumerate((("INT32", ()), ("INT32", ()), ("FLOAT32", (3,))))]
    made = Op("WHILE", [i, n, x], outputs, "WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    state = [scalar("INT32"), scalar("INT32"), floats()]
    less = scalar("BOOL")
    condition = G(state, [less], [Op("LESS", state[:2], [less], "LessOptions")])
    inner = [scalar("INT32"), scalar("INT32"), floats()]
    following, doubled = scalar("INT32"), floats()
    body = G(inner, [following, inner[1], doubled], [
        Op("ADD", [inner[0], constant(np.int32(1))], [following], "AddOptions"),
        Op("MUL", [inner[2], constant(np.float32(2))], [doubled], "MulOptions"),
    ])  # fmt: skip
    source = saved(tmp_path, model(G([i, n, x], outputs, [made]), condition, body))
    agree(source, {"i": np.array(0, np.int32), "n": np.array(count, np.int32), "x": VALUES})


def test_a_composite_is_its_decomposition(tmp_path):
    x, y = T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y")
    options = {
        "name": "odml.double", "decomposition_subgraph_index": 1, "composite_attributes": list(flexbuffers.Dumps({})),
    }  # fmt: skip
    made = Op("STABLEHLO_COMPOSITE", [x], [y], "StableHLOCompositeOptions", options, second=True)
    source = saved(tmp_path, model(G([x], [y], [made]), _branches()[0]))
    found = hub_of(source)
    assert [n.op_type for n in found.graph] == ["Mul"]
    agree(source, {"x": VALUES})


def test_operators_of_tensorflow_are_refused_with_the_way(tmp_path):
    x, y = T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y")
    with pytest.raises(ConversionError) as raised:
        hub_of(saved(tmp_path, model(G([x], [y], [Op("FlexErf", [x], [y])]))))
    (problem,) = raised.value.problems
    assert problem.op == "FlexErf" and "TensorFlow itself" in problem.reason and "SavedModel" in problem.hint


def test_a_convolution_of_a_state_whose_sizes_the_loop_keeps(tmp_path):
    image, filters = (1, 4, 4, 2), np.random.default_rng(0).standard_normal((2, 3, 3, 2)).astype(np.float32)
    i, x = T(np.array(0, np.int32), name="i"), T(np.ones(image, np.float32), name="x")
    outputs = [T(type="INT32", shape=(), name="y0"), T(type="FLOAT32", shape=image, name="y1")]
    made = Op("WHILE", [i, x], outputs, "WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    state, less = [scalar("INT32"), T(type="FLOAT32", shape=image)], scalar("BOOL")
    condition = G(state, [less], [Op("LESS", [state[0], constant(np.int32(3))], [less], "LessOptions")])
    inner, following = [scalar("INT32"), T(type="FLOAT32", shape=image)], scalar("INT32")
    convolved = T(type="FLOAT32", shape=image)
    body = G(inner, [following, convolved], [
        Op("ADD", [inner[0], constant(np.int32(1))], [following], "AddOptions"),
        Op("CONV_2D", [inner[1], constant(filters), constant(np.zeros(2, np.float32))], [convolved], "Conv2DOptions",
           {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}),
    ])  # fmt: skip
    source = saved(tmp_path, model(G([i, x], outputs, [made]), condition, body))
    agree(source, {"i": np.array(0, np.int32), "x": np.random.default_rng(1).standard_normal(image).astype(np.float32)})
