"""Signatures of a TensorFlow Lite model, and the shapes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxbridge.errors import UsageError
from onnxbridge.formats.tflite.model import Model, Signature
from onnxbridge.hub.ir.unique_name import unique_name


def signature_of(model: Model, key: str | None) -> Signature:
    """The signature with this key, or the model's only or default one; names of tensors for a model without signatures.

    Raises:
        UsageError: if there is no such signature, or several without a default one.
    """
    keys = [s.key for s in model.signatures]
    if key is not None and key not in keys:
        raise UsageError(f"{model.path}: has no signature {key!r}; it has {', '.join(keys) or 'none'}")
    if key is None and len(keys) > 1 and "serving_default" not in keys:
        raise UsageError(f"{model.path}: has no signature 'serving_default'; choose one of {', '.join(keys)}")
    wanted = key if key is not None else "serving_default" if "serving_default" in keys else keys[0] if keys else None
    found = next((s for s in model.signatures if s.key == wanted), None)
    if found is None:
        graph = model.graphs[0]
        used: set[str] = set()
        names = [unique_name(graph.tensors[i].name or "tensor", used) for i in (*graph.inputs, *graph.outputs)]
        ends = list(zip(names, (*graph.inputs, *graph.outputs), strict=True))
        return Signature("", 0, tuple(ends[: len(graph.inputs)]), tuple(ends[len(graph.inputs) :]))
    used = set()
    own = [(unique_name(name, used), i) for name, i in (*found.inputs, *found.outputs)]
    return Signature(found.key, found.graph, tuple(own[: len(found.inputs)]), tuple(own[len(found.inputs) :]))


def shapes_of(model: Model, signature: Signature, inputs: Any, dynamic: Any) -> dict[str, tuple[int | str | None, ...]]:
    """The shapes of the inputs: those of the file, with the user's sizes and names in the dimensions that are dynamic.

    Raises:
        UsageError: for an input that the model does not have, or a size that it does not support.
    """
    declared = {name: model.graphs[signature.graph].tensors[index].sizes or () for name, index in signature.inputs}
    items = [inputs] if inputs is not None and not isinstance(inputs, (Mapping, tuple, list)) else inputs
    given = dict(items) if isinstance(items, Mapping) else dict(zip(declared, items or (), strict=False))
    labels = dynamic if isinstance(dynamic, Mapping) else {}
    unknown = sorted((set(given) | set(labels)) - set(declared))
    if unknown:
        raise UsageError(f"the model has no input {', '.join(unknown)}, only {', '.join(declared)}")
    return {name: _sizes(name, own, given.get(name), labels.get(name, {}), len(declared)) for name, own in declared.items()}


def _sizes(name: str, own: Any, item: Any, labels: Mapping[int, str], count: int) -> tuple[int | str | None, ...]:
    is_spec = isinstance(item, tuple) and len(item) == 2
    wanted = own if item is None else tuple(item[0]) if is_spec else np.shape(item)
    if len(wanted) != len(own) or any(isinstance(o, int) and w not in (None, o) for w, o in zip(wanted, own, strict=True)):
        raise UsageError(f"the input {name!r} has shape {_shown(own)}, not {_shown(wanted)}")
    by_axis = {axis % len(own): label for axis, label in labels.items() if -len(own) <= axis < len(own)}
    if len(by_axis) != len(labels):
        raise UsageError(f"the input {name!r} has no axis {', '.join(map(str, labels))}: its shape is {_shown(own)}")
    found: list[int | str | None] = []
    for axis, (size, requested) in enumerate(zip(own, wanted, strict=True)):
        label = "N" if axis == 0 else f"{name}_{axis}"
        chosen = requested if isinstance(requested, str) or is_spec and isinstance(requested, int) else None
        found.append(size if size is not None else by_axis.get(axis) or chosen or label)
    return tuple(found)


def _shown(sizes: Any) -> str:
    return f"[{', '.join('?' if s is None else str(s) for s in sizes)}]"
