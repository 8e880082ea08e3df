"""Builds the module: the hub graph's calls run through the rules, which call torch on traced values."""

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
from onnxbridge.backends.pytorch.modules import (
    build_submodules,
    embeddings,
    layer_patterns,  # noqa: F401  registers the patterns of layers
    module_paths,
)
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.backends.pytorch.modules.lift_modules import LayerLifter
from onnxbridge.backends.pytorch.modules.lift_recurrent import lift_recurrent
from onnxbridge.backends.pytorch.modules.peephole import simplify_shapes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.tracer import Deferred, Tracer, Unknown, Value, opaque_call
from onnxbridge.backends.pytorch.weights import Weights, untransposed
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.hub.decompositions.autodiff import gradient
from onnxbridge.hub.decompositions.lookup import decomposition_of
from onnxbridge.hub.ir import fold, graph_reader, source_locations, strings
from onnxbridge.hub.ir.provenance import state_of, view_of
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.lowering import Body, Call, Ref, Target, lower

DIRECTION = "ONNX to PyTorch"
# Operators whose int64 result may exceed the range of its unsigned type.
_MAY_OVERFLOW = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Pow", "BitShift", "BitwiseNot", "BitCast", "Cast", "CastLike", "CumSum", "CumProd",
    "Sum", "MatMul", "Gemm", "Einsum", "ScatterElements", "ScatterND", "ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1",
})  # fmt: skip
_NEEDS_ORDER = frozenset({"ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "ReduceMean", "Range", "Mean", "NonMaxSuppression"})
"""Operators that depend on order without handling uint64, which is carried as int64 and may appear negative."""


_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


class _TraceTarget(Target):
    """The lowering target: the module being traced."""

    direction = DIRECTION

    def __init__(self, tracer: Tracer, weights: Weights) -> None:
        self.tracer = tracer
        self.weights = weights
        self.values = graph_reader.HubValues(self.constant)
        self.own: set[int] = set()
        self.trained: set[int] = set()
        self._adopted: dict[Hashable, Any] = {}
        self._constants: dict[int, Value] = {}

    def constant(self, value: ir.Value) -> Any:
        assert value.const_value is not None
        stored = self._constants.get(id(value.const_value))  # a decomposition has its own names for the same weights
        if stored is None:
            stored = self._constants[id(value.const_value)] = self._constant(value)
        return stored

    def _constant(self, value: ir.Value) -> Value:
        assert value.const_value is not None
        array = value.const_value.numpy()
        if array.dtype.kind in "OUST":
            return _string_constant(self.tracer, array)
        trained = id(value.const_value) in self.trained
        source = untransposed(value.name or "") if trained and array.ndim == 2 and self.weights.from_pytorch else ""
        viewed = view_of(value.const_value) if trained or state_of(value.const_value) == "buffer" else None
        if source:
            made = self.tracer.attribute(*self.weights.add_source(source, array.T)).t()
        elif viewed is not None:
            name, shape = viewed
            stored = self.weights.add_source(name, array.reshape(shape), trained)
            made = self.tracer.attribute(*stored).reshape(list(array.shape))
        else:
            made = self.tracer.attribute(*self.weights.add(value, trained, id(value.const_value) in self.own))
        made.hub_dtype = value.dtype
        return self._remember_elements(made, array)

    def _literal(self, array: np.ndarray[Any, Any]) -> Value:
        """A constant made by a rule."""
        dtype = ir.DataType.from_numpy(array.dtype)
        made = self.tracer.create_arg(dtypes.tensor(array).to(dtypes.inside(dtype)))
        return self._remember_elements(self.tracer.proxy(made), array)

    def _remember_elements(self, made: Value, array: np.ndarray[Any, Any]) -> Value:
        if array.size <= size_arithmetic.MAX_ELEMENTS:
            made.constant = array
        made.elements = size_arithmetic.integer_elements(array)
        return made

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        found = fold.constant_array(key) if isinstance(key, ir.Value) else None
        if found is None:
            known = None if getattr(value, "hub_dtype", None) in _FLOATS else size_arithmetic.elements(value)
            if known is not None and not any(isinstance(e, Value) for e in known.reshape(-1)):
                found = np.array(known.tolist(), np.int64)
        return found

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        return self.tracer.located(call.location)

    def decompose(self, call: Call) -> Body | None:
        body = decomposition_of(call)
        if body is not None:
            for inner, item in zip(body.inputs, call.inputs, strict=False):
                if inner is not None and isinstance(item, Ref):
                    self._adopted[inner] = self._value(item)
        return body

    def _value(self, item: Any) -> Any:
        """The value of a call's input, if this target has it."""
        if not isinstance(item, Ref):
            return item
        found = self._adopted.get(item.key)
        known = found is None and (item.key in self.values or getattr(item.key, "const_value", None) is not None)
        return self.values[item.key] if known else found

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        if call.op in _NEEDS_ORDER and any(getattr(self._value(i), "hub_dtype", None) == ir.DataType.UINT64 for i in call.inputs):
            raise Unsupported("PyTorch cannot compare uint64", "cast to int64 first")
        adopted = [r if key is None else self._adopt(call, key, r) for key, r in zip(call.outputs, results, strict=False)]
        if len(adopted) == 1 and isinstance(adopted[0], Value) and adopted[0].elements is None:
            inputs = [self._value(i) for i in call.inputs]
            if all(v is not None or i is None for v, i in zip(inputs, call.inputs, strict=True)):
                attributes = {k: v for k, v in call.attrs.items() if v is not None}
                adopted[0].elements = size_arithmetic.derive_elements(call.op, inputs, attributes)
        self._adopted.update((k, r) for k, r in zip(call.outputs, adopted, strict=False) if k is not None)
        return tuple(adopted)

    def _adopt(self, call: Call, key: Hashable, result: Any) -> Any:
        if not isinstance(result, Value):
            if isinstance(result, Deferred):
                result = self.tracer.create_proxy("call_function", result.function, result.args, {})
            elif isinstance(result, torch.Tensor):
                result = self.tracer.proxy(self.tracer.create_arg(result))
            elif isinstance(result, np.ndarray):
                result = _string_constant(self.tracer, result) if result.dtype.kind in "OUST" else self._literal(result)
            else:
                return result
        if not isinstance(key, ir.Value) or not isinstance(key.type, ir.TensorType):
            return result
        if (
            result.hub_dtype is not None and result.hub_dtype != key.dtype
        ):  # the same tensor as another type with the same carrier dtype
            result = self.tracer.proxy(result.node)
        result.hub_dtype = key.dtype
        if key.dtype == ir.DataType.STRING:
            return result
        assert key.dtype is not None
        expected = dtypes.inside(key.dtype)
        if not result.is_known:
            if key.shape is not None:
                dims = [d if isinstance(d, int) else None for d in key.shape]
                result.node.meta["val"] = self.tracer.unbacked(expected, dims)
            return result
        if key.dtype in dtypes.WIDE and key.dtype != ir.DataType.UINT64 and call.op in _MAY_OVERFLOW:
            result = result & dtypes.WIDE[key.dtype]
            result.hub_dtype = key.dtype
        if result.dtype != expected:
            raise TypeError(f"the result is {result.dtype}, ONNX specifies {key.dtype.name}")
        if key.shape is not None:
            made = list(result.fake.shape)
            agrees = len(made) == len(key.shape) and all(
                a == b for a, b in zip(made, key.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
            )
            if not agrees:
                raise TypeError(f"the result has shape {made}, ONNX infers {list(key.shape)}")
        return result


@opaque_call
def _string_array(like: Any, values: list[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=object).reshape(shape)


def _string_constant(tracer: Tracer, array: np.ndarray[Any, Any]) -> Value:
    """A constant of strings, which stays a NumPy array because PyTorch has no string tensors."""
    values = strings.decoded(array).reshape(-1).tolist()
    made: Value = tracer.create_proxy("call_function", _string_array, (None, values, list(array.shape)), {})
    made.node.meta["val"] = Unknown()
    made.hub_dtype = ir.DataType.STRING
    return made


def build(model: ir.Model) -> Network:
    """The hub model as a module in evaluation mode. It returns its tensor, or a tuple of its outputs.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    try:
        return _build(model, submodules=True)
    except build_submodules.MissingValue:
        return _build(model, submodules=False)  # one flat forward computes the same


def _build(model: ir.Model, submodules: bool) -> Network:
    class_names = source_locations.classes(model)
    root = Network(torch.nn.Module(), fx.Graph(), class_names.get("") or _class_name(model.graph.name))
    tracer = Tracer(root)
    weights = Weights(root, from_pytorch=_is_from_pytorch(model))
    target = _TraceTarget(tracer, weights)
    if gradient.has_gradient_nodes(model):
        model = model.clone()
        gradient.decompose_gradients(model)
    graph = model.graph
    names = _parameter_names([v.name or "" for v in graph.inputs if v.const_value is None])
    inputs = [v for v in graph.inputs if v.const_value is None]
    for value, name in zip(inputs, names, strict=True):
        target.values[value] = _input(tracer, value, name)
    for part in (graph, *graph.subgraphs()):
        for value in part.initializers.values():  # in file order, which becomes the order of state_dict()
            target.own.add(id(value.const_value))
            if is_trained(value):
                target.trained.add(id(value.const_value))
                target.values[value]
    lower(graph_reader.calls_of(graph), rule, target.values, target)
    outputs = [_output(target.values[v], v) for v in graph.outputs]
    if specialized := tracer.specialized_dims():
        reason = f"the dimension {', '.join(specialized)} is declared dynamic, but the PyTorch model only supports one size of it"
        raise ConversionError(DIRECTION, [Problem("shape", reason, "declare a static input shape", (SourceLocation(),))])
    single = len(outputs) == 1 and isinstance(graph.outputs[0].type, ir.TensorType)
    tracer.graph.output(outputs[0].node if single else tuple(o.node for o in outputs))
    simplify_shapes(tracer.graph)
    module_paths.resolve_paths(tracer.graph, root, class_names.get("", ""), weights.from_pytorch)
    weights.prune(_used(tracer.graph))  # weights used only for their sizes must not occupy a layer's name
    inline_constants.inline_scalars(tracer.graph, weights)
    if weights.from_pytorch and source_locations.has_classes(model):
        embeddings.look_up(tracer.graph, class_names)
    lifter = LayerLifter(root, tracer.graph, weights)
    lift_recurrent(lifter)
    lifter.lift()
    weights.prune(_used(tracer.graph))
    if submodules:
        build_submodules.build_submodules(root, tracer.graph, weights, class_names, tracer.size_names, tracer.unnamed_symbol)
    else:
        root.graph = tracer.graph
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
"""Graph names that exporters use for every model."""


def _class_name(name: str | None) -> str:
    name = "" if name in _UNNAMED else name
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_", name or "")) or "Net"


def _dims(value: ir.Value) -> list[int | str | None]:
    assert value.shape is not None
    return [d if isinstance(d, int) else d.value for d in value.shape]


def _parameter_names(names: list[str]) -> list[str]:
    """Unique, valid Python parameter names."""
    made: list[str] = []
    for name in names:
        name = re.sub(r"\W", "_", name, flags=re.ASCII) or "input"
        if name[0].isdigit() or keyword.iskeyword(name) or name in build_submodules.RESERVED_IN_CODE:
            name = f"_{name}"
        while name in made:
            name += "_"
        made.append(name)
    return made


def _input(tracer: Tracer, value: ir.Value, name: str) -> Value:
    made = _placeholder(tracer, value, name)
    made.hub_dtype = value.dtype
    return made


def _placeholder(tracer: Tracer, value: ir.Value, name: str) -> Value:
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.STRING or value.shape is None:
        return tracer.placeholder(name, Unknown())
    assert value.dtype is not None
    try:
        made = tracer.placeholder(name, tracer.fake_tensor(dtypes.outside(value.dtype), _dims(value)))
    except Unsupported as e:
        raise ConversionError(DIRECTION, [Problem("input", f"{value.name}: {e.reason}", e.hint, (SourceLocation(),))]) from e
    return made.to(torch.int64) if value.dtype in dtypes.WIDE else made


def _output(value: Any, declared: ir.Value) -> Any:
    return value.to(dtypes.outside(declared.dtype)) if declared.dtype in dtypes.WIDE else value
