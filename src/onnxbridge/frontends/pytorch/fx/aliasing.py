"""In-place operators: which of them are their functional twins under another name, and which need PyTorch's functionalisation."""

from __future__ import annotations

import functools
import operator
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torch_patches import batch_norm_mutation

# these may return their argument itself although their schemas do not say so
_QUIET_ALIASES = frozenset(
    {
        "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "type_as", "broadcast_tensors", "meshgrid",
        "atleast_1d", "atleast_2d", "atleast_3d", "pad", "constant_pad_nd",
    }
)  # fmt: skip


@functools.cache
def functional(target: Any) -> Any:
    """The operator that computes what an in-place one (`relu_`) writes into its first argument; None for every other."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.is_mutable or not schema.arguments:
        return None
    written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    namespace, _, name = schema.name.partition("::")
    if len(written) != 1 or written[0] is not schema.arguments[0] and written[0].name != schema.arguments[0].name:
        return None
    if not name.endswith("_") or name.endswith("__") or len(schema.returns) != 1:
        return None
    packet = getattr(getattr(frameworks.torch().ops, namespace), name[:-1], None)
    overload = schema.overload_name or "default"
    twin = getattr(packet, overload, None) if packet is not None else None
    return twin if twin is not None and not twin._schema.is_mutable else None


@functools.cache
def _writes(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return bool(schema is not None and schema.is_mutable and schema.name != "aten::detach_")


@functools.cache
def aliased(target: Any) -> tuple[int, ...] | None:
    """The positions of the arguments that the result may share memory with; None for all of them."""
    schema = getattr(target, "_schema", None)
    if schema is None or schema.name.partition("::")[2] in _QUIET_ALIASES:
        return None
    return tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None)


@functools.cache
def _makes_each(target: Any) -> bool:
    """Whether an operator returns several tensors, each in memory of its own; composite ones may say so and return views."""
    schema = getattr(target, "_schema", None)
    if schema is None or len(schema.returns) < 2 or any(str(r.type) != "Tensor" for r in schema.returns):
        return False
    implicit = frameworks.torch()._C.DispatchKey.CompositeImplicitAutograd
    return aliased(target) == () and not target.has_kernel_for_dispatch_key(implicit)


def sole(node: Any) -> bool:
    """Whether a node takes one result of an operator that returns several, and shares its memory with no other node."""
    if node.op != "call_function" or node.target is not operator.getitem or not _makes_each(node.args[0].target):
        return False
    source, index = node.args
    return not any(n is not node and n.target is operator.getitem and n.args[1] == index for n in source.users)


def needs_functionalisation(graph: Any) -> bool:
    """Whether an in-place write is seen through another tensor afterwards (a view, a buffer): renaming is not enough then."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    if batch_norm_mutation.trains(graph):
        return True
    if not any(_writes(n.target) for n in graph.nodes if n.op == "call_function"):
        return False
    group: dict[Any, Any] = {}
    members: dict[Any, list[Any]] = {}
    for node in graph.nodes:
        root = node
        if node.op == "call_function":
            sources = [a for a in node.all_input_nodes if a in group]
            places = aliased(node.target)
            if sole(node):
                sources = []
            elif places is not None:
                sources = [s for s in sources if any(_holds(node.args[i], s) for i in places if i < len(node.args))]
            if len({group[s] for s in sources}) > 1 and _writes(node.target):
                return True
            for other in sources[1:]:
                _join(group, members, group[sources[0]], group[other])
            root = group[sources[0]] if sources else node
            if _writes(node.target) and _seen_otherwise(node, members.get(root, []), order):
                return True
        group[node] = root
        members.setdefault(root, []).append(node)
    return False


def _seen_otherwise(node: Any, members: list[Any], order: dict[Any, int]) -> bool:
    """Whether anything that shares memory with what `node` writes is used after it, but for the written tensor itself."""
    if functional(node.target) is None:
        return True
    written = node.args[0]
    for other in members:
        if other.op in ("placeholder", "get_attr"):
            return True  # the caller's own tensor, or the module's state
        later = any(order[user] > order[node] for user in other.users)
        if later and other is not written and not _same_tensor(other, written):
            return True
    return False


def _same_tensor(a: Any, b: Any) -> bool:
    """Whether two nodes are one tensor, in-place operators' results and their arguments being the same."""

    def origin(node: Any) -> Any:
        while node.op == "call_function" and functional(node.target) is not None:
            node = node.args[0]
        return node

    return bool(origin(a) is origin(b))


def _holds(item: Any, node: Any) -> bool:
    return item is node or isinstance(item, (list, tuple)) and any(_holds(i, node) for i in item)


def _join(group: dict[Any, Any], members: dict[Any, list[Any]], into: Any, root: Any) -> None:
    if into is root:
        return
    for node in members.pop(root):
        group[node] = into
        members[into].append(node)
