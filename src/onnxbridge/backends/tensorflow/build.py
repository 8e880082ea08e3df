"""Builds the module: while TensorFlow traces one function, the hub graph's calls go through the rules, on symbolic tensors."""

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
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported
from onnxbridge.hub.decompositions.lookup import body_of
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.lowering import Body, Call, Target, lower

DIRECTION = "ONNX to TensorFlow"
_HELD = 1024
"""Constants of more elements live in variables, so that they are not written into the graph."""


class HubModule(tf.Module):  # type: ignore[misc]
    """A model that came through the hub.

    Attributes:
        weights_by_name: the variables under the hub's names.
        input_names, output_names: the hub's names, in order.
        signature: what each input must be, a `tf.TensorSpec`; None for a sequence or an optional value.
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
        """Variables for what is trained and for what is too large to be written into the graph, in the file's order."""
        for part in (graph, *graph.subgraphs()):
            for value in part.initializers.values():
                trained = is_trained(value)
                if value.const_value is None or value.dtype == ir.DataType.STRING or not value.uses():
                    continue
                if not trained and value.const_value.size <= _HELD:
                    continue
                name = value.name or "constant"
                while name in self.weights_by_name:
                    name += "_"
                kind = dtypes.of(value.const_value.dtype)
                made = tf.Variable(_array(value), trainable=trained, name=_scope(name), dtype=kind)
                # an expansion has its own names for the same weight, so it is looked up by the tensor
                self.weights_by_name[name] = self.variables_made[str(id(value.const_value))] = made

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The model on its inputs, by position or by name; a tensor, or a tuple of them in the hub's order."""
        given = list(inputs) + [named.pop(k) if k in named else named.pop(n, None) for k, n in self._rest(len(inputs))]
        if named or len(given) != len(self.input_names):
            raise TypeError(f"the inputs are {', '.join(self.input_names)}")
        results = self._body(*given)
        return results[0] if len(results) == 1 and isinstance(results[0], tf.Tensor) else tuple(results)

    def _rest(self, start: int) -> list[tuple[str, str]]:
        return list(zip(self.keywords, self.input_names, strict=True))[start:]


def keywords(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names as TensorFlow allows signatures to have, each once."""
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
        raise ConversionError(DIRECTION, [Problem("input", f"{value.name}: {e.reason}", e.hint, (Source(),))]) from e


class _Target(Target):
    """What the walker writes into: the function that is being traced."""

    direction = DIRECTION

    def __init__(self, module: HubModule) -> None:
        self.module = module
        self.graph = tf.compat.v1.get_default_graph()
        self.values = graph_reader.HubValues(self.constant)

    def constant(self, value: ir.Value) -> Any:
        assert value.const_value is not None
        with self.graph.as_default():  # a constant may be met in a branch first and used outside of it later
            variable = self.module.variables_made.get(str(id(value.const_value)))
            if variable is not None:
                return tf.convert_to_tensor(variable)
            return tf.constant(_array(value), dtypes.of(value.const_value.dtype))

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        found = fold.static(key) if isinstance(key, ir.Value) else None
        if found is None and isinstance(value, tf.Tensor) and value.dtype != tf.string:
            found = tf.get_static_value(value)
        return found

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = tf.name_scope(_scope(call.where.node or call.op))
        return scope

    def expand(self, call: Call) -> Body | None:
        return body_of(call)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(r if key is None else self._adopt(key, r) for key, r in zip(call.outputs, results, strict=False))

    def _adopt(self, key: Hashable, result: Any) -> Any:
        if not isinstance(key, ir.Value) or not isinstance(key.type, ir.TensorType) or key.dtype is None:
            return result
        wanted = dtypes.of(key.dtype)
        if not isinstance(result, tf.Tensor):
            return tf.constant(result, wanted)
        if result.dtype != wanted:
            raise TypeError(f"the result is {result.dtype.name}, the standard says {key.dtype.name}")
        if key.shape is not None:
            dims = [d if isinstance(d, int) else None for d in key.shape]
            if not result.shape.is_compatible_with(dims):
                raise TypeError(f"the result has shape {result.shape}, the standard says {list(key.shape)}")
            result.set_shape(dims)
        return result


def _array(value: ir.Value) -> np.ndarray[Any, Any]:
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())


def _scope(name: str) -> str:
    name = re.sub(r"[^\w.\-/]", "_", name).strip("/")
    return name if name[:1].isalnum() else f"v{name}"


def build(model: ir.Model) -> HubModule:
    """The hub model as a module whose function has been traced.

    Raises:
        ConversionError: with every operator that is in the way.
    """
    graph = model.graph
    module = HubModule(graph)
    inputs = [v for v in graph.inputs if v.const_value is None]

    def body(*given: Any) -> list[Any]:
        target = _Target(module)
        target.values.update(zip(inputs, given, strict=True))
        lower(graph_reader.of(graph), rule, target.values, target)
        return [_leaving(target.values[v]) for v in graph.outputs]

    if all(s is not None for s in module.signature):
        module._body = tf.function(body, input_signature=module.signature, autograph=False)
        module._body.get_concrete_function()
    else:
        # lists and None have no signature of their own: such a model is traced anew for each kind of input that it gets
        module._body = tf.function(body, autograph=False)
    return module


def _leaving(value: Any) -> Any:
    return tf.identity(value) if isinstance(value, tf.Tensor) else value
