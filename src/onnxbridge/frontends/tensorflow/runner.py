"""Runs a source as its user would: what a conversion is judged by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.tensorflow import sources
from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.graph import op_schemas
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from onnxbridge.plugins import Arrays, Run


def runner(source: Any, signature: str | None) -> Run:
    """What TensorFlow itself computes. A SavedModel's operators are checked before it runs.

    A source that declares its inputs is traced once. Others (subclassed Keras models, functions without a signature) see the
    sizes of what they are called with, as in their user's hands: code that reads a static size computes something else, or
    fails, where it is traced with another one.
    """
    is_file = isinstance(source, (str, os.PathLike))
    loaded = sources.load(source) if is_file else source
    traced: dict[Any, Traced] = {}

    def trace(inputs: Any, key: Any) -> Traced:
        if key not in traced:
            with frameworks.quiet() if is_file else nullcontext():
                found = sources.trace(loaded, inputs, None, signature)
            if is_file:
                operator_checks.check_graph(found.graph, os.fspath(source))
            traced[key] = found
        return traced[key]

    def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        own = tuple((name, np.shape(array)) for name, array in feeds.items())
        if sources.declares_inputs(loaded) and own not in traced:
            try:
                return _computed(trace(None, None), feeds)
            except UsageError:  # it does not say the shapes of its inputs
                pass
            except Exception:
                if not sources.is_keras(loaded):
                    raise  # a layer may read a static size: Keras calls it with the sizes that the model is called with
        return _computed(trace(_given(loaded, feeds), own), feeds)

    return run


def _computed(found: Traced, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    missing = [name for name, _ in found.inputs if name not in feeds]
    if missing:
        raise UsageError(f"the inputs are {', '.join(n for n, _ in found.inputs)}; {', '.join(missing)} is missing")
    results = found.call([tf.constant(feeds[name], t.dtype) for name, t in found.inputs])
    return {name: op_schemas.eager_array(r) for (name, _), r in zip(found.outputs, results, strict=True)}


def _given(source: Any, feeds: Arrays) -> Any:
    """The feeds as the user gives inputs: by name, or in order where their names are those of unnamed inputs."""
    by_position = list(feeds) == sources.unnamed(len(feeds)) or not _takes_names(source, feeds)
    return list(feeds.values()) if by_position else dict(feeds)


def _takes_names(source: Any, feeds: Mapping[str, Any]) -> bool:
    known = sources.parameters(getattr(source, "python_function", None))
    return known is None or set(feeds) <= set(known)
