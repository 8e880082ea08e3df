"""The Keras model that users get: a functional model that is also called with its inputs by position or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from keras.src.models.functional import Functional

from onnxbridge.backends.tensorflow.artifacts.written_as import WrittenAs
from onnxbridge.backends.tensorflow.hub_module import keywords


@dataclass(frozen=True, eq=False)
class BuiltCall:
    """One call that a model was built by.

    Attributes:
        kind: as that of an `Expression`; "Operators" and "Parameter" are onnxbridge's own layers.
        config: the arguments of the layer's constructor without its name, or the keyword arguments of the function.
        layer: the layer.
        inputs, named: symbolic tensors and constants, by position and by keyword.
        as_list: whether the inputs are passed as one list.
        wrapped: the kind and the arguments of the layer that a wrapper wraps.
        results: the symbolic tensors; `several` whether the call returns more than one.
    """

    kind: str
    config: Mapping[str, Any]
    layer: Any
    inputs: tuple[Any, ...]
    named: Mapping[str, Any]
    as_list: bool
    wrapped: tuple[str, Mapping[str, Any]] | None
    results: tuple[Any, ...]
    several: bool


@dataclass(frozen=True)
class _Origin:
    """What a model knows of the hub model. An object of its own, so that Keras does not track it as part of the model."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Any]
    calls: tuple[BuiltCall, ...]


class KerasModel(Functional):  # type: ignore[misc]
    """A functional Keras model converted from the hub.

    It is called as any Keras model, and also with several inputs by position, or by name (`model(ids, mask)`, `model(image=x)`).
    It is saved as a plain functional model, which loads without onnxbridge.

    Attributes:
        weights_by_name: the variables by hub name.
        hub_inputs, hub_outputs: the hub's names, in order.
        signature: the `tf.TensorSpec` of each input.
        built_calls: the calls of layers and functions that built the model, in order.
    """

    # There is no __init__ of our own: Keras writes the configuration of classes that are constructed as Functional is.
    _origin = _Origin((), (), {}, ())
    carried: Mapping[str, Any] = {}
    sequences: Mapping[str, Any] = {}
    written_as = WrittenAs()

    @property
    def hub_inputs(self) -> tuple[str, ...]:  # noqa: D102
        return self._origin.inputs

    @property
    def hub_outputs(self) -> tuple[str, ...]:  # noqa: D102
        return self._origin.outputs

    @property
    def keywords(self) -> tuple[str, ...]:
        """The names of the inputs as Keras allows them."""
        return keywords(self.hub_inputs)

    @property
    def weights_by_name(self) -> Mapping[str, Any]:  # noqa: D102
        return self._origin.weights

    @property
    def built_calls(self) -> tuple[BuiltCall, ...]:  # noqa: D102
        return self._origin.calls

    @property
    def signature(self) -> tuple[Any, ...]:  # noqa: D102
        return tuple(tf.TensorSpec(x.shape, x.dtype, k) for x, k in zip(self.inputs, self.keywords, strict=True))

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the model with its inputs as Keras takes them, or by position or name."""
        if not self.hub_inputs:  # a copy that Keras made
            return super().__call__(*inputs, **named)
        count = len(self.hub_inputs)
        given = dict(zip(self.keywords, inputs, strict=False)) if 1 < len(inputs) == count or not inputs else {}
        for key, name in zip(self.keywords, self.hub_inputs, strict=True):
            if key not in given and (key in named or name in named):
                given[key] = named.pop(key if key in named else name)
        unknown = sorted(set(named) - {"training", "mask"})
        if given and (len(given) != count or unknown):
            raise TypeError(f"the inputs are {', '.join(self.hub_inputs)}")
        if unknown:
            raise TypeError(f"there is no input {', '.join(unknown)}; the inputs are {', '.join(self.hub_inputs)}")
        if given:
            values = [given[k] for k in self.keywords]
            inputs = (values[0] if count == 1 else values,)
        return super().__call__(*inputs, **named)


def keras_model(
    inputs: Any, outputs: Any, *, name: str, hub_inputs: Sequence[str], hub_outputs: Sequence[str],
    weights_by_name: Mapping[str, Any], calls: Sequence[BuiltCall],
) -> KerasModel:  # fmt: skip
    """The model between these symbolic tensors, with its names in the hub."""
    made = KerasModel(inputs, outputs, name=name)
    made._origin = _Origin(tuple(hub_inputs), tuple(hub_outputs), weights_by_name, tuple(calls))
    return made


# Saved under its base class, so that a model loads where onnxbridge is not installed.
KerasModel.__name__ = KerasModel.__qualname__ = Functional.__name__
KerasModel.__module__ = Functional.__module__
