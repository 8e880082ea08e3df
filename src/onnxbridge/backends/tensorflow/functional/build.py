"""Builds the functional Keras model of a hub graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional import custom_layers
from onnxbridge.backends.tensorflow.functional.expressions import Expression, Item, Result, Weight
from onnxbridge.backends.tensorflow.functional.fragments import fragment, is_variable
from onnxbridge.backends.tensorflow.functional.model import BuiltCall, KerasModel, keras_model
from onnxbridge.backends.tensorflow.functional.names import LayerNames, name_of, plain_name
from onnxbridge.backends.tensorflow.functional.plan import Step, inputs_of, is_tensor, steps
from onnxbridge.backends.tensorflow.functional.values import dtype_of, weight
from onnxbridge.backends.tensorflow.hub_module import keywords
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.trainable import is_trained
from onnxbridge.hub.passes.transposes.channels_last import DOMAIN

_OPSETS = {"": OPSET, "ai.onnx.ml": 5, DOMAIN: 1}
_UNROLLED = 64
"""The most steps of a recurrent layer that is written without a loop."""


class NotFunctional(Exception):
    """A model that cannot be a functional Keras model, and why."""


def build(model: ir.Model, functions: bool = True, unrolled: bool = False) -> KerasModel:
    """The hub model as a functional Keras model.

    Args:
        functions: whether it may call `keras.ops`, too, beside layers.
        unrolled: whether recurrent layers on few steps are without a loop.

    Raises:
        NotFunctional: for inputs, outputs or operators that Keras has no symbolic tensors for.
        ConversionError: for operators that cannot be converted.
    """
    if keras.backend.backend() != "tensorflow":
        raise NotFunctional(f"Keras runs on {keras.backend.backend()}")
    with keras_defaults():
        return _Builder(model, unrolled).model(functions)


@contextmanager
def keras_defaults() -> Iterator[None]:
    """Keras's settings as the layers are written for, whatever the user has configured."""
    policy, order = keras.config.dtype_policy(), keras.config.image_data_format()
    keras.config.set_dtype_policy("float32")
    keras.config.set_image_data_format("channels_last")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        keras.config.set_image_data_format(order)


class _Builder:
    """The values of the model while its layers are called one after the other."""

    def __init__(self, model: ir.Model, unrolled: bool) -> None:
        self.graph = graph = model.graph
        self.inputs = [v for v in graph.inputs if v.const_value is None]
        if not self.inputs or not all(map(is_tensor, (*self.inputs, *graph.outputs))):
            raise NotFunctional("it has no inputs, or such without a Keras dtype or rank")
        names = keywords(tuple(v.name or "" for v in self.inputs))
        self.names = LayerNames(set(names))
        self.opsets = {**_OPSETS, **model.opset_imports}
        self.values: dict[ir.Value, Any] = {}
        for value, name in zip(self.inputs, names, strict=True):
            shape = [d if isinstance(d, int) else None for d in value.shape or ()]
            dtype = dtype_of(value).name
            self.values[value] = keras.Input(batch_shape=tuple(shape), dtype=dtype, name=name)
        self.variables: dict[ir.Value, Any] = {}
        self.readers: dict[ir.Value, set[ir.Node]] = {}
        for node in graph:
            for value in inputs_of(node):
                self.readers.setdefault(value, set()).add(node)
        self.calls: list[BuiltCall] = []
        self._layers: dict[Any, Any] = {}
        self._unrolled = unrolled

    def model(self, functions: bool) -> KerasModel:
        plan = steps(self.graph, functions)
        calls = [(s.nodes[0], c) for s in plan for r in (s.results or {}).values() for c in _calls(r)]
        self.names.functions = {c.kind.removeprefix("ops.") for _, c in calls if not c.is_layer} | {"get_item"}
        self.names.with_weights = {plain_name(name_of(n, _sources_of(c), c.kind)).lower() for n, c in calls if c.weights}
        self._share_parameters([s for s in plan if s.results is None], [s for s in plan if s.results is not None])
        for step in plan:
            if step.results is None:
                self._run(step.nodes)
                continue
            try:
                self.values.update(self._made(step))
            except (TypeError, ValueError):  # Keras cannot infer the shape, for example
                self._run(step.nodes)
        if any(v not in self.values for v in self.graph.outputs):
            raise NotFunctional("an output is constant")
        outputs = tuple(self.values[v] for v in self.graph.outputs)
        inputs = [self.values[v] for v in self.inputs]
        order = {v.const_value: i for i, v in enumerate(self.graph.initializers.values())}
        named = sorted(self.variables.items(), key=lambda item: order.get(item[0].const_value, 0))
        return keras_model(
            inputs[0] if len(inputs) == 1 else inputs, outputs[0] if len(outputs) == 1 else outputs,
            name=self.names.unused(self.graph.name or "model"), hub_inputs=[v.name or "" for v in self.inputs],
            hub_outputs=[v.name or "" for v in self.graph.outputs], weights_by_name={v.name or "": w for v, w in named},
            calls=self.calls,
        )  # fmt: skip

    def _made(self, step: Step) -> dict[ir.Value, Any]:
        """The symbolic tensors of a step that calls Keras's layers and functions."""
        calls: dict[int, Any] = {}
        return {
            value: self._adopted(value, self._evaluate(result, step.nodes[0], calls))
            for value, result in (step.results or {}).items()
            if value.name != "" and (value.uses() or value.is_graph_output())
        }

    def _adopted(self, value: ir.Value, made: Any) -> Any:
        """Check a symbolic tensor against the hub's type and shape."""
        expected = dtype_of(value).name
        shape = [d if isinstance(d, int) else None for d in value.shape or ()]
        agrees = len(shape) == len(made.shape) and all(
            a is None or b is None or a == b for a, b in zip(shape, made.shape, strict=True)
        )
        if made.dtype != expected or not agrees:
            raise TypeError(f"{value.name}: the layer gives {made.dtype}{made.shape}, ONNX infers {expected}{shape}")
        return made

    # Keras layers and functions

    def _evaluate(self, result: Result | Any, node: ir.Node, made: dict[int, Any]) -> Any:
        if isinstance(result, ir.Value):
            return self.values[result]
        if isinstance(result, Item):
            return self._evaluate(result.call, node, made)[result.index]
        if not isinstance(result, Expression):
            return result
        if id(result) not in made:
            inputs = [self._evaluate(item, node, made) for item in result.inputs]
            named = {
                key: [self._evaluate(v, node, made) for v in (item if isinstance(item, tuple) else (item,))]
                for key, item in result.named.items()
            }
            named = {key: v if isinstance(result.named[key], tuple) else v[0] for key, v in named.items()}
            made[id(result)] = self._call(result, inputs, named, node)
        return made[id(result)]

    def _call(self, call: Expression, inputs: list[Any], named: dict[str, Any], node: ir.Node) -> Any:
        arguments = [inputs] if call.as_list else inputs
        layer: Any = None
        config: Mapping[str, Any] = call.config
        wrapped: tuple[str, Mapping[str, Any]] | None = None
        if call.kind == "ops.transpose" and (before := self._transposed_from(inputs, config)) is not None:
            return before
        if call.kind == "getitem":
            made = inputs[0][inputs[1]]
        elif not call.is_layer:
            made = getattr(keras.ops, call.kind.removeprefix("ops."))(*arguments, **config)
        else:
            key = (call.kind, repr(config), _sources_of(call))
            shared = self._layers.get(key) if call.weights else None
            layer, config, wrapped = self._layers[key] = shared or self._layer(call, inputs, node)
            made = layer(*arguments, **named)
            if shared is None:
                self._set_weights(layer, call.weights)
        self._record(call.kind, config, layer, inputs, made, named=named, as_list=call.as_list, wrapped=wrapped)
        return made

    def _transposed_from(self, inputs: Sequence[Any], config: Mapping[str, Any]) -> Any:
        """The tensor that was transposed before, if this transpose restores it."""
        before = next((c for c in self.calls if c.kind == "ops.transpose" and c.results[0] is inputs[0]), None)
        if before is None:
            return None
        first, second = (x[1] if len(x) > 1 else c["axes"] for x, c in ((before.inputs, before.config), (inputs, config)))
        return before.inputs[0] if all(first[axis] == i for i, axis in enumerate(second)) else None

    def _record(
        self, kind: str, config: Mapping[str, Any], layer: Any, inputs: Sequence[Any], made: Any, *,
        named: Mapping[str, Any] | None = None, as_list: bool = False, wrapped: Any = None,
    ) -> None:  # fmt: skip
        several = isinstance(made, (list, tuple))
        results = tuple(made) if several else (made,)
        self.calls.append(BuiltCall(kind, config, layer, tuple(inputs), named or {}, as_list, wrapped, results, several))

    def _layer(self, call: Expression, inputs: Sequence[Any], node: ir.Node) -> tuple[Any, Mapping[str, Any], Any]:
        """The layer, the arguments of its constructor, and the kind and arguments of the layer that it wraps."""
        sources = _sources_of(call)
        suffix = "_pad" if call.kind.startswith("ZeroPadding") and node.op_type != "Pad" else ""
        suffix = "_crop" if call.kind.startswith("Cropping") else suffix
        name = self.names.unused(name_of(node, sources or _weights_beside(node), call.kind) + suffix, bool(sources))
        steps = inputs[0].shape[1] if _is_recurrent(call) else None
        unrolled = {"unroll": True} if self._unrolled and steps is not None and steps <= _UNROLLED else {}
        if call.wrapped is None:
            config = {**call.config, **unrolled}
            return getattr(keras.layers, call.kind)(**config, name=name), config, None
        kind, inner = call.wrapped.kind, {**call.wrapped.config, **unrolled}
        layer = getattr(keras.layers, call.kind)(getattr(keras.layers, kind)(**inner), **call.config, name=name)
        return layer, call.config, (kind, inner)

    def _set_weights(self, layer: Any, weights: Sequence[Weight]) -> None:
        variables = layer.weights
        if len(variables) != len(weights):
            raise TypeError(f"{layer.name} has {len(variables)} weights, not {len(weights)}")
        trained = [any(map(is_trained, w.sources)) for w in weights]
        layer.trainable = not weights or any(trained)
        for variable, each, is_trainable in zip(variables, weights, trained, strict=True):
            array = np.asarray(each.array())
            if tuple(array.shape) != tuple(variable.shape):
                raise TypeError(f"{variable.path} has shape {variable.shape}, not {array.shape}")
            variable.assign(array)
            if variable.trainable and not is_trainable:
                variable.trainable = False
            for source in each.sources:
                self.variables.setdefault(source, variable)

    # operators that run by the rules

    def _share_parameters(self, run: Sequence[Step], native: Sequence[Step]) -> None:
        """Create a `Parameter` for every weight of operators that belongs to several layers."""
        owners: dict[ir.Value, set[int]] = {}
        for i, step in enumerate(run):
            for node in step.nodes:
                for value in self._weights_of(node):
                    owners.setdefault(value, set()).add(i)
        results = [r for step in native for r in (step.results or {}).values()]
        own = {s for r in results for c in _calls(r) for s in _sources_of(c)}
        for value, found in owners.items():
            if len(found) < 2 and value not in own:
                continue
            array = weight(value).array()
            layer = custom_layers.Parameter(array.shape, dtype_of(value).name, name=self.names.unused(value.name or ""))
            anchor = self.values[self.inputs[0]]
            self.values[value] = layer(anchor)
            self._record("Parameter", {}, layer, [anchor], self.values[value])
            layer.value.assign(array)
            layer.trainable = is_trained(value)
            self.variables.setdefault(value, layer.value)

    def _weights_of(self, node: ir.Node) -> Iterator[ir.Value]:
        yield from (v for v in inputs_of(node) if is_variable(v))

    def _run(self, nodes: Sequence[ir.Node]) -> None:
        """Call an `Operators` layer that computes these nodes."""
        part = fragment(nodes, self.readers, self.values.keys(), self.inputs[0], self.opsets)
        if not part.outputs:
            return
        if not all(map(is_tensor, part.outputs)) or any(v not in self.values for v in part.inputs):
            raise NotFunctional(f"{nodes[0].op_type}: Keras has no symbolic tensor for what it gives or takes")
        inputs = [self.values[v] for v in part.inputs]
        results = custom_layers.traced(part.graph, len(part.weights), inputs)
        for value, result in zip(part.graph.outputs, results, strict=True):
            if getattr(getattr(result, "shape", None), "rank", None) is None:
                raise NotFunctional(f"{nodes[0].op_type}: the rank of its result is known only at run time")
            value.shape = ir.Shape(result.shape.as_list())
        trained = [is_trained(v) for v in part.weights]
        sources = tuple(v for v, is_one in zip(part.weights, trained, strict=True) if is_one)
        name = self.names.unused(name_of(nodes[-1], sources if len(nodes) == 1 else (), nodes[-1].op_type))
        layer = custom_layers.Operators(custom_layers.encoded(part.graph), trained, name=name)
        made = layer(inputs[0] if len(inputs) == 1 else inputs)
        self._record("Operators", {}, layer, inputs, made, as_list=len(inputs) > 1)
        for value, variable in zip(part.weights, layer.weights_in_order, strict=True):
            variable.assign(constant_array(value))
            self.variables.setdefault(value, variable)
        made = made if isinstance(made, (list, tuple)) else [made]
        self.values.update(zip(part.outputs, made, strict=True))


def _is_recurrent(call: Expression) -> bool:
    return call.kind in ("LSTM", "GRU", "SimpleRNN", "Bidirectional")


def _weights_beside(node: ir.Node) -> tuple[ir.Value, ...]:
    """The weights of a node, by which its helping layers are named."""
    return tuple(v for v in node.inputs if v is not None and v.const_value is not None and is_trained(v))


def _calls(result: Any) -> Iterator[Expression]:
    """The calls of layers and functions in a result."""
    if isinstance(result, Item):
        yield from _calls(result.call)
    elif isinstance(result, Expression):
        yield result
        for item in result.operands:
            yield from _calls(item)


def _sources_of(call: Expression) -> tuple[ir.Value, ...]:
    return tuple(s for w in call.weights for s in w.sources)
