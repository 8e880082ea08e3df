"""Reads an exported program's graph as calls for the lowering.

Keys are fx nodes, and `(node, i)` for the i-th of several results; `getitem` nodes are resolved here and produce no calls.
"""

from __future__ import annotations

import functools
import operator
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import SourceLocation
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.fx.aliasing import out_of_place_variant
from onnxbridge.hub.ir import source_locations
from onnxbridge.lowering import Body, Call, Ref, Schema

# arguments about device and memory layout, which ONNX leaves to the runtime
_MEMORY = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})
# assertions of torch.export's assumptions, and markers without numerical effect
_CHECKS = frozenset(
    {
        "aten::_assert_scalar", "aten::_assert_tensor_metadata", "aten::_assert_async.msg", "aten::_assert_async",
        "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
        "aten::_functional_assert_scalar", "aten::_functional_sym_constrain_range",
    }
)  # fmt: skip
_HIGHER_ORDER = {
    "cond": ("pred", "true_fn", "false_fn", "operands"),
    "while_loop": ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"),
}


@functools.cache
def name_of(target: Any) -> str:
    """The operator's exact name: "aten::softmax.int", no suffix for the default; "operator::mul" for Python operators."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
    if getattr(target, "namespace", None) == "higher_order":
        return f"higher_order::{target.name()}"
    return f"{target.__module__.strip('_').split('.')[0]}::{target.__name__}"


@functools.cache
def schema_of(target: Any) -> Schema | None:
    """Parameter names and defaults of an operator, from its PyTorch schema."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        names = _HIGHER_ORDER.get(name_of(target).partition("::")[2])
        return Schema(names) if names else None
    # an optional argument may be None even if the schema gives no default
    optional = {a.name: None for a in schema.arguments if a.type.kind() == "OptionalType"}
    defaults = optional | {a.name: literal(a.default_value) for a in schema.arguments if a.has_default_value()}
    return Schema(tuple(a.name for a in schema.arguments), defaults)


def literal(value: Any) -> Any:
    """A Python value of the graph in the form that rules receive: tuples for lists, hub dtypes for torch.dtype."""
    if isinstance(value, (list, tuple)):
        return tuple(literal(v) for v in value)
    if isinstance(value, frameworks.torch().dtype) and dtypes.is_supported(value):
        return dtypes.to_hub(value)
    return value  # a dtype that ONNX lacks is reported where a value has it


class NodeKeys:
    """Finds the key of an fx node's value at the current point of the graph, through `getitem` and in-place operators."""

    def __init__(self, outer: Mapping[Any, Any] | None = None) -> None:
        self.current: dict[Any, Any] = {}
        self._outer = outer or {}

    def ref(self, node: Any) -> Any:
        """The reference for a use of the node."""
        if node in self._outer:
            return self._outer[node]
        while node in self.current:
            node = self.current[node]
        if node.op == "get_attr":
            return _attribute(node)
        if node.op == "call_function" and _is_tuple(node.target):
            return self.value(node.args[0])
        if node.op == "call_function" and node.target is operator.getitem:
            source, index = node.args
            inner = self.ref(source)
            return Ref((inner.key, index)) if isinstance(inner, Ref) else inner[index]
        several = node.meta.get("val")
        if isinstance(several, (list, tuple)):
            return tuple(Ref((node, i)) for i in range(len(several)))
        return Ref(node)

    def value(self, item: Any) -> Any:
        """An argument of a node, with nodes replaced by references."""
        torch = frameworks.torch()
        if isinstance(item, torch.fx.Node):
            return self.ref(item)
        if isinstance(item, (list, tuple)):
            return tuple(self.value(i) for i in item)
        return literal(item)


def _is_tuple(target: Any) -> bool:
    """Whether a node only builds a named tuple (torch.return_types), as traced decompositions do."""
    return isinstance(target, type) and issubclass(target, tuple)


def _attribute(node: Any) -> Any:
    """The value of a get_attr node: a `Body` for a subgraph, a reference for a tensor."""
    attribute = functools.reduce(getattr, node.target.split("."), node.graph.owning_module)
    return body_of(attribute) if isinstance(attribute, frameworks.torch().fx.GraphModule) else Ref(node)


def body_of(module: Any) -> Body:
    """A subgraph (a branch or loop body) as a `Body`."""
    graph = module.graph
    names = NodeKeys()
    inputs = tuple(n for n in graph.nodes if n.op == "placeholder")
    found = list(calls_of(graph, names))
    return Body(inputs, found, results_of(graph, names))


def results_of(graph: Any, names: NodeKeys) -> tuple[Any, ...]:
    """The results of the graph; valid after its calls have been read."""
    results = next(n for n in reversed(graph.nodes) if n.op == "output").args[0]
    found = names.value(results)
    return found if isinstance(found, tuple) else (found,)


def calls_of(graph: Any, names: NodeKeys, where: SourceLocation | None = None) -> Iterator[Call]:
    """The graph's operators as calls; `where` overrides the source locations of the nodes."""
    unneeded = _unneeded(graph)
    for node in graph.nodes:
        if node.op != "call_function" or node in unneeded or node.target is operator.getitem or _is_tuple(node.target):
            continue
        target = node.target
        in_place = out_of_place_variant(target)
        if in_place is None and (empty := _empty_results(node)):
            for key, size, dtype in empty:
                yield Call("aten::empty.memory_format", (size,), {"dtype": dtype}, (key,), where or location_of_node(node))
            continue
        schema = schema_of(in_place or target)
        params = schema.params if schema is not None else ()
        args = tuple(
            None if i < len(params) and _is_memory_argument(params[i], a) else names.value(a) for i, a in enumerate(node.args)
        )
        attrs = {k: names.value(v) for k, v in node.kwargs.items() if not _is_memory_argument(k, v)}
        name = name_of(in_place or target)
        if _is_complex(node):
            name = f"complex::{name.partition('::')[2]}"
        yield Call(name, args, attrs, _outputs(node), where or location_of_node(node), schema)
        if in_place is not None:
            mutated = node.args[0]
            while mutated in names.current:
                mutated = names.current[mutated]
            if mutated is not node:
                names.current[mutated] = node


def _unneeded(graph: Any) -> set[Any]:
    """Nodes without effect: assertions, and what only assertions use."""
    found: set[Any] = set()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and (
            name_of(node.target) in _CHECKS
            or out_of_place_variant(node.target) is None
            and all(user in found for user in node.users)
        ):
            found.add(node)
    return found


def _is_complex(node: Any) -> bool:
    """Whether an operand or a result is complex, so that a "complex::" rule applies."""
    torch = frameworks.torch()
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    flat = [v for item in values for v in (item if isinstance(item, (list, tuple)) else (item,))]
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in flat)


def _empty_results(node: Any) -> list[tuple[Any, tuple[int, ...], Any]]:
    """Key, shape and dtype of each result if all are statically empty tensors, whatever the operator; else an empty list."""
    value = node.meta.get("val")
    results = list(value) if isinstance(value, (list, tuple)) else [value]
    keys = _outputs(node)
    found = []
    for key, result in zip(keys, results, strict=True):
        sizes = tuple(getattr(result, "shape", ()))
        if not all(isinstance(s, int) for s in sizes) or 0 not in sizes or result.is_complex():
            return []
        if key is not None:
            found.append((key, sizes, dtypes.to_hub(result.dtype)))
    return found


def _is_memory_argument(name: str, value: Any) -> bool:
    return name in _MEMORY and (name != "layout" or str(value) == "torch.strided" or value is None)


def _outputs(node: Any) -> tuple[Hashable | None, ...]:
    value = node.meta.get("val")
    if not isinstance(value, (list, tuple)):
        return (node,)
    used = {user.args[1] for user in node.users if user.target is operator.getitem}
    whole = any(user.target is not operator.getitem for user in node.users)
    return tuple((node, i) if i in used or whole else None for i in range(len(value)))


# the key that PyTorch's passes use in nn_module_stack for inserted nodes without a module
_NO_STACK = "_empty_nn_module_stack_from_metadata_hook"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@functools.cache
def _internal_paths() -> tuple[str, ...]:
    """Path prefixes of frames that are not the user's: PyTorch, this package, generated code. Some frames have paths without the
    links that lead to an environment."""
    folders = os.path.dirname(str(frameworks.torch().__file__)), str(resources.files("onnxbridge"))
    return (*(f(folder) + os.sep for folder in folders for f in (str, os.path.realpath)), f"torch{os.sep}", "<")


@functools.lru_cache(maxsize=4096)
def _frame(trace: str) -> tuple[str, int, str]:
    """The user's frame in a stack trace: the innermost one outside PyTorch."""
    found = user_frame([(file, int(line), function) for file, line, function in _FRAME.findall(trace)])
    return (source_locations.relative(found[0]), *found[1:]) if found is not None else ("", 0, "")


def user_frame(frames: Sequence[tuple[str, int, str]]) -> tuple[str, int, str] | None:
    """The user's frame among (file, line, function): the innermost one outside PyTorch; None if there is none."""
    return next((f for f in reversed(frames) if not f[0].startswith(_internal_paths())), None)


def classes(nodes: Iterable[Any]) -> dict[str, str]:
    """The class names of the modules that nodes come from, by module path, without PyTorch's own layers."""
    found: dict[str, str] = {}
    for node in nodes:
        for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
            if path not in found and key != _NO_STACK:
                named = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
                found[path] = "" if source_locations.is_layer(named) else named.rpartition(".")[2]
    return {path: kind for path, kind in found.items() if kind}


def location_of_node(node: Any) -> SourceLocation:
    """The user's source location of a node."""
    file, line, function = _frame(node.meta.get("stack_trace") or "")
    stack = node.meta.get("nn_module_stack") or {}
    named = [entry for key, entry in stack.items() if key != _NO_STACK]
    scope = function
    if named:
        path, kind = named[-1]
        kind = kind if isinstance(kind, str) else kind.__name__
        scope = path or f"{kind.rpartition('.')[2]}.{function}"
    return SourceLocation(file, line, scope, "" if file else node.name)
