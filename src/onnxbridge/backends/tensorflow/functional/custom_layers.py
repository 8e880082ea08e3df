"""The two Keras layers of onnxbridge, for what no layer of Keras computes: `Operators` and `Parameter`.

A saved model that has them is loaded by `keras.models.load_model` after `import onnxbridge.keras_layers`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import keras
import onnx
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.functional.names import plain_name
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_of
from onnxbridge.backends.tensorflow.ops import all_rules
from onnxbridge.backends.tensorflow.trace import TraceTarget
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import lower


@keras.saving.register_keras_serializable(package="onnxbridge")
class Operators(keras.layers.Layer):  # type: ignore[misc]
    """Runs ONNX operators by onnxbridge's rules.

    Args:
        model: the operators as an ONNX model at the hub's opset: text in base64. Its first inputs are the layer's, the others its
            weights.
        weights: the trainability of each weight.
    """

    def __init__(self, model: str, trained: Sequence[bool] = (), **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.model, self.trained = model, tuple(trained)
        self._graph = _Graph(onnx_files.from_proto(onnx.ModelProto.FromString(base64.b64decode(model))).graph, len(self.trained))
        self.weights_in_order: list[Any] = []

    @property
    def graph_function(self) -> _Graph:
        """The operators as a function of the inputs and the weights."""
        return self._graph

    def build(self, input_shape: Any) -> None:
        for value, trained in zip(self._graph.weights, self.trained, strict=True):
            made = self.add_weight(
                shape=dims(value), dtype=dtype_of(value).name, trainable=trained, initializer="zeros",
                name=plain_name(value.name or "weight"),
            )  # fmt: skip
            self.weights_in_order.append(made)

    def call(self, inputs: Any) -> Any:
        inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        run = self._graph.traced() if tf.executing_eagerly() else self._graph.run
        results = run(*inputs, *(tf.convert_to_tensor(w) for w in self.weights_in_order))
        return results[0] if len(results) == 1 else list(results)

    def compute_output_spec(self, inputs: Any) -> Any:
        specs = [keras.KerasTensor(dims(v), dtype=dtype_of(v).name) for v in self._graph.graph.outputs]
        return specs[0] if len(specs) == 1 else specs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "model": self.model, "trained": list(self.trained)}


class _Graph:
    """The operators of a layer, as a function. Not an attribute that Keras or TensorFlow track."""

    def __init__(self, graph: ir.Graph, weights: int) -> None:
        self.graph = graph
        self.inputs = list(graph.inputs)
        self.weights = self.inputs[len(self.inputs) - weights :]
        self._traced: Any = None

    def run(self, *values: Any) -> list[Any]:
        target = TraceTarget()
        for key, value in zip(self.inputs, map(tf.convert_to_tensor, values), strict=True):
            target.values[key] = dtypes.marked(value, key.dtype)
        lower(graph_reader.calls_of(self.graph), all_rules(), target.values, target)
        return [target.values[v] for v in self.graph.outputs]

    def traced(self) -> Any:
        """The function for eager calls, where the rules need a graph to write into."""
        if self._traced is None:
            self._traced = tf.function(self.run, autograph=False, reduce_retracing=True)
            # TensorFlow warns of many traces of one function, and takes those of all layers for one, since they share their code
            self._traced._omit_frequent_tracing_warning = True
        return self._traced


@keras.saving.register_keras_serializable(package="onnxbridge")
class Parameter(keras.layers.Layer):  # type: ignore[misc]
    """A weight that several layers share. It is called on any value of the model, and returns the weight."""

    def __init__(self, shape: Sequence[int], weight_dtype: str = "float32", **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.shape, self.weight_dtype = tuple(shape), weight_dtype

    def build(self, input_shape: Any) -> None:
        self.value = self.add_weight(shape=self.shape, dtype=self.weight_dtype, initializer="zeros", name="value")

    def call(self, inputs: Any) -> Any:
        return tf.convert_to_tensor(self.value)

    def compute_output_spec(self, inputs: Any) -> Any:
        return keras.KerasTensor(self.shape, dtype=self.weight_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "shape": list(self.shape), "weight_dtype": self.weight_dtype}


def traced(graph: ir.Graph, weights: int, inputs: Sequence[Any]) -> list[Any]:
    """The results of operators on symbolic inputs, from a trace that is discarded; the last inputs of `graph` are its weights.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    function = _Graph(graph, weights)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    specs += [tf.TensorSpec(dims(v), dtype_of(v)) for v in function.weights]
    results: list[Any] = []

    def trace(*values: Any) -> list[Any]:
        results[:] = function.run(*values)
        return [r for r in results if isinstance(r, tf.Tensor)]

    tf.function(trace, autograph=False, input_signature=specs).get_concrete_function()
    return results


def encoded(graph: ir.Graph) -> str:
    """A graph as the text that `Operators` takes."""
    model = ir.Model(graph, ir_version=11)
    return base64.b64encode(ir.to_proto(model).SerializeToString(deterministic=True)).decode("ascii")
