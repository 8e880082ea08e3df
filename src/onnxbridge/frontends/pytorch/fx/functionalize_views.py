"""Rewrites in-place writes into views as scatters, without the second trace of PyTorch's functionalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx.aliasing import aliased_arguments, is_distinct_result, out_of_place_variant

Inverse = Callable[[Any, Any, Any], Any]


def _ops() -> Any:
    return frameworks.torch().ops.aten


def _scatter(name: str) -> Inverse:
    """The inverse of a view that selects a part: the base with that part replaced."""
    return lambda graph, view, pair: graph.call_function(getattr(_ops(), name).default, (*pair, *view.args[1:]))


def _rearrange_back(name: str, overload: str) -> Inverse:
    """The inverse of a view that rearranges: the same or the opposite rearrangement of the new value."""
    return lambda graph, view, pair: graph.call_function(getattr(getattr(_ops(), name), overload), (pair[1], *view.args[1:]))


def _permute_back(graph: Any, view: Any, pair: Any) -> Any:
    order = [d % len(view.args[1]) for d in view.args[1]]
    return graph.call_function(_ops().permute.default, (pair[1], [order.index(i) for i in range(len(order))]))


# the inverse of each view: how a value written into the view gets into its base
_INVERSE: dict[str, Inverse] = {
    "aten::slice.Tensor": _scatter("slice_scatter"), "aten::select.int": _scatter("select_scatter"),
    "aten::unsqueeze": _rearrange_back("squeeze", "dim"), "aten::transpose.int": _rearrange_back("transpose", "int"),
    "aten::permute": _permute_back,
}  # fmt: skip


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return ""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


class _Group:
    """A tensor and its views.

    `parent` maps a view to its base, `current` a tensor to the node with its current value (None if stale).
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.parent: dict[Any, Any] = {root: None}
        self.current: dict[Any, Any] = {root: root}
        self.written = False


def _is_node(item: Any) -> bool:
    return isinstance(item, frameworks.torch().fx.Node)


def _mutates(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return schema is not None and bool(schema.is_mutable)


def _groups(graph: Any) -> tuple[dict[Any, _Group], dict[Any, Any]] | None:
    """The group of each tensor and view, and the tensor that each in-place operator mutates; None if not analyzable."""
    groups: dict[Any, _Group] = {}
    mutated: dict[Any, Any] = {}
    aliased_elsewhere: set[Any] = set()  # tensors aliased by a result that writes cannot be propagated to

    def origin(node: Any) -> Any:
        return mutated.get(node, node)

    for node in graph.nodes:
        mutates = _mutates(node)
        if mutates and out_of_place_variant(node.target) is None or mutates and not _is_node(node.args[0]):
            return None
        if not mutates and (_name(node) not in _INVERSE or node.kwargs):
            if node.op == "call_function":
                aliased_elsewhere |= {origin(s) for s in _aliased_inputs(node)}
            continue
        source = origin(node.args[0])
        if source not in groups:
            groups[source] = _Group(source)
        group = groups[source]
        if mutates:
            if aliased_elsewhere & group.parent.keys():
                return None
            mutated[node] = source
            group.written = True
        else:
            group.parent[node], group.current[node] = source, node
            groups[node] = group
    for group in groups.values():
        if group.written and (group.root.op != "call_function" or _aliased_inputs(group.root)):
            return None
    return groups, mutated


def _aliased_inputs(node: Any) -> list[Any]:
    """The inputs that a node's result may alias."""
    positions = () if is_distinct_result(node) else aliased_arguments(node.target)
    if positions is None:
        return list(node.all_input_nodes)
    inside = (node.args[i] for i in positions if i < len(node.args))
    return [n for item in inside for n in (item if isinstance(item, (list, tuple)) else [item]) if _is_node(n)]


def rewrite(graph: Any) -> bool:
    """Replace in-place writes by functional operators, in place. If one cannot be analyzed, change nothing and return False."""
    found = _groups(graph)
    if found is None:
        return False
    groups, mutated = found
    map_arg = frameworks.torch().fx.node.map_arg

    def current_value(node: Any) -> Any:
        """The node with the current value of `node`."""
        node = mutated.get(node, node)
        group = groups.get(node)
        if group is None or not group.written:
            return node
        if group.current[node] is None:  # stale after a write through another view: recompute the view
            view = graph.call_function(node.target, (current_value(group.parent[node]), *map_arg(node.args[1:], current_value)))
            view.meta = dict(node.meta)
            group.current[node] = view
        return group.current[node]

    for node in list(graph.nodes):
        if node.op == "placeholder":
            continue
        written = mutated.get(node)
        with graph.inserting_before(node):
            ancestors = _ancestors(groups[written], written) if written is not None else []
            before = {parent: current_value(parent) for _, parent in ancestors}
            node.args, node.kwargs = map_arg(node.args, current_value), map_arg(node.kwargs, current_value)
        if written is None:
            continue
        node.target = out_of_place_variant(node.target)
        group = groups[written]
        group.current = dict.fromkeys(group.current)
        group.current[written] = last = node
        for view, parent in ancestors:
            with graph.inserting_after(last):
                updated = _INVERSE[_name(view)](graph, view, (before[parent], group.current[view]))
            updated.meta = {**node.meta, "val": parent.meta["val"]}
            group.current[parent] = last = updated
    graph.lint()
    return True


def _ancestors(group: _Group, view: Any) -> list[tuple[Any, Any]]:
    """The chain from a view up to its base tensor, as pairs of view and parent."""
    found = []
    while group.parent[view] is not None:
        found.append((view, group.parent[view]))
        view = group.parent[view]
    return found
