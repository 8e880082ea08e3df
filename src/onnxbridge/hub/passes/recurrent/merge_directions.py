"""Merges a recurrent operator and one that reads the same sequence backwards into one operator of both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import transfer
from onnxbridge.hub.ir.fold import constant_array, known_sizes
from onnxbridge.hub.ir.graphs import constants_in, names_in
from onnxbridge.hub.ir.provenance import inherit_state
from onnxbridge.hub.passes.value_queries import is_used, skip_nodes

_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_LISTS = ("activations", "activation_alpha", "activation_beta")
_WHOLE = "whole"
"""The reversal of all steps, where there are no lengths of sequences."""


@dataclass(frozen=True)
class _Sequence:
    """What an operator reads: `source`, with its axes of time, batch and features.

    `reversal` is None, `_WHOLE`, or the lengths of the sequences whose steps are reversed.
    """

    source: ir.Value
    axes: tuple[int, ...]
    reversal: Any


def merge_directions(model: ir.Model) -> None:
    """Merge every two LSTMs, GRUs or RNNs of equal attributes that read a sequence in both directions, in place.

    The rows of the backward one must be put in the order of the sequence again, as users of both directions do.
    """
    op: Builder | None = None
    for graph in (model.graph, *model.graph.subgraphs()):
        nodes = [n for n in graph if n.op_type in _RECURRENT and not n.domain and _is_forward(n)]
        backward = [(n, s) for n in nodes if (s := _sequence(n)).reversal is not None]
        for node, reversed_ in backward:
            other = next((n for n in nodes if n is not node and n.graph is graph and _belong_together(n, node, reversed_)), None)
            restored = list(_restored(node.outputs[0], (0, 2), reversed_)) if other is not None else [None]
            if other is not None and None not in restored:
                op = op or Builder(names=names_in(model))
                _merge(op, model.graph, other, node)
                for reversal in restored:
                    _drop(reversal)  # type: ignore[arg-type]  # there is no None
                nodes.remove(other)


def _is_forward(node: ir.Node) -> bool:
    attributes = node.attributes
    direction, layout = attributes.get("direction"), attributes.get("layout")
    return (direction is None or direction.as_string() == "forward") and (layout is None or not layout.as_int())


def _sequence(node: ir.Node) -> _Sequence:
    value: Any = skip_nodes(node.inputs[0])
    axes, reversal = (0, 1, 2), None
    while (producer := value.producer()) is not None and not producer.domain:
        if producer.op_type == "Transpose" and "perm" in producer.attributes:
            perm = producer.attributes["perm"].as_ints()
            axes = tuple(perm[a] for a in axes)
        elif reversal is None and (found := _reversal(producer, axes[0], axes[1])) is not None:
            reversal = found
        else:
            break
        value = skip_nodes(producer.inputs[0])
    return _Sequence(value, axes, reversal)


def _reversal(node: ir.Node, time: int, batch: int) -> Any:
    """What a node reverses along the axis of time: `_WHOLE`, the lengths of sequences, or None."""
    if node.op_type == "Slice" and not node.domain and len(node.inputs) == 5:
        bounds = [known_sizes(v) for v in node.inputs[1:]]
        if any(g is None or len(g) != 1 or g[0] is None for g in bounds):
            return None
        start, end, axis, step = (g[0] for g in bounds if g is not None)
        rank = len(node.outputs[0].shape or ())
        whole = start is not None and (start == -1 or start > 1 << 30) and step == -1 and end is not None and end < -(1 << 30)
        return _WHOLE if whole and axis is not None and axis % max(rank, 1) == time else None
    if node.op_type == "ReverseSequence" and not node.domain:
        attributes = {name: node.attributes[name].as_int() for name in ("time_axis", "batch_axis") if name in node.attributes}
        if (attributes.get("time_axis", 0), attributes.get("batch_axis", 1)) == (time, batch):
            return _lengths(node.inputs[1])
    return None


def _lengths(value: Any) -> Any:
    """The value that lengths are computed from by casts and the limit of the number of steps."""
    value = skip_nodes(value, frozenset({"Identity", "Cast"}))
    while value is not None and (node := value.producer()) is not None and node.op_type == "Min" and not node.domain:
        value = skip_nodes(node.inputs[0], frozenset({"Identity", "Cast"}))
    return value


def _belong_together(forward: ir.Node, backward: ir.Node, reversed_: _Sequence) -> bool:
    own = _sequence(forward)
    if own.reversal is not None or (own.source, own.axes) != (reversed_.source, reversed_.axes):
        return False
    kinds = [(n.op_type, len(n.outputs), _attributes(n)) for n in (forward, backward)]
    if kinds[0] != kinds[1]:
        return False
    lengths = [_lengths(_input(n, 4)) for n in (forward, backward)]
    expected = None if reversed_.reversal is _WHOLE else reversed_.reversal
    if any(v is not expected for v in lengths):
        return False
    optional = [i for i in range(1, 8) if i != 4]
    same = all((_input(forward, i) is None) == (_input(backward, i) is None) for i in optional)
    weights = all(_input(n, i) is None or _input(n, i).const_value is not None for n in (forward, backward) for i in (1, 2, 3))
    return same and weights and _input(forward, 7) is None and _is_available(forward, backward)


def _is_available(a: ir.Node, b: ir.Node) -> bool:
    """Whether the initial states of the later node do not depend on the earlier one: all come before it."""
    position = {node: i for i, node in enumerate(a.graph or ())}
    first, later = sorted((a, b), key=position.__getitem__)
    states = [v for v in (_input(later, 5), _input(later, 6)) if v is not None]
    return all(position.get(v.producer(), -1) < position[first] for v in states)


def _attributes(node: ir.Node) -> dict[str, Any]:
    found = {a.name: a.value for a in node.attributes.values() if a.name != "direction"}
    return {name: tuple(v) if isinstance(v, (list, tuple)) else v for name, v in found.items()}


def _input(node: ir.Node, index: int) -> Any:
    return node.inputs[index] if index < len(node.inputs) else None


def _restored(value: ir.Value, axes: tuple[int, int], reversed_: _Sequence) -> Iterator[ir.Node | None]:
    """The nodes that bring rows of a backward operator, with these axes of time and batch, to the order of the sequence.

    None is among them if a row is used otherwise.
    """
    if value.is_graph_output():
        yield None
    for user, _ in value.uses():
        if user.op_type == "Squeeze" and not user.domain and known_sizes(_input(user, 1)) == [1] and axes == (0, 2):
            yield from _restored(user.outputs[0], (0, 1), reversed_)
        elif user.op_type == "Transpose" and not user.domain and "perm" in user.attributes:
            perm = list(user.attributes["perm"].as_ints())
            yield from _restored(user.outputs[0], (perm.index(axes[0]), perm.index(axes[1])), reversed_)
        else:
            found = _reversal(user, *axes)
            yield user if found is not None and found is reversed_.reversal and user.inputs[0] is value else None


def _merge(op: Builder, root: ir.Graph, forward: ir.Node, backward: ir.Node) -> None:
    graph = forward.graph
    assert graph is not None
    position = {node: i for i, node in enumerate(graph)}
    first = min((forward, backward), key=position.__getitem__)

    def both(index: int) -> Any:
        one, other = _input(forward, index), _input(backward, index)
        if one is None:
            return None
        if one.const_value is None or other.const_value is None:
            return op.Concat(one, other, axis=0)
        joined = op.constant(np.concatenate([constant_array(one), constant_array(other)]), f"{one.name}.bidirectional")
        inherit_state(joined.const_value, [one.const_value, other.const_value])
        return joined

    attributes: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in _attributes(forward).items()}
    attributes |= {name: attributes[name] * 2 for name in _LISTS if name in attributes}
    inputs = [_time_first(op, forward), *(both(i) for i in (1, 2, 3)), _input(first, 4), *(both(i) for i in (5, 6))]
    while inputs[-1] is None:
        inputs.pop()
    count = len(forward.outputs)
    results = getattr(op, forward.op_type)(*inputs, **attributes, direction="bidirectional", outputs=max(count, 2))
    pairs = []
    for i, (own, other) in enumerate(zip(forward.outputs, backward.outputs, strict=True)):
        if is_used(own) or is_used(other):
            parts = op.Split(results[i], axis=0 if i else 1, num_outputs=2, outputs=2)
            pairs += [(own, parts[0]), (other, parts[1])]
    op.name_rest(forward.name or forward.op_type)
    written = op.take()
    for output, result in pairs:
        transfer(output, result)
    graph.insert_before(first, written)
    for value in constants_in(written):
        root.register_initializer(value)
    graph.remove([forward, backward], safe=True)


def _time_first(op: Builder, forward: ir.Node) -> Any:
    """The sequence as the forward operator reads it, computed again where its place in the graph may be later."""
    sequence = _sequence(forward)
    return sequence.source if sequence.axes == (0, 1, 2) else op.Transpose(sequence.source, perm=list(sequence.axes))


def _drop(reversal: ir.Node) -> None:
    """Replace a reversal by an identity, which is removed with others."""
    graph, (output,) = reversal.graph, reversal.outputs
    assert graph is not None
    node = ir.Node("", "Identity", [reversal.inputs[0]], name=reversal.name)
    transfer(output, node.outputs[0])
    graph.insert_before(reversal, [node])
    graph.remove(reversal, safe=True)
