"""Writes into views of a program's own tensors, as scatters, without the second trace of PyTorch's functionalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx.aliasing import aliased, functional, sole

Put = Callable[[Any, Any, Any], Any]


def _ops() -> Any:
    return frameworks.torch().ops.aten


def _scattered(name: str) -> Put:
    """The inverse of a view that takes a part: the whole with that part in it."""
    return lambda graph, view, pair: graph.call_function(getattr(_ops(), name).default, (*pair, *view.args[1:]))


def _moved_back(name: str, overload: str) -> Put:
    """The inverse of a view that only arranges: the same or the opposite arrangement of what was written."""
    return lambda graph, view, pair: graph.call_function(getattr(getattr(_ops(), name), overload), (pair[1], *view.args[1:]))


def _permuted_back(graph: Any, view: Any, pair: Any) -> Any:
    order = [d % len(view.args[1]) for d in view.args[1]]
    return graph.call_function(_ops().permute.default, (pair[1], [order.index(i) for i in range(len(order))]))


# views, and how what was written into one comes back into what it looks at
_INVERSE: dict[str, Put] = {
    "aten::slice.Tensor": _scattered("slice_scatter"), "aten::select.int": _scattered("select_scatter"),
    "aten::unsqueeze": _moved_back("squeeze", "dim"), "aten::transpose.int": _moved_back("transpose", "int"),
    "aten::permute": _permuted_back,
}  # fmt: skip


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return ""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


class _Group:
    """One tensor and the views of it: what each view looks at, and which node holds what each is now; None for not known."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.parent: dict[Any, Any] = {root: None}
        self.held: dict[Any, Any] = {root: root}
        self.written = False


def _is_node(item: Any) -> bool:
    return isinstance(item, frameworks.torch().fx.Node)


def _mutates(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return schema is not None and bool(schema.is_mutable)


def _groups(graph: Any) -> tuple[dict[Any, _Group], dict[Any, Any]] | None:
    """The group of each tensor and view, and what each in-place operator writes; None where one cannot be followed."""
    groups: dict[Any, _Group] = {}
    wrote: dict[Any, Any] = {}
    seen_otherwise: set[Any] = set()  # what shares memory with a result that no write is brought into

    def origin(node: Any) -> Any:
        return wrote.get(node, node)

    for node in graph.nodes:
        mutates = _mutates(node)
        if mutates and functional(node.target) is None or mutates and not _is_node(node.args[0]):
            return None
        if not mutates and (_name(node) not in _INVERSE or node.kwargs):
            if node.op == "call_function":
                seen_otherwise |= {origin(s) for s in _shared(node)}
            continue
        source = origin(node.args[0])
        if source not in groups:
            groups[source] = _Group(source)
        group = groups[source]
        if mutates:
            if seen_otherwise & group.parent.keys():
                return None
            wrote[node] = source
            group.written = True
        else:
            group.parent[node], group.held[node] = source, node
            groups[node] = group
    for group in groups.values():
        if group.written and (group.root.op != "call_function" or _shared(group.root)):
            return None
    return groups, wrote


def _shared(node: Any) -> list[Any]:
    """The inputs whose memory a node's result may share."""
    places = () if sole(node) else aliased(node.target)
    if places is None:
        return list(node.all_input_nodes)
    inside = (node.args[i] for i in places if i < len(node.args))
    return [n for item in inside for n in (item if isinstance(item, (list, tuple)) else [item]) if _is_node(n)]


def rewrite(graph: Any) -> bool:
    """Replace in-place writes by functional operators, in place; False, and nothing changed, where one cannot be followed."""
    found = _groups(graph)
    if found is None:
        return False
    groups, wrote = found
    map_arg = frameworks.torch().fx.node.map_arg

    def now(node: Any) -> Any:
        """The node that holds at this point what `node` looks at."""
        node = wrote.get(node, node)
        group = groups.get(node)
        if group is None or not group.written:
            return node
        if group.held[node] is None:  # written through another view since: looked at again
            again = graph.call_function(node.target, (now(group.parent[node]), *map_arg(node.args[1:], now)))
            again.meta = dict(node.meta)
            group.held[node] = again
        return group.held[node]

    for node in list(graph.nodes):
        if node.op == "placeholder":
            continue
        written = wrote.get(node)
        with graph.inserting_before(node):
            above = _above(groups[written], written) if written is not None else []
            before = {parent: now(parent) for _, parent in above}
            node.args, node.kwargs = map_arg(node.args, now), map_arg(node.kwargs, now)
        if written is None:
            continue
        node.target = functional(node.target)
        group = groups[written]
        group.held = dict.fromkeys(group.held)
        group.held[written] = last = node
        for view, parent in above:
            with graph.inserting_after(last):
                made = _INVERSE[_name(view)](graph, view, (before[parent], group.held[view]))
            made.meta = {**node.meta, "val": parent.meta["val"]}
            group.held[parent] = last = made
    graph.lint()
    return True


def _above(group: _Group, view: Any) -> list[tuple[Any, Any]]:
    """From a view up to the whole tensor: each view with what it looks at."""
    found = []
    while group.parent[view] is not None:
        found.append((view, group.parent[view]))
        view = group.parent[view]
    return found
