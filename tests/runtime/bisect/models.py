"""Small ONNX models, and copies of them with one fault, for the tests of bisection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray


def network() -> onnx.ModelProto:
    """Convolution, activation, normalization, a residual block and a classifier, with random weights."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return rng.normal(0, 0.4, shape).astype(np.float32)

    weights = {
        "w1": weight(8, 3, 3, 3), "b1": weight(8), "scale": weight(6), "shift": weight(6), "w2": weight(8, 8, 3, 3),
        "w3": weight(8, 6), "b3": weight(6), "w4": weight(6, 5), "flat": np.array([0, -1], np.int64),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["conv1"], pads=[1, 1, 1, 1]),
        node("Relu", ["conv1"], ["relu1"]),
        node("Conv", ["relu1", "w2"], ["conv2"], pads=[1, 1, 1, 1]),
        node("Add", ["conv2", "relu1"], ["sum"]),
        node("Tanh", ["sum"], ["tanh"]),
        node("GlobalAveragePool", ["tanh"], ["mean"]),
        node("Reshape", ["mean", "flat"], ["rows"]),
        node("Gemm", ["rows", "w3", "b3"], ["hidden"]),
        node("LayerNormalization", ["hidden", "scale", "shift"], ["norm"], axis=-1, epsilon=1e-5),
        node("MatMul", ["norm", "w4"], ["logits"]),
        node("Softmax", ["logits"], ["y"], axis=-1),
    ]
    tensors = [numpy_helper.from_array(a, name) for name, a in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])
    graph = helper.make_graph(nodes, "network", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def with_weight(model: onnx.ModelProto, name: str, change: Callable[[Array], Array]) -> onnx.ModelProto:
    """A copy in which a weight is changed."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = next(t for t in made.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)).astype(np.float32), name))
    return made


def with_attribute(model: onnx.ModelProto, value: str, name: str, changed: float) -> onnx.ModelProto:
    """A copy in which an attribute of the node that computes `value` is changed."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    node = next(n for n in made.graph.node if value in n.output)
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, changed)])
    return made


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every value but the inputs and outputs has another name."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    keep = {v.name for v in (*made.graph.input, *made.graph.output)}
    names = {o: f"v{i}" for i, n in enumerate(made.graph.node) for o in n.output if o not in keep}
    for n in made.graph.node:
        n.input[:] = [names.get(i, i) for i in n.input]
        n.output[:] = [names.get(o, o) for o in n.output]
    return made


def channels_last(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose activations between the two convolutions are NHWC, as another maker would write them."""
    made = renamed(model)
    relu = next(n for n in made.graph.node if n.op_type == "Relu")
    before, after = relu.input[0], relu.output[0]
    relu.input[0], relu.output[0] = "nhwc_in", "nhwc_out"
    to = helper.make_node("Transpose", [before], ["nhwc_in"], perm=[0, 2, 3, 1])
    back = helper.make_node("Transpose", ["nhwc_out"], [after], perm=[0, 3, 1, 2])
    at = list(made.graph.node).index(relu)
    made.graph.node.insert(at + 1, back)
    made.graph.node.insert(at, to)
    return made
