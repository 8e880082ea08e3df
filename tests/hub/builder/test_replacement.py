"""Replacing a node."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace


def relu_graph():
    """A graph y = Relu(x), z = Neg(y) with a declared shape of y, its Relu node, x, and a builder."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["n", None])
    y = op.rename(op.Relu(x), "y")
    y.shape = ir.Shape(["n", 3])
    model = op.model([x], [op.output(op.Neg(y), "z")])
    relu = y.producer()
    relu.metadata_props["onnxbridge.source"] = "net.py:22"
    return model.graph, relu, x, Builder(names={"x", "y", "z"})


def test_results_get_names_shapes_and_uses_and_unused_nodes_are_dropped():
    graph, relu, x, op = relu_graph()
    op.Exp(x)
    result = op.Max(x, op.Sub(1.0, 1.0), x)
    nodes = replace(relu, op.take(), [result], op, graph)
    assert [n.op_type for n in graph] == ["Max", "Neg"] and list(nodes) == [graph[0]]
    assert result.name == "y" and result.shape == ir.Shape(["n", 3]) and graph[1].inputs[0] is result
    assert nodes[0].metadata_props["onnxbridge.source"] == "net.py:22"
    assert [v.const_value.numpy().item() for v in graph.initializers.values()] == [0.0]


def test_a_result_that_is_not_a_new_node_gets_an_identity():
    graph, relu, x, op = relu_graph()
    replace(relu, op.take(), [x], op, graph)
    assert [n.op_type for n in graph] == ["Identity", "Neg"]
    assert graph.inputs[0].name == "x" and graph[0].outputs[0].name == "y"


def test_a_used_output_needs_a_result():
    graph, relu, x, op = relu_graph()
    with pytest.raises(Unsupported, match="its output 0 has no replacement"):
        replace(relu, op.take(), [None], op, graph)
    assert [n.op_type for n in graph] == ["Relu", "Neg"] and graph[0].outputs[0].name == "y"
