"""Norms that write their running statistics while they train, of which their schemas say nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks

_TRAINING = {
    "aten::batch_norm": "training", "aten::native_batch_norm": "training", "aten::cudnn_batch_norm": "training",
    "aten::instance_norm": "use_input_stats",
}  # fmt: skip
"""The parameter that makes each of them train."""


def _trains(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name not in _TRAINING:
        return False
    given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    return bool(given.get(_TRAINING[schema.name])) and given.get("running_mean") is not None


def trains(graph: Any) -> bool:
    """Whether any norm of the graph writes its running statistics."""
    return any(map(_trains, graph.nodes))


def decompositions(graph: Any) -> dict[Any, Callable[..., Any]]:
    """What PyTorch's functionalisation has to be told to see the writes of the graph's norms: those of batches it knows."""
    found = {n.target for n in graph.nodes if _trains(n) and n.target._schema.name == "aten::instance_norm"}
    return dict.fromkeys(found, _instance_norm)


def _instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, *rest: Any
) -> Any:
    """As PyTorch's kernel: a norm of one batch with a channel for each instance's, and the mean of what these come to."""
    ops = frameworks.torch().ops.aten
    count = input.shape[0]
    given: tuple[Any, ...] = running_mean, running_var, weight, bias
    mean, var, scale, shift = (None if t is None else t.repeat(count) for t in given)
    flat = input.reshape(1, count * input.shape[1], *input.shape[2:])
    y = ops.batch_norm(flat, scale, shift, mean, var, use_input_stats, *rest)
    pairs: list[Any] = [(running_mean, mean), (running_var, var)]
    for old, new in pairs:
        if use_input_stats and old is not None:
            old.copy_(new.view(count, -1).mean(0))
    return y.view(input.shape)
