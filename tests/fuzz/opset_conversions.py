"""Converts random graphs to other opsets, and checks that the results pass onnx's full check if the graph does."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TypeProto

import onnxbridge
from onnxbridge.errors import OnnxbridgeError
from tests.fuzz.compare import Disagreement, session
from tests.fuzz.graphs import Graph, value_info_of

LOWEST, HIGHEST = 7, 26
VALUE_DEPENDENT = {"CenterCropPad", "Col2Im", "MaxRoiPool", "MelWeightMatrix", "Range", "TensorScatter"}
"""Operators whose input values depend on each other or determine output shapes, so that random values may be invalid."""


def as_file(graph: Graph, seed: int) -> onnx.ModelProto | None:
    """A model as it could be in a file: typed outputs, a subset of the results, static or dynamic sizes, initializers.

    None if no result has a shape that can be declared, as when the branches of an If have different ones.
    """
    rng = np.random.default_rng(seed)
    model = graph.model()
    if any(isinstance(v, list) and not v for v in graph.values.values()):
        return None  # the element type of an empty sequence is unknown
    if_outputs = {o for n in graph.nodes if n.op_type == "If" for o in n.output}
    outputs = [value_info_of(o.name, graph.values[o.name]) for o in model.graph.output if o.name not in if_outputs]
    if not outputs:
        return None
    outputs_kept = [o for o in outputs if rng.random() < 0.7] or outputs[-1:]
    del model.graph.output[:]
    model.graph.output.extend(outputs_kept)
    shapes = rng.choice(["static", "named", "unnamed", "constant"])
    if shapes == "constant":
        for value in [v for v in model.graph.input if v.type.HasField("tensor_type") and rng.random() < 0.8]:
            model.graph.initializer.append(onnx.numpy_helper.from_array(graph.values[value.name], value.name))
            model.graph.input.remove(value)
    elif shapes != "static":
        for value in [*model.graph.input, *model.graph.output]:
            _make_dynamic(value.type, shapes == "named", rng)
    return model


def _make_dynamic(type_proto: TypeProto, named: bool, rng: np.random.Generator) -> None:
    if not type_proto.HasField("tensor_type"):
        return
    for dim in type_proto.tensor_type.shape.dim:
        if rng.random() < 0.6:
            size = dim.dim_value
            dim.Clear()
            if named:
                dim.dim_param = f"d{size}"


def check_other_opsets(graph: Graph, seed: int, count: int = 3) -> list[Disagreement]:
    """Errors of onnx's check at some other opsets, and exceptions of the converter that are not `OnnxbridgeError`."""
    model = None if graph.error is not None else as_file(graph, seed)
    if model is None or _check(model):
        return []
    rng = np.random.default_rng(seed)
    other_opsets = [v for v in range(LOWEST, HIGHEST + 1) if v != graph.opset]
    found: dict[str, Disagreement] = {}
    for to in rng.choice(other_opsets, count, replace=False):
        try:
            difference = _check(onnxbridge.opset.convert(model, int(to)))
        except OnnxbridgeError:
            continue
        except Exception as e:
            difference = f"{type(e).__name__}: {str(e)[:100]}"
        if difference:
            found.setdefault(difference, Disagreement("checker", graph.nodes[0], f"at opset {to}: {difference}"))
    return list(found.values())


def _check(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        return str(e).strip().splitlines()[0][:150]
    return ""


def runnable_model(graph: Graph, seed: int) -> onnx.ModelProto | None:
    """The graph with static shapes if its inputs are tensors and ONNX Runtime runs it, else None."""
    model = None if graph.error is not None else as_file(graph, seed)
    if any(n.op_type in VALUE_DEPENDENT for n in graph.nodes):
        return None
    if model is None or any(not v.type.HasField("tensor_type") for v in model.graph.input):
        return None
    for value in [*model.graph.input, *model.graph.output]:
        value.CopyFrom(value_info_of(value.name, graph.values[value.name]))
    try:
        session(model).run(None, graph.feeds_of(model))
    except Exception:  # no kernel, or an invalid graph
        return None
    return model
