"""Aliasing of in-place operators: which can become their functional variants, and which need functionalization."""

from __future__ import annotations

import functools
import operator
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx import norm_statistics

# operators that may return their argument itself, although their schemas do not declare it
_UNDECLARED_ALIASES = frozenset(
    {
        "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "type_as", "broadcast_tensors", "meshgrid",
        "atleast_1d", "atleast_2d", "atleast_3d", "pad", "constant_pad_nd",
    }
)  # fmt: skip


@functools.cache
def out_of_place_variant(target: Any) -> Any:
    """The out-of-place variant of an operator that mutates only its first argument (`relu` for `relu_`), else None."""
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
    variant = getattr(packet, overload, None) if packet is not None else None
    return variant if variant is not None and not variant._schema.is_mutable else None


@functools.cache
def _mutates(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return bool(schema is not None and schema.is_mutable and schema.name != "aten::detach_")


@functools.cache
def aliased_arguments(target: Any) -> tuple[int, ...] | None:
    """Indices of the arguments that the result may alias; None if it may alias any of them."""
    schema = getattr(target, "_schema", None)
    if schema is None or schema.name.partition("::")[2] in _UNDECLARED_ALIASES:
        return None
    return tuple(i for i, a in enumerate(schema.arguments) if a.alias_info is not None)


@functools.cache
def _returns_distinct_tensors(target: Any) -> bool:
    """Whether an operator returns several tensors that share no memory. Composite ones may declare so and return views."""
    schema = getattr(target, "_schema", None)
    if schema is None or len(schema.returns) < 2 or any(str(r.type) != "Tensor" for r in schema.returns):
        return False
    implicit = frameworks.torch()._C.DispatchKey.CompositeImplicitAutograd
    return aliased_arguments(target) == () and not target.has_kernel_for_dispatch_key(implicit)


def is_distinct_result(node: Any) -> bool:
    """Whether a node is one of several results of an operator, and no other node aliases it."""
    if node.op != "call_function" or node.target is not operator.getitem or not _returns_distinct_tensors(node.args[0].target):
        return False
    source, index = node.args
    return not any(n is not node and n.target is operator.getitem and n.args[1] == index for n in source.users)


def needs_functionalization(graph: Any) -> bool:
    """Whether an in-place write is visible through another tensor (a view, a buffer): renaming operators is not enough."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    if norm_statistics.trains(graph):
        return True
    if not any(_mutates(n.target) for n in graph.nodes if n.op == "call_function"):
        return False
    group: dict[Any, Any] = {}
    members: dict[Any, list[Any]] = {}
    for node in graph.nodes:
        root = node
        if node.op == "call_function":
            sources = [a for a in node.all_input_nodes if a in group]
            positions = aliased_arguments(node.target)
            if is_distinct_result(node):
                sources = []
            elif positions is not None:
                sources = [s for s in sources if any(_contains(node.args[i], s) for i in positions if i < len(node.args))]
            if len({group[s] for s in sources}) > 1 and _mutates(node.target):
                return True
            for other in sources[1:]:
                _merge_groups(group, members, group[sources[0]], group[other])
            root = group[sources[0]] if sources else node
            if _mutates(node.target) and _is_read_through_alias(node, members.get(root, []), order):
                return True
        group[node] = root
        members.setdefault(root, []).append(node)
    return False


def _is_read_through_alias(node: Any, members: list[Any], order: dict[Any, int]) -> bool:
    """Whether any alias of the tensor that `node` mutates, other than that tensor itself, is used after it."""
    if out_of_place_variant(node.target) is None:
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
    """Whether two nodes are the same tensor, up to in-place operators, which return their first argument."""

    def origin(node: Any) -> Any:
        while node.op == "call_function" and out_of_place_variant(node.target) is not None:
            node = node.args[0]
        return node

    return bool(origin(a) is origin(b))


def _contains(item: Any, node: Any) -> bool:
    return item is node or isinstance(item, (list, tuple)) and any(_contains(i, node) for i in item)


def _merge_groups(group: dict[Any, Any], members: dict[Any, list[Any]], into: Any, root: Any) -> None:
    if into is root:
        return
    for node in members.pop(root):
        group[node] = into
        members[into].append(node)
