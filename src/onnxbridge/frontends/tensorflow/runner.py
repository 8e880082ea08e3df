"""Runs a source in TensorFlow, as the reference for verification."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.tensorflow import sources
from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.graph import op_schemas
from onnxbridge.frontends.tensorflow.graph.variables import State, recorded_names
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from onnxbridge.frontends.tensorflow.selection import selection_of
from onnxbridge.hub.ir.states import next_name
from onnxbridge.plugin_protocols import Arrays, Run

Result = TypeVar("Result")


def runner(source: Any) -> Run:
    """Computes outputs with TensorFlow. A SavedModel's operators are checked before it runs.

    A source with declared inputs is traced once. Others (subclassed Keras models, functions without a signature) are traced at
    the sizes of the inputs, as for users: code that reads a static size may depend on it.
    """
    tracer = Tracer(source)

    def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        given = tracer.selection.boundary.feeds(feeds)
        return tracer.with_traced(given, lambda found: tracer.selection.on(found).results(_computed(found, given)))

    return run


class Tracer:
    """A loaded source, traced for inputs where that is needed; each trace is kept."""

    def __init__(self, source: Any) -> None:
        chosen = selection_of(source)
        self._path = os.fspath(chosen.source) if isinstance(chosen.source, (str, os.PathLike)) else None
        self.selection = sources.opened(chosen) if self._path is not None else chosen
        self._loaded = self.selection.source
        self._traced: dict[Any, Traced] = {}

    def with_traced(self, feeds: Arrays, use: Callable[[Traced], Result]) -> Result:
        """What `use` makes of the function that takes these inputs."""
        states = recorded_names(self._loaded)
        feeds = {name: array for name, array in feeds.items() if name not in states}
        own = tuple((name, np.shape(array)) for name, array in feeds.items())
        if sources.declares_inputs(self._loaded) and own not in self._traced:
            try:
                return use(self._trace(None, None))
            except UsageError:  # its input shapes are unknown
                pass
            except Exception:
                if not sources.is_keras(self._loaded):
                    raise  # a Keras layer may read a static size: trace it at the sizes of the inputs
        return use(self._trace(_as_inputs(self._loaded, feeds), own))

    def _trace(self, inputs: Any, key: Any) -> Traced:
        if key not in self._traced:
            with frameworks.quiet() if self._path is not None else nullcontext():
                found = sources.trace(self.selection, inputs, None)
            if self._path is not None:
                operator_checks.check_graph(found.graph, self._path)
            self._traced[key] = found
        return self._traced[key]


def _computed(found: Traced, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    names = [*(name for name, _ in found.inputs), *(s.name for s in found.states)]
    missing = [name for name in names if name not in feeds]
    if missing:
        raise UsageError(f"the inputs are {', '.join(names)}; {', '.join(missing)} is missing")
    try:
        return _called(found, feeds)
    except (tf.errors.UnimplementedError, tf.errors.AbortedError) as error:
        if not any(words in str(error) for words in ("Fusion is not implemented", "could not create a primitive descriptor")):
            raise
    # TensorFlow's optimizer fuses operators that its CPU kernels then fail on: convolution, normalization and Mish, or a
    # separable convolution of one channel and its bias
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"remapping": False})
    try:
        return _called(found, feeds)
    finally:
        tf.config.optimizer.set_experimental_options({"remapping": before.get("remapping", True)})


def _called(found: Traced, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    with _variables_at(found.states, feeds):
        results = found.call([_tensor(feeds[name], t.dtype) for name, t in found.inputs])
        last = {next_name(s.name): _array(_read(s)) for s in found.states}
    return {name: _array(r) for (name, _), r in zip(found.outputs, results, strict=True)} | last


@contextmanager
def _variables_at(states: Sequence[State], feeds: Arrays) -> Iterator[None]:
    """Give variables the values of the feeds, and their own again afterwards."""
    before = [tf.identity(_read(s)) for s in states]
    try:
        for s in states:
            tf.raw_ops.AssignVariableOp(resource=s.handle, value=_tensor(feeds[s.name], s.declared[0]))
        yield
    finally:
        for s, value in zip(states, before, strict=True):
            tf.raw_ops.AssignVariableOp(resource=s.handle, value=value)


def _read(state: State) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=state.handle, dtype=state.declared[0])


def _tensor(array: Any, dtype: Any) -> Any:
    """A feed as a tensor; a complex one is fed as real and imaginary parts along the last axis, as in the hub."""
    if dtype.is_complex and not np.iscomplexobj(array):
        return tf.complex(*(tf.constant(np.asarray(array)[..., i], dtype.real_dtype) for i in (0, 1)))
    return tf.constant(array, dtype)


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    found = op_schemas.eager_array(tensor)
    return np.stack([found.real, found.imag], axis=-1) if tensor.dtype.is_complex else found


def _as_inputs(source: Any, feeds: Arrays) -> Any:
    """The feeds as a user passes inputs: by name, or in order if they have default names."""
    by_position = list(feeds) == sources.default_names(len(feeds)) or not _accepts_names(source, feeds)
    return list(feeds.values()) if by_position else dict(feeds)


def _accepts_names(source: Any, feeds: Mapping[str, Any]) -> bool:
    known = sources.parameters(getattr(source, "python_function", None))
    return known is None or set(feeds) <= set(known)
