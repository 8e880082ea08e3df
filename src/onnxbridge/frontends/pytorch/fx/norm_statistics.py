"""Norms in training mode, which update their running statistics although their schemas do not declare it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks

_TRAINING = {
    "aten::batch_norm": "training", "aten::native_batch_norm": "training", "aten::cudnn_batch_norm": "training",
    "aten::instance_norm": "use_input_stats",
}  # fmt: skip
"""The training-mode parameter of each norm."""


def _trains(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.name not in _TRAINING:
        return False
    arguments = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    return bool(arguments.get(_TRAINING[schema.name])) and arguments.get("running_mean") is not None


def trains(graph: Any) -> bool:
    """Whether any norm of the graph updates its running statistics."""
    return any(map(_trains, graph.nodes))


def decompositions(graph: Any) -> dict[Any, Callable[..., Any]]:
    """Decompositions with which functionalization sees the graph's norm updates; PyTorch knows those of batch norms."""
    found = {n.target for n in graph.nodes if _trains(n) and n.target._schema.name == "aten::instance_norm"}
    return dict.fromkeys(found, _instance_norm)


def _instance_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, *rest: Any
) -> Any:
    """As PyTorch's kernel: a batch norm with the instances as channels; the statistics are averaged over the instances."""
    ops = frameworks.torch().ops.aten
    count = input.shape[0]
    arguments: tuple[Any, ...] = running_mean, running_var, weight, bias
    mean, var, scale, shift = (None if t is None else t.repeat(count) for t in arguments)
    flat = input.reshape(1, count * input.shape[1], *input.shape[2:])
    y = ops.batch_norm(flat, scale, shift, mean, var, use_input_stats, *rest)
    pairs: list[Any] = [(running_mean, mean), (running_var, var)]
    for old, new in pairs:
        if use_input_stats and old is not None:
            old.copy_(new.view(count, -1).mean(0))
    return y.view(input.shape)
