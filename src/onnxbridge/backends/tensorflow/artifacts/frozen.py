"""Frozen graphs: a GraphDef with constants in place of variables, whose nodes have the names of inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.artifacts.saved_model import serving
from onnxbridge.backends.tensorflow.hub_module import keywords


def save(artifact: Any, path: Path) -> None:
    """Write the frozen graph."""
    with frameworks.quiet():
        frozen = convert_variables_to_constants_v2(serving(artifact).get_concrete_function())
    order = sorted(keywords(artifact.hub_outputs))  # TensorFlow sorts what a function returns by name
    graph = tf.Graph()
    with graph.as_default():
        given = frozen.graph.as_graph_def()
        results = [t.name for t in frozen.outputs]
        taken = {n.name for n in given.node}
        inner = {name: f"{name}.value" for name in order if name in taken}
        for node in given.node:
            node.name = inner.get(node.name, node.name)
            for i, read in enumerate(node.input):
                name, colon, port = read.partition(":")
                node.input[i] = inner.get(name, name) + colon + port
        found = tf.import_graph_def(given, return_elements=[_renamed(r, inner) for r in results], name="")
        for name, result in zip(order, found, strict=True):
            tf.identity(result, name=name)
    path.write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))


def _renamed(tensor: str, inner: dict[str, str]) -> str:
    name, _, port = tensor.partition(":")
    return f"{inner.get(name, name)}:{port}"


def opened(artifact: Any, path: Path) -> Any:
    """The graph as a function of the inputs in order."""
    definition = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), [])
    tensor = wrapped.graph.get_tensor_by_name
    names = {n.name for n in definition.node}
    used = [i for i, name in enumerate(artifact.keywords) if name in names]
    function = wrapped.prune(
        [tensor(f"{artifact.keywords[i]}:0") for i in used], [tensor(f"{n}:0") for n in keywords(artifact.hub_outputs)]
    )
    function.definition_of = wrapped

    def call(inputs: Sequence[Any]) -> Any:
        return function(*(inputs[i] for i in used))

    return call
