"""Builds the module: while TensorFlow traces a function, the hub graph's calls run through the rules on symbolic tensors."""

from __future__ import annotations

import re
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.hub.decompositions.lookup import decomposition_of
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.lowering import Body, Call, Target, lower

DIRECTION = "ONNX to TensorFlow"
_MAX_CONSTANT = 1024
"""Larger constants are stored in variables, so that they are not written into the graph."""


class HubModule(tf.Module):  # type: ignore[misc]
    """A model converted from the hub.

    Attributes:
        weights_by_name: the variables by hub name.
        input_names, output_names: the hub's names, in order.
        signature: the `tf.TensorSpec` of each input; None for a sequence or an optional value.
    """

    def __init__(self, graph: ir.Graph) -> None:
        super().__init__(name=re.sub(r"\W", "_", graph.name or "") or "model")
        inputs = [v for v in graph.inputs if v.const_value is None]
        self.input_names = tuple(v.name or "" for v in inputs)
        self.output_names = tuple(v.name or "" for v in graph.outputs)
        self.keywords = keywords(self.input_names)
        self.signature = tuple(_spec(v, k) for v, k in zip(inputs, self.keywords, strict=True))
        self.weights_by_name: dict[str, Any] = {}
        self._body: Any = None
        self.variables_made: dict[str, Any] = {}
        self._make_variables(graph)

    def _make_variables(self, graph: ir.Graph) -> None:
        """Create variables for trained weights and for large constants, in file order."""
        for part in (graph, *graph.subgraphs()):
            for value in part.initializers.values():
                trained = is_trained(value)
                if value.const_value is None or value.dtype == ir.DataType.STRING or not value.uses():
                    continue
                if not trained and value.const_value.size <= _MAX_CONSTANT:
                    continue
                name = value.name or "constant"
                while name in self.weights_by_name:
                    name += "_"
                kind = dtypes.of(value.const_value.dtype)
                made = tf.Variable(_array(value), trainable=trained, name=_scope(name), dtype=kind)
                # a decomposition has its own names for the same weight, so it is found by its tensor
                self.weights_by_name[name] = self.variables_made[str(id(value.const_value))] = made

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the model with inputs by position or name; returns a tensor, or a tuple in the hub's order."""
        values = list(inputs) + [
            named.pop(k) if k in named else named.pop(n, None) for k, n in self._remaining_inputs(len(inputs))
        ]
        if named or len(values) != len(self.input_names):
            raise TypeError(f"the inputs are {', '.join(self.input_names)}")
        results = self._body(*values)
        return results[0] if len(results) == 1 and isinstance(results[0], tf.Tensor) else tuple(results)

    def _remaining_inputs(self, start: int) -> list[tuple[str, str]]:
        return list(zip(self.keywords, self.input_names, strict=True))[start:]


def keywords(names: tuple[str, ...]) -> tuple[str, ...]:
    """Unique names that are valid in TensorFlow signatures."""
    made: list[str] = []
    for name in names:
        name = re.sub(r"\W", "_", name) or "input"
        name = name if name[0].isalpha() else f"v{name}"
        while name in made:
            name += "_"
        made.append(name)
    return tuple(made)


def _spec(value: ir.Value, keyword: str) -> Any:
    if not isinstance(value.type, ir.TensorType) or value.dtype is None:
        return None
    shape = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    try:
        return tf.TensorSpec(shape, dtypes.of(value.dtype), keyword)
    except Unsupported as e:
        raise ConversionError(DIRECTION, [Problem("input", f"{value.name}: {e.reason}", e.hint, (SourceLocation(),))]) from e


class _TraceTarget(Target):
    """The lowering target: the function being traced."""

    direction = DIRECTION

    def __init__(self, module: HubModule) -> None:
        self.module = module
        self.graph = tf.compat.v1.get_default_graph()
        self.values = graph_reader.HubValues(self.constant)

    def constant(self, value: ir.Value) -> Any:
        assert value.const_value is not None
        with self.graph.as_default():  # a constant may be created in a branch and used outside of it later
            variable = self.module.variables_made.get(str(id(value.const_value)))
            if variable is not None:
                return tf.convert_to_tensor(variable)
            return tf.constant(_array(value), dtypes.of(value.const_value.dtype))

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        found = fold.constant_array(key) if isinstance(key, ir.Value) else None
        if found is None and isinstance(value, tf.Tensor) and value.dtype != tf.string:
            found = tf.get_static_value(value)
        return found

    def main_line(self, error: Exception) -> str:
        return tensorflow_errors.main_line(error)

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = tf.name_scope(_scope(call.location.node or call.op))
        return scope

    def decompose(self, call: Call) -> Body | None:
        return decomposition_of(call)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(r if key is None else self._adopt(key, r) for key, r in zip(call.outputs, results, strict=False))

    def _adopt(self, key: Hashable, result: Any) -> Any:
        if not isinstance(key, ir.Value) or not isinstance(key.type, ir.TensorType) or key.dtype is None:
            return result
        expected = dtypes.of(key.dtype)
        if not isinstance(result, tf.Tensor):
            return tf.constant(result, expected)
        if result.dtype != expected:
            raise TypeError(f"the result is {result.dtype.name}, ONNX specifies {key.dtype.name}")
        if key.shape is not None:
            dims = [d if isinstance(d, int) else None for d in key.shape]
            if not result.shape.is_compatible_with(dims):
                raise TypeError(f"the result has shape {result.shape}, ONNX infers {list(key.shape)}")
            result.set_shape(dims)
        return result


def _array(value: ir.Value) -> np.ndarray[Any, Any]:
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())


def _scope(name: str) -> str:
    name = re.sub(r"[^\w.\-/]", "_", name).strip("/")
    return name if name[:1].isalnum() else f"v{name}"


def build(model: ir.Model) -> HubModule:
    """The hub model as a module with a traced function.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    graph = model.graph
    module = HubModule(graph)
    inputs = [v for v in graph.inputs if v.const_value is None]

    def body(*values: Any) -> list[Any]:
        target = _TraceTarget(module)
        target.values.update(zip(inputs, values, strict=True))
        lower(graph_reader.calls_of(graph), rule, target.values, target)
        return [_output(target.values[v]) for v in graph.outputs]

    if all(s is not None for s in module.signature):
        module._body = tf.function(body, input_signature=module.signature, autograph=False)
        module._body.get_concrete_function()
    else:
        # lists and None have no TensorSpec: such a model is retraced for each kind of input
        module._body = tf.function(body, autograph=False)
    return module


def _output(value: Any) -> Any:
    return tf.identity(value) if isinstance(value, tf.Tensor) else value
