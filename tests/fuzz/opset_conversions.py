"""A random graph at other opsets: what is written there passes onnx's full check wherever the graph itself does."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TypeProto

import onnxbridge
from onnxbridge.errors import OnnxbridgeError
from tests.fuzz.compare import Disagreement, session
from tests.fuzz.graphs import Graph, declared

LOWEST, HIGHEST = 7, 26
BY_VALUES = {"CenterCropPad", "Col2Im", "MaxRoiPool", "MelWeightMatrix", "Range", "TensorScatter"}
"""Operators whose numbers must fit together, or decide the sizes that come after: nothing says which do."""


def declare(graph: Graph, seed: int) -> onnx.ModelProto | None:
    """The graph as files have it: typed outputs, some of its results only, named or unnamed sizes, weights for inputs.

    None where no result has a shape that can be declared: the branches of an If may have different ones.
    """
    rng = np.random.default_rng(seed)
    model = graph.model()
    if any(isinstance(v, list) and not v for v in graph.values.values()):
        return None  # an empty sequence shows no type
    branched = {o for n in graph.nodes if n.op_type == "If" for o in n.output}
    outputs = [declared(o.name, graph.values[o.name]) for o in model.graph.output if o.name not in branched]
    if not outputs:
        return None
    kept = [o for o in outputs if rng.random() < 0.7] or outputs[-1:]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    form = rng.choice(["static", "named", "unnamed", "constant"])
    if form == "constant":
        for value in [v for v in model.graph.input if v.type.HasField("tensor_type") and rng.random() < 0.8]:
            model.graph.initializer.append(onnx.numpy_helper.from_array(graph.values[value.name], value.name))
            model.graph.input.remove(value)
    elif form != "static":
        for value in [*model.graph.input, *model.graph.output]:
            _open(value.type, form == "named", rng)
    return model


def _open(kind: TypeProto, named: bool, rng: np.random.Generator) -> None:
    if not kind.HasField("tensor_type"):
        return
    for dim in kind.tensor_type.shape.dim:
        if rng.random() < 0.6:
            size = dim.dim_value
            dim.Clear()
            if named:
                dim.dim_param = f"d{size}"


def refused(graph: Graph, seed: int, count: int = 3) -> list[Disagreement]:
    """What the check says of the graph at some other opsets, and any error that tells no user what is in the way."""
    model = None if graph.error is not None else declare(graph, seed)
    if model is None or _says(model):
        return []
    rng = np.random.default_rng(seed)
    others = [v for v in range(LOWEST, HIGHEST + 1) if v != graph.opset]
    found: dict[str, Disagreement] = {}
    for to in rng.choice(others, count, replace=False):
        try:
            what = _says(onnxbridge.opset.convert(model, int(to)))
        except OnnxbridgeError:
            continue
        except Exception as e:
            what = f"{type(e).__name__}: {str(e)[:100]}"
        if what:
            found.setdefault(what, Disagreement("checker", graph.nodes[0], f"at opset {to}: {what}"))
    return list(found.values())


def _says(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        return str(e).strip().splitlines()[0][:150]
    return ""


def fixed(graph: Graph, seed: int) -> onnx.ModelProto | None:
    """The graph with the sizes of its values where its inputs are tensors and ONNX Runtime runs it; None otherwise."""
    model = None if graph.error is not None else declare(graph, seed)
    if any(n.op_type in BY_VALUES for n in graph.nodes):
        return None
    if model is None or any(not v.type.HasField("tensor_type") for v in model.graph.input):
        return None
    for value in [*model.graph.input, *model.graph.output]:
        value.CopyFrom(declared(value.name, graph.values[value.name]))
    try:
        session(model).run(None, graph.inputs_of(model))
    except Exception:  # no kernel, or a graph that it refuses
        return None
    return model
