"""Builds the module: the hub graph's calls go through the rules, which call torch on recorded values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import fx

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.codegen import inline_constants
from onnxbridge.backends.pytorch.modules import build_submodules, embeddings, module_paths
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.lift_modules import Layers
from onnxbridge.backends.pytorch.modules.peephole import tidy
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace import size_arithmetic  # noqa: F401 (registers the finders)
from onnxbridge.backends.pytorch.trace.tracer import Late, Recorder, Unknown, Value, leaf
from onnxbridge.backends.pytorch.weights import Weights, untransposed
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported
from onnxbridge.hub.decompositions.autodiff import gradient
from onnxbridge.hub.decompositions.lookup import body_of
from onnxbridge.hub.ir import fold, graph_reader, strings
from onnxbridge.hub.ir import source_locations as hub_places
from onnxbridge.hub.ir.provenance import state_of, view_of
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.lowering import Body, Call, Ref, Target, lower

DIRECTION = "ONNX to PyTorch"
# Operators whose result may have more bits than its unsigned type.
_OVERFLOW = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Pow", "BitShift", "BitwiseNot", "BitCast", "Cast", "CastLike", "CumSum", "CumProd",
    "Sum", "MatMul", "Gemm", "Einsum", "ScatterElements", "ScatterND", "ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1",
})  # fmt: skip
_ORDERED = frozenset({"ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "ReduceMean", "Range", "Mean", "NonMaxSuppression"})
"""Operators for which an uint64, carried as int64, could be taken for a negative number, and that make no provision for it."""


_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


class _Target(Target):
    """What the walker writes into: the module that is being recorded."""

    direction = DIRECTION

    def __init__(self, recorder: Recorder, weights: Weights) -> None:
        self.recorder = recorder
        self.weights = weights
        self.values = graph_reader.HubValues(self.constant)
        self.own: set[int] = set()
        self.trained: set[int] = set()
        self._adopted: dict[Hashable, Any] = {}
        self._held: dict[int, Value] = {}

    def constant(self, value: ir.Value) -> Any:
        assert value.const_value is not None
        held = self._held.get(id(value.const_value))  # an expansion has its own names for the same weights
        if held is None:
            held = self._held[id(value.const_value)] = self._constant(value)
        return held

    def _constant(self, value: ir.Value) -> Value:
        assert value.const_value is not None
        array = value.const_value.numpy()
        if array.dtype.kind in "OUST":
            return _text(self.recorder, array)
        trained = id(value.const_value) in self.trained
        source = untransposed(value.name or "") if trained and array.ndim == 2 and self.weights.kept else ""
        viewed = view_of(value.const_value) if trained or state_of(value.const_value) == "buffer" else None
        if source:
            made = self.recorder.attribute(*self.weights.add_source(source, array.T)).t()
        elif viewed is not None:
            name, shape = viewed
            held = self.weights.add_source(name, array.reshape(shape), trained)
            made = self.recorder.attribute(*held).reshape(list(array.shape))
        else:
            made = self.recorder.attribute(*self.weights.add(value, trained, id(value.const_value) in self.own))
        made.hub = value.dtype
        return self._small(made, array)

    def _literal(self, array: np.ndarray[Any, Any]) -> Value:
        """A constant that a rule made."""
        dtype = ir.DataType.from_numpy(array.dtype)
        made = self.recorder.create_arg(dtypes.tensor(array).to(dtypes.inside(dtype)))
        return self._small(self.recorder.proxy(made), array)

    def _small(self, made: Value, array: np.ndarray[Any, Any]) -> Value:
        if array.size <= size_arithmetic.MOST:
            made.constant = array
        made.elements = size_arithmetic.whole(array)
        return made

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        found = fold.static(key) if isinstance(key, ir.Value) else None
        if found is None:
            known = None if getattr(value, "hub", None) in _FLOATS else size_arithmetic.elements(value)
            if known is not None and not any(isinstance(e, Value) for e in known.reshape(-1)):
                found = np.array(known.tolist(), np.int64)
        return found

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        return self.recorder.at(call.where)

    def expand(self, call: Call) -> Body | None:
        body = body_of(call)
        if body is not None:
            for inner, item in zip(body.inputs, call.inputs, strict=False):
                if inner is not None and isinstance(item, Ref):
                    self._adopted[inner] = self._value(item)
        return body

    def _value(self, item: Any) -> Any:
        """What a call's input stands for, as far as this target has seen it."""
        if not isinstance(item, Ref):
            return item
        found = self._adopted.get(item.key)
        known = found is None and (item.key in self.values or getattr(item.key, "const_value", None) is not None)
        return self.values[item.key] if known else found

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        if call.op in _ORDERED and any(getattr(self._value(i), "hub", None) == ir.DataType.UINT64 for i in call.inputs):
            raise Unsupported("uint64, which PyTorch cannot order", "cast to int64 first")
        adopted = [r if key is None else self._adopt(call, key, r) for key, r in zip(call.outputs, results, strict=False)]
        if len(adopted) == 1 and isinstance(adopted[0], Value) and adopted[0].elements is None:
            inputs = [self._value(i) for i in call.inputs]
            if all(v is not None or i is None for v, i in zip(inputs, call.inputs, strict=True)):
                attributes = {k: v for k, v in call.attrs.items() if v is not None}
                adopted[0].elements = size_arithmetic.derive(call.op, inputs, attributes)
        self._adopted.update((k, r) for k, r in zip(call.outputs, adopted, strict=False) if k is not None)
        return tuple(adopted)

    def _adopt(self, call: Call, key: Hashable, result: Any) -> Any:
        if not isinstance(result, Value):
            if isinstance(result, Late):
                result = self.recorder.create_proxy("call_function", result.function, result.args, {})
            elif isinstance(result, torch.Tensor):
                result = self.recorder.proxy(self.recorder.create_arg(result))
            elif isinstance(result, np.ndarray):
                result = _text(self.recorder, result) if result.dtype.kind in "OUST" else self._literal(result)
            else:
                return result
        if not isinstance(key, ir.Value) or not isinstance(key.type, ir.TensorType):
            return result
        if result.hub is not None and result.hub != key.dtype:  # the same tensor, as another type that is carried alike
            result = self.recorder.proxy(result.node)
        result.hub = key.dtype
        if key.dtype == ir.DataType.STRING:
            return result
        assert key.dtype is not None
        wanted = dtypes.inside(key.dtype)
        if not result.is_known:
            if key.shape is not None:
                dims = [d if isinstance(d, int) else None for d in key.shape]
                result.node.meta["val"] = self.recorder.unbacked(wanted, dims)
            return result
        if key.dtype in dtypes.WIDE and key.dtype != ir.DataType.UINT64 and call.op in _OVERFLOW:
            result = result & dtypes.WIDE[key.dtype]
            result.hub = key.dtype
        if result.dtype != wanted:
            raise TypeError(f"the result is {result.dtype}, the standard says {key.dtype.name}")
        if key.shape is not None:
            made = list(result.known.shape)
            agrees = len(made) == len(key.shape) and all(
                a == b for a, b in zip(made, key.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
            )
            if not agrees:
                raise TypeError(f"the result has shape {made}, the standard says {list(key.shape)}")
        return result


@leaf
def _text_of(like: Any, texts: list[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    return np.array(texts, dtype=object).reshape(shape)


def _text(recorder: Recorder, array: np.ndarray[Any, Any]) -> Value:
    """A constant of strings, which PyTorch has no tensor for: it stays a NumPy array."""
    texts = strings.decoded(array).reshape(-1).tolist()
    made: Value = recorder.create_proxy("call_function", _text_of, (None, texts, list(array.shape)), {})
    made.node.meta["val"] = Unknown()
    made.hub = ir.DataType.STRING
    return made


def build(model: ir.Model) -> Network:
    """The hub model as a module in evaluation mode. It returns its tensor, or a tuple of its outputs.

    Raises:
        ConversionError: with every operator that is in the way.
    """
    try:
        return _build(model, nested=True)
    except build_submodules.Untold:
        return _build(model, nested=False)  # the same numbers from one forward


def _build(model: ir.Model, nested: bool) -> Network:
    kinds = hub_places.classes(model)
    root = Network(torch.nn.Module(), fx.Graph(), kinds.get("") or _class_name(model.graph.name))
    recorder = Recorder(root)
    weights = Weights(root, kept=_is_from_pytorch(model))
    target = _Target(recorder, weights)
    if gradient.present(model):
        model = model.clone()
        gradient.write_out(model)
    graph = model.graph
    names = _parameters([v.name or "" for v in graph.inputs if v.const_value is None])
    inputs = [v for v in graph.inputs if v.const_value is None]
    for value, name in zip(inputs, names, strict=True):
        target.values[value] = _input(recorder, value, name)
    for part in (graph, *graph.subgraphs()):
        for value in part.initializers.values():  # in the file's order, so that state_dict() is in it too
            target.own.add(id(value.const_value))
            if is_trained(value):
                target.trained.add(id(value.const_value))
                target.values[value]
    lower(graph_reader.of(graph), rule, target.values, target)
    outputs = [_leaving(target.values[v], v) for v in graph.outputs]
    if pinned := recorder.pinned():
        reason = f"the dimension {', '.join(pinned)} is declared dynamic, but PyTorch only computes this model at one size of it"
        raise ConversionError(DIRECTION, [Problem("shape", reason, "give the input a fixed shape", (Source(),))])
    plain = len(outputs) == 1 and isinstance(graph.outputs[0].type, ir.TensorType)
    recorder.graph.output(outputs[0].node if plain else tuple(o.node for o in outputs))
    tidy(recorder.graph)
    module_paths.settle(recorder.graph, root, kinds.get("", ""), weights.kept)
    weights.prune(_used(recorder.graph))  # what only told sizes takes no layer's name
    inline_constants.write(recorder.graph, weights)
    if weights.kept and hub_places.tells_classes(model):
        embeddings.look_up(recorder.graph, kinds)
    Layers(root, recorder.graph, weights).find()
    weights.prune(_used(recorder.graph))
    if nested:
        build_submodules.nest(root, recorder.graph, weights, kinds, recorder.named, recorder.unnamed)
    else:
        root.graph = recorder.graph
    root.meta["layers"] = weights.layers
    root.input_names = tuple(v.name or "" for v in inputs)
    root.output_names = tuple(v.name or "" for v in graph.outputs)
    root.output_types = tuple(v.dtype for v in graph.outputs)
    root.input_types = tuple((v.dtype, None if v.shape is None else tuple(_dims(v))) for v in inputs)
    root.eval()
    return root


def _used(graph: fx.Graph) -> set[str]:
    return {str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")}


def _is_from_pytorch(model: ir.Model) -> bool:
    return model.producer_name == "pytorch" or "onnxbridge.framework.torch" in model.metadata_props


_UNNAMED = ("main_graph", "main", "torch_jit", "graph")
"""What exporters call the graph of any model."""


def _class_name(name: str | None) -> str:
    name = "" if name in _UNNAMED else name
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_", name or "")) or "Net"


def _dims(value: ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [d if isinstance(d, int) else d.value for d in value.shape]


def _parameters(names: list[str]) -> list[str]:
    """Names as Python allows parameters to have, each once."""
    made: list[str] = []
    for name in names:
        name = re.sub(r"\W", "_", name, flags=re.ASCII) or "input"
        if name[0].isdigit() or keyword.iskeyword(name) or name in build_submodules.IN_CODE:
            name = f"_{name}"
        while name in made:
            name += "_"
        made.append(name)
    return made


def _input(recorder: Recorder, value: ir.Value, name: str) -> Value:
    made = _placeholder(recorder, value, name)
    made.hub = value.dtype
    return made


def _placeholder(recorder: Recorder, value: ir.Value, name: str) -> Value:
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.STRING or value.shape is None:
        return recorder.placeholder(name, Unknown())
    assert value.dtype is not None
    try:
        made = recorder.placeholder(name, recorder.fake(dtypes.outside(value.dtype), _dims(value)))
    except Unsupported as e:
        raise ConversionError(DIRECTION, [Problem("input", f"{value.name}: {e.reason}", e.hint, (Source(),))]) from e
    return made.to(torch.int64) if value.dtype in dtypes.WIDE else made


def _leaving(value: Any, declared: ir.Value) -> Any:
    return value.to(dtypes.outside(declared.dtype)) if declared.dtype in dtypes.WIDE else value
