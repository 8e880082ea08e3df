"""A small model with internal or external weights, for the tests of reading and writing."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def affine(weight=None, dims=(64, 64), **options):
    """x @ weight + bias, the weight as given."""
    if weight is None:
        weight = numpy_helper.from_array(WEIGHT, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Add", ["h", "b"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", dims[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", dims[1]])],
        [weight, numpy_helper.from_array(np.ones(dims[1], np.float32), "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, **options)


def external(location, offset=0, length=WEIGHT.nbytes, dims=(64, 64), dtype=TensorProto.FLOAT):
    tensor = TensorProto(name="w", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def save(folder, proto):
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path
