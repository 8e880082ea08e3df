"""The functions that operators of a TensorFlow graph call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
LOOPS = frozenset({"While", "StatelessWhile"})


def called_function(op: Any) -> str:
    """The function that an operator calls, "" if it is no call. TensorFlow 1 names such an operator after its function."""
    if op.type in CALLS:
        return str(op.get_attr("f").name)
    return op.type if op.graph._get_function(op.type) is not None else ""


def function(op: Any, name: str, shapes: Iterable[Any] = ()) -> Any:
    """The graph of a function that an operator calls; shapes are inferred again if the call's are more specific."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    found = op.graph._get_function(name)
    graph = getattr(found, "graph", None)  # TensorFlow 1 graphs store only the definition
    shapes = list(shapes)
    known = graph is not None and not any(_is_more_specific(s, own.shape) for s, own in zip(shapes, graph.inputs, strict=False))
    if known:
        return graph
    with op.graph.as_default():
        definition = found.definition if graph is None else found.cached_definition
        return function_def_to_graph(definition, input_shapes=shapes or None, include_library_functions=True)


def all_operators(graph: Any, seen: set[str] | None = None) -> Iterator[Any]:
    """The operators of a graph and of all functions that it calls."""
    seen = set() if seen is None else seen
    for op in graph.get_operations():
        yield op
        names = [called_function(op)]
        for attr in op.op_def.attr if op.op_def is not None else ():
            if attr.type in ("func", "list(func)"):
                named = op.get_attr(attr.name)
                names += [f.name for f in (named if isinstance(named, (list, tuple)) else [named])]
        for name in names:
            if name and name not in seen and op.graph._get_function(name) is not None:
                seen.add(name)
                yield from all_operators(function(op, name), seen)


def _is_more_specific(inputs_: Any, own: Any) -> bool:
    if inputs_.rank is None or own.rank is None:
        return inputs_.rank is not None
    return any(o is None and g is not None for g, o in zip(inputs_.as_list(), own.as_list(), strict=True))
