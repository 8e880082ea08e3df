"""Input specifications in all accepted forms, as tf.TensorSpec with names for dynamic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import UsageError
from onnxbridge.frontends.tensorflow.dtypes import tf_dtype

Size = int | str | None


@dataclass(frozen=True)
class Spec:
    """One input: its shape (None if the rank is unknown) with names for dynamic sizes, and its tf.DType."""

    shape: tuple[Size, ...] | None
    dtype: Any

    def tensor_spec(self, name: str) -> Any:
        import tensorflow as tf

        shape = None if self.shape is None else [s if isinstance(s, int) else None for s in self.shape]
        return tf.TensorSpec(shape, self.dtype, name=name)


def spec_of(item: Any) -> Spec:
    """A spec from a tf.TensorSpec, a KerasTensor, a tensor, an array, or (shape, dtype).

    Raises:
        UsageError: for anything else.
    """
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], (tuple, list)):
        shape = tuple(None if s is None else s if isinstance(s, str) else int(s) for s in item[0])
        return Spec(shape, tf_dtype(item[1]))
    if isinstance(item, (int, float, bool, list, tuple)):
        item = np.asarray(item)
        item = item.astype(np.float32) if item.dtype == np.float64 else item
    if not hasattr(item, "shape") or not hasattr(item, "dtype"):
        raise UsageError(f"{item!r} does not describe an input; pass an array, a tf.TensorSpec or (shape, dtype)")
    return Spec(_shape(item.shape), tf_dtype(item.dtype))


def _shape(shape: Any) -> tuple[Size, ...] | None:
    if hasattr(shape, "rank"):
        return None if shape.rank is None else tuple(shape.as_list())
    return None if shape is None else tuple(shape)


def is_single(inputs: Any) -> bool:
    """Whether `inputs` describes a single input."""
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], str):
        return True
    return not isinstance(inputs, (Mapping, list, tuple))


def given(inputs: Any, known: Sequence[str]) -> dict[str, Spec]:
    """The user's inputs by name; unnamed inputs are matched in order.

    Raises:
        UsageError: if a name is unknown, or there are too many inputs.
    """
    if inputs is None:
        return {}
    if isinstance(inputs, Mapping):
        for name in inputs:
            if name not in known:
                raise UsageError(f"the model has no input {name!r}; it has {', '.join(known) or 'none'}")
        return {name: spec_of(item) for name, item in inputs.items()}
    items = [inputs] if is_single(inputs) else list(inputs)
    if len(items) > len(known):
        raise UsageError(f"{len(items)} inputs were given, but the model has {len(known)} ({', '.join(known)})")
    return {name: spec_of(item) for name, item in zip(known, items, strict=False)}


def merged(declared: Mapping[str, Spec], inputs: Any, dynamic: Any) -> dict[str, Spec]:
    """The declared inputs, refined by the user's.

    Raises:
        UsageError: if they contradict.
    """
    requested = given(inputs, list(declared))
    found = {}
    for name, own in declared.items():
        spec = requested.get(name, own)
        if spec is not own:
            _refuse_conflict(name, own, spec)
        found[name] = _dynamic(name, spec, own, dynamic)
    return found


def _refuse_conflict(name: str, own: Spec, spec: Spec) -> None:
    if own.dtype != spec.dtype:
        raise UsageError(f"the input {name!r} is {own.dtype.name}, not {spec.dtype.name}")
    if own.shape is None or spec.shape is None:
        return
    compatible = len(own.shape) == len(spec.shape) and all(
        not isinstance(o, int) or not isinstance(s, int) or o == s for o, s in zip(own.shape, spec.shape, strict=True)
    )
    if not compatible:
        raise UsageError(f"the input {name!r} has the shape {list(own.shape)}; {list(spec.shape)} does not fit")


def _dynamic(name: str, spec: Spec, own: Spec, dynamic: Any) -> Spec:
    """The spec with the dimension names of `dynamic`, which must be dynamic in the model."""
    axes = dynamic.get(name) if isinstance(dynamic, Mapping) else None
    if not axes or spec.shape is None:
        return spec
    shape = list(spec.shape)
    for axis, label in axes.items():
        if not -len(shape) <= axis < len(shape):
            raise UsageError(f"input {name!r} has no axis {axis}: its shape is {shape}")
        if own.shape is not None and isinstance(own.shape[axis], int) and own is not spec:
            raise UsageError(f"axis {axis} of input {name!r} has the static size {own.shape[axis]} in the model")
        shape[axis] = label
    return Spec(tuple(shape), spec.dtype)


def labelled(specs: Mapping[str, Spec], batched: bool) -> list[list[Size] | None]:
    """The shapes with a name for each dynamic size: "N" for the batch, "<input>_<axis>" for others.

    `batched` says that the first axes of all inputs are the same batch, as in Keras models.
    """
    shapes: list[list[Size] | None] = []
    for name, spec in specs.items():
        if spec.shape is None:
            shapes.append(None)
            continue
        first = "N" if batched or len(specs) == 1 else f"{name}_0"
        shapes.append([(first if i == 0 else f"{name}_{i}") if s is None else s for i, s in enumerate(spec.shape)])
    return shapes


def as_inputs(found: Mapping[str, Spec]) -> dict[str, tuple[Any, Any]]:
    """Specs in the form of `inputs`, with the names of sizes."""
    return {n: (s.shape, s.dtype) for n, s in found.items()}
