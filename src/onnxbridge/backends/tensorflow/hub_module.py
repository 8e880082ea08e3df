"""Builds the module: while TensorFlow traces a function, the hub graph's calls run through the rules on symbolic tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.artifacts.written_as import WrittenAs
from onnxbridge.backends.tensorflow.ops import all_rules
from onnxbridge.backends.tensorflow.tensor_list import TensorList, as_python_list
from onnxbridge.backends.tensorflow.trace import DIRECTION, TraceTarget, array, scope_name, typed
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.lowering import lower

_MAX_CONSTANT = 1024
"""Larger constants are stored in variables, so that they are not written into the graph."""


class HubModule(tf.Module):  # type: ignore[misc]
    """A model converted from the hub.

    Attributes:
        weights_by_name: the variables by hub name.
        hub_inputs, hub_outputs: the hub's names of inputs and outputs, in order.
        signature: the `tf.TensorSpec` of each input; None for a sequence or an optional value.
        carried: the hub types of inputs and outputs that are carried in another dtype.
        sequences: the element types of outputs that are sequences.
        written_as: the options of the file that is written.
        reason: why it is no Keras model.
    """

    def __init__(self, graph: ir.Graph) -> None:
        super().__init__(name=re.sub(r"\W", "_", graph.name or "") or "model")
        inputs = [v for v in graph.inputs if v.const_value is None]
        self.hub_inputs = tuple(v.name or "" for v in inputs)
        self.hub_outputs = tuple(v.name or "" for v in graph.outputs)
        self.keywords = keywords(self.hub_inputs)
        self.signature = tuple(_spec(v, k) for v, k in zip(inputs, self.keywords, strict=True))
        self.carried = carried_types([*inputs, *graph.outputs])
        self.sequences = {v.name or "": dtypes.of(v.dtype) for v in graph.outputs if v.dtype is not None and _is_sequence(v.type)}
        self.weights_by_name: dict[str, Any] = {}
        self.written_as = WrittenAs()
        self.reason = ""
        self._body: Any = None
        self._variables: dict[str, Any] = {}
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
                elements = array(value).astype(kind.as_numpy_dtype, copy=False)
                made = tf.Variable(elements, trainable=trained, name=scope_name(name), dtype=kind)
                # a decomposition has its own names for the same weight, so it is found by its tensor
                self.weights_by_name[name] = self._variables[str(id(value.const_value))] = made

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the model with inputs by position or name; returns a tensor, or a tuple in the hub's order."""
        values = list(inputs) + [
            named.pop(k) if k in named else named.pop(n, None) for k, n in self._remaining_inputs(len(inputs))
        ]
        if named or len(values) != len(self.hub_inputs):
            raise TypeError(f"the inputs are {', '.join(self.hub_inputs)}")
        values = [
            dtypes.carried(v, self.carried[n]) if n in self.carried else v for n, v in zip(self.hub_inputs, values, strict=True)
        ]
        results = [self._result(n, r) for n, r in zip(self.hub_outputs, self._body(*values), strict=True)]
        return results[0] if len(results) == 1 and isinstance(results[0], tf.Tensor) else tuple(results)

    def _result(self, name: str, value: Any) -> Any:
        if isinstance(value, tf.Tensor) and value.dtype == tf.variant and tf.executing_eagerly():
            value = as_python_list(value, self.sequences[name])
        return dtypes.uncarried(value, self.carried[name]) if name in self.carried else value

    def _remaining_inputs(self, start: int) -> list[tuple[str, str]]:
        return list(zip(self.keywords, self.hub_inputs, strict=True))[start:]


def _is_sequence(kind: ir.TypeProtocol | None) -> bool:
    return isinstance(kind, ir.SequenceType) or (isinstance(kind, ir.OptionalType) and _is_sequence(kind.elem_type))


def carried_types(values: Iterable[ir.Value]) -> dict[str, ir.DataType]:
    """The hub types, by name, of values whose tensors carry them in another type."""
    return {v.name or "": v.dtype for v in values if v.dtype in dtypes.CARRIED}


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


def build(model: ir.Model) -> HubModule:
    """The hub model as a module with a traced function.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    graph = model.graph
    module = HubModule(graph)
    inputs = [v for v in graph.inputs if v.const_value is None]

    def body(*values: Any) -> list[Any]:
        target = TraceTarget(module._variables)
        target.values.update((k, typed(v, k)) for k, v in zip(inputs, values, strict=True))
        lower(graph_reader.calls_of(graph), all_rules(), target.values, target)
        return [_output(target.values[v]) for v in graph.outputs]

    if all(s is not None for s in module.signature):
        module._body = tf.function(body, input_signature=module.signature, autograph=False)
        module._body.get_concrete_function()
    else:
        # lists and None have no TensorSpec: such a model is retraced for each kind of input
        module._body = tf.function(body, autograph=False)
    return module


def _output(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    value = value.handle if isinstance(value, TensorList) else value
    return tf.identity(value) if isinstance(value, tf.Tensor) else value
