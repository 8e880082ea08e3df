"""Lowers calls of the hub into the TensorFlow function that is being traced."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes, tensor_list
from onnxbridge.frameworks import tensorflow_errors
from onnxbridge.hub.decompositions.lookup import decomposition_of
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.lowering import Body, BodyFunction, Call, Target, Values
from onnxbridge.rules import Rule

DIRECTION = "ONNX to TensorFlow"


class TraceTarget(Target):
    """The lowering target: the function being traced. `variables` hold weights, by the identity of the hub's tensor."""

    direction = DIRECTION

    def __init__(self, variables: Mapping[str, Any] | None = None) -> None:
        self.variables = variables or {}
        self.graph = tf.compat.v1.get_default_graph()
        self.values = graph_reader.HubValues(self.constant)

    def constant(self, value: ir.Value) -> Any:
        assert value.const_value is not None
        with self.graph.as_default():  # a constant may be created in a branch and used outside of it later
            variable = self.variables.get(str(id(value.const_value)))
            if variable is not None:
                return dtypes.marked(tf.convert_to_tensor(variable), value.const_value.dtype)
            kind = dtypes.of(value.const_value.dtype)
            elements = array(value)
            elements = elements if kind == tf.string else elements.astype(kind.as_numpy_dtype, copy=False)
            return dtypes.marked(tf.constant(elements, kind), value.const_value.dtype)

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        found = fold.constant_array(key) if isinstance(key, ir.Value) else None
        if found is None and isinstance(value, tf.Tensor) and value.dtype != tf.string:
            found = tf.get_static_value(value)
        return found

    def main_line(self, error: Exception) -> str:
        return tensorflow_errors.main_line(error)

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = tf.name_scope(scope_name(call.location.node or call.op))
        return scope

    def body(self, body: Body, rules: Mapping[str, Rule], values: Values) -> Any:
        run = BodyFunction(body, rules, values, self)

        def on_marked(*inputs: Any) -> tuple[Any, ...]:
            return run(*(typed(v, key) for key, v in zip(body.inputs, inputs, strict=False)))

        on_marked.output_types = [dtypes.of(r.key.dtype) if r.key.dtype else None for r in body.outputs]  # type: ignore[attr-defined]
        return on_marked

    def decompose(self, call: Call) -> Body | None:
        return decomposition_of(call)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(r if key is None else self._adopt(key, r) for key, r in zip(call.outputs, results, strict=False))

    def _adopt(self, key: Hashable, result: Any) -> Any:
        if not isinstance(key, ir.Value) or not isinstance(key.type, ir.TensorType) or key.dtype is None:
            return typed(result, key)
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
        return dtypes.marked(result, key.dtype)


def typed(value: Any, key: Hashable) -> Any:
    """Note on a tensor or a list its hub type, as far as TensorFlow's differs."""
    dtype = key.dtype if isinstance(key, ir.Value) else None
    return tensor_list.typed(value, dtype) if isinstance(value, list) else dtypes.marked(value, dtype)


def array(value: ir.Value) -> np.ndarray[Any, Any]:
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy())


def scope_name(name: str) -> str:
    name = re.sub(r"[^\w.\-/]", "_", name, flags=re.ASCII).strip("/")
    return name if name[:1].isalnum() else f"v{name}"
