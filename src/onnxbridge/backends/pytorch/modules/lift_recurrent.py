"""Recurrent layers: the calls of a stack become one torch.nn.LSTM, GRU or RNN with weights in PyTorch's order."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.lift_modules import LayerLifter
from onnxbridge.backends.pytorch.modules.module_paths import module_path
from onnxbridge.backends.pytorch.ops.shape import broadcast_to, filled, squeezed, unsqueezed

_KINDS: dict[Any, tuple[type[nn.Module], dict[str, Any]]] = {
    torch.lstm: (nn.LSTM, {}), torch.gru: (nn.GRU, {}), torch.rnn_tanh: (nn.RNN, {}),
    torch.rnn_relu: (nn.RNN, {"nonlinearity": "relu"}),
}  # fmt: skip
_SHAPE_CALLS = (
    broadcast_to,
    squeezed,
    unsqueezed,
    torch.flatten,
    "permute",
    "reshape",
    "unsqueeze",
    "squeeze",
    "transpose",
    "expand",
)


@dataclass
class _Call:
    """One traced call: one layer, in one or both directions."""

    node: fx.Node

    def __post_init__(self) -> None:
        _, _, self.weights, self.biased, *_, self.bidirectional, self.batch_first = self.node.args

    @property
    def input(self) -> Any:
        return self.node.args[0]

    @property
    def states(self) -> tuple[Any, ...]:
        """The initial states before expansion; modules check their sizes themselves."""
        states = self.node.args[1]
        states = tuple(states) if isinstance(states, (tuple, list)) else (states,)
        return tuple(s.args[0] if isinstance(s, fx.Node) and s.target == "expand" else s for s in states)

    def result(self, index: int) -> list[fx.Node]:
        """The nodes that select one of the results."""
        return [n for n in self.node.users if n.target is operator.getitem and n.args[1] == index]


def chains(graph: fx.Graph) -> list[list[_Call]]:
    """The traced recurrent calls, grouped into stacks of one source module."""
    found: list[list[_Call]] = []
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _KINDS:
            continue
        step = _Call(node)
        last = found[-1][-1] if found else None
        if last is not None and _follows(last, step):
            found[-1].append(step)
        else:
            found.append([step])
    return found


def _follows(last: _Call, step: _Call) -> bool:
    outputs = last.result(0)
    return (
        outputs == [step.input] and all(u is step.node or _sizes_states(u) for u in outputs[0].users)
        and last.node.target is step.node.target
        and bool(module_path(step.node)) and module_path(last.node) == module_path(step.node)
        and (last.biased, last.bidirectional, last.batch_first) == (step.biased, step.bidirectional, step.batch_first)
        and _hidden(last) == _hidden(step)
    )  # fmt: skip


def _sizes_states(node: fx.Node) -> bool:
    """Whether a node is a size that is only used to expand initial states."""
    states = [user for user in node.users if user.target == "expand" and all(u.target in _KINDS for u in user.users)]
    return node.target == "size" and len(states) == len(node.users)


def _hidden(step: _Call) -> int:
    return int(step.weights[1].meta["val"].shape[1])


def lift_recurrent(layers: LayerLifter) -> None:
    """Replace every stack of recurrent calls by one layer."""
    for chain in chains(layers.graph):
        _replace(layers, chain)


def _replace(layers: LayerLifter, chain: list[_Call]) -> None:
    """Replace a stack by one module, if its weights are constants."""
    first = chain[0]
    if not all(layers.is_weight(w) for step in chain for w in step.weights):
        return
    kind, extra = _KINDS[first.node.target]
    batch_first, input = _input_order(chain)
    arguments = {
        "input_size": int(first.weights[0].meta["val"].shape[1]), "hidden_size": _hidden(first), "num_layers": len(chain),
        "bias": first.biased, "batch_first": batch_first, "bidirectional": first.bidirectional, **extra,
    }  # fmt: skip
    tensors = {
        name + f"_l{k}" + suffix: layers.value(w)
        for k, step in enumerate(chain)
        for (name, suffix), w in zip(_names(first.biased, first.bidirectional), step.weights, strict=True)
    }
    sources = {str(n.target) for step in chain for w in step.weights for n in layers.source_weights(w)}
    path = layers.unused_path([module_path(first.node), kind.__name__.lower()], sorted(sources))
    layers.weights.place_layer(path, layers.module(kind, arguments, tensors), arguments)
    graph = first.node.graph
    with graph.inserting_before(chain[-1].node):
        rows = [[step.states[i] for step in chain] for i in range(len(first.states))]
        initial: tuple[Any, ...] = ()  # a module defaults to zeros, but only for all states at once
        if not all(_is_zero(layers, s) for row in rows for s in row):
            states = [_stacked(layers, row) for row in rows]
            initial = (tuple(states) if len(states) > 1 else states[0],)
        made = graph.call_module(path, (input, *initial))
        y = graph.call_function(operator.getitem, (made, 0))
        last = graph.call_function(operator.getitem, (made, 1))
        ends = [graph.call_function(operator.getitem, (last, i)) for i in range(len(rows))] if len(rows) > 1 else [last]
    for node in chain[-1].result(0):
        y.meta.update(node.meta)
        if batch_first != first.batch_first:
            _use_batch_first(graph, node, y)
        node.replace_all_uses_with(y)
    for i, end in enumerate(ends):
        _connect_final_states(graph, end, [step.result(1 + i) for step in chain], 1 + first.bidirectional)


def _names(biased: bool, bidirectional: bool) -> Iterator[tuple[str, str]]:
    for suffix in ("", "_reverse") if bidirectional else ("",):
        yield from ((n, suffix) for n in ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if biased else ())))


def _input_order(chain: list[_Call]) -> tuple[bool, Any]:
    """Whether the batch comes first, and the input in that order: transposes around a layer become its `batch_first`."""
    input = chain[0].input
    transposed = any(_swaps_batch_and_time(user) for y in chain[-1].result(0) for user in y.users)
    if not chain[0].batch_first and transposed and _swaps_batch_and_time(input):
        return True, input.args[0]
    return bool(chain[0].batch_first), input


def _use_batch_first(graph: fx.Graph, node: fx.Node, y: fx.Node) -> None:
    """Replace `node`, which has time first, by `y`, which has the batch first, in its users."""
    (old,) = [n for n in node.users if _swaps_batch_and_time(n)][:1]
    y.meta.update(old.meta)
    for user in list(node.users):
        if _swaps_batch_and_time(user):
            user.replace_all_uses_with(y)
    if any(n.users for n in node.users):
        with graph.inserting_after(y):
            restored = graph.call_method("permute", (y, (1, 0, 2)))
        restored.meta.update(node.meta)
        node.replace_all_uses_with(restored)


def _swaps_batch_and_time(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target == "permute" and tuple(node.args[1]) == (1, 0, 2)


def _stacked(layers: LayerLifter, states: list[Any]) -> Any:
    """The initial states of the layers, concatenated."""
    if len(states) == 1:
        return states[0]
    sources = {s.args[0] for s in states if s.target is operator.getitem and isinstance(s.args[1], slice)}
    if len(sources) == 1:
        (source,) = sources
        shape = getattr(source.meta["val"], "shape", (None,))
        bounds = [s.args[1] for s in states if s.target is operator.getitem]
        edges = [(b.start or 0, shape[0] if b.stop is None or b.stop > shape[0] else b.stop, b.step in (None, 1)) for b in bounds]
        contiguous = len(edges) == len(states) and all(e[2] for e in edges) and all(
            a[1] == b[0] for a, b in zip(edges, edges[1:], strict=False)
        )  # fmt: skip
        if contiguous and edges[0][0] == 0 and edges[-1][1] == shape[0]:
            return source
    return layers.graph.call_function(torch.cat, (list(states), 0))


def _is_zero(layers: LayerLifter, node: Any) -> bool:
    """Whether a node is zeros, created at run time or constant."""
    if not isinstance(node, fx.Node):
        return False
    if node.op == "get_attr":
        stored = layers.weights.get(str(node.target))
        return isinstance(stored, torch.Tensor) and not isinstance(stored, nn.Parameter) and not stored.any()
    if node.target is filled:
        return bool(node.args[1] == 0)
    return node.target == "new_zeros" or (node.target in (operator.getitem, *_SHAPE_CALLS) and _is_zero(layers, node.args[0]))


def _connect_final_states(graph: fx.Graph, end: fx.Node, selected: list[list[fx.Node]], directions: int) -> None:
    """Pass the final states of each layer to their users; a concatenation of all layers' states is replaced as a whole."""
    if len(selected) == 1:
        for node in selected[0]:
            node.replace_all_uses_with(end)
        return
    heads = [nodes[0] if nodes else None for nodes in selected]
    for user in list(heads[0].users) if heads[0] is not None else []:
        if user.target is torch.cat and list(user.args[0]) == heads and (*user.args[1:], 0)[0] == 0:
            user.replace_all_uses_with(end)
    for k, nodes in enumerate(selected):
        for node in nodes:
            if node.users:
                with graph.inserting_before(next(iter(node.users))):
                    part = graph.call_function(operator.getitem, (end, slice(k * directions, (k + 1) * directions)))
                node.replace_all_uses_with(part)
