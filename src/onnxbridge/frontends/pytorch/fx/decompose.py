"""Decomposes ATen operators without a rule by PyTorch's own decompositions, traced for each node where they occur."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx import aliasing, fourier_transforms, functionalize_views, transformer_layers
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import lazy_code

# norms that write running statistics in training: if their rules refuse them, a decomposition would silently drop the writes
_STATEFUL = frozenset(
    {
        "aten::batch_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::instance_norm",
        "aten::_native_batch_norm_legit_functional", "aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional",
        "aten::cudnn_batch_norm",
    }
)  # fmt: skip


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table

    return dict(decomposition_table) | fourier_transforms.decompositions() | transformer_layers.decompositions()


@functools.cache
def _implicit(target: Any) -> bool:
    torch = frameworks.torch()
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)) or target.has_kernel_for_dispatch_key(key)


# namespaces of PyTorch: their kernels are not Python programs of other operators
_PYTORCH_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "torchvision", "quantized", "quantized_decomposed", "torchao", "inductor"}
)


@functools.cache
def is_library(target: Any) -> bool:
    """Whether an operator belongs to a third-party library or to the user."""
    return hasattr(target, "_schema") and target.namespace not in _PYTORCH_NAMESPACES


@functools.cache
def _python_kernel(target: Any) -> Callable[..., Any] | None:
    """The Python function that a library has registered as an operator's CPU kernel; None if there is none."""
    torch = frameworks.torch()
    if not is_library(target) or not hasattr(torch.library, "get_kernel"):
        return None
    try:
        found = torch.library.get_kernel(target, "CPU")
    except RuntimeError:  # no kernel
        return None
    if not _PYTHON_ORIGIN.search(str(found)):
        return None  # compiled code may access the data pointer, which fake tensors do not have
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        return found.call_boxed(keys, *args, **kwargs)

    return run


_PYTHON_ORIGIN = re.compile(r"registered at .*\.(py|pyc|ipynb):\d+|registered at (<|/tmp/ipykernel)")


def operator_of(node: Any) -> Any:
    """The operator that a node calls; for `auto_functionalized_v2`, the mutating operator that it wraps."""
    return node.args[0] if getattr(node.target, "__name__", "") == "auto_functionalized_v2" else node.target


def _auto_functionalized(target: Any, _all_bases: Any = (), **kwargs: Any) -> Any:
    """The results and mutated arguments of an operator, computed on copies as `auto_functionalized_v2` does."""
    from torch._higher_order_ops import auto_functionalize

    kernel = _python_kernel(target)
    assert kernel is not None
    bases = [None if base is None else base.clone() for base in _all_bases]
    arguments, copies = auto_functionalize._generate_new_op_kwargs_from_bases(target._schema, kwargs, bases, (), False)
    found = kernel(*(arguments[a.name] for a in target._schema.arguments))
    return (*(found if isinstance(found, tuple) else (found,)), *copies)


def _flex_attention(query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> Any:
    """Attention with a user-defined score function (flex_attention), on the full score matrix."""
    torch = frameworks.torch()
    from torch._higher_order_ops.flex_attention import _math_attention_inner

    groups = query.shape[1] // key.shape[1]
    if groups != 1:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    _, scores = _math_attention_inner(query, key, value, *rest, **more)
    attended = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
    return attended, scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)


_HIGHER_ORDER: dict[str, Callable[..., Any]] = {"auto_functionalized_v2": _auto_functionalized, "flex_attention": _flex_attention}


def may_decompose(target: Any) -> bool:
    """Whether a target is an operator that may have a decomposition."""
    return hasattr(target, "_schema") or getattr(target, "__name__", "") in _HIGHER_ORDER


def decompositions_of(target: Any) -> list[Callable[..., Any]]:
    """Functions with the operator's signature that compute it with other operators, the preferred one first."""
    if (name := getattr(target, "__name__", "")) in _HIGHER_ORDER:
        return [_HIGHER_ORDER[name]]
    if not hasattr(target, "_schema") or target._schema.name in _STATEFUL:
        return []
    found = [_table()[target]] if target in _table() else []
    if _implicit(target):
        found.append(target.decompose)
    kernel = _python_kernel(target)
    return found if kernel is None else [*found, kernel]


def _excludes_zero_or_one(guard: Any) -> bool:
    """Whether a guard only says that a size is not 0 or 1, which torch.export assumes."""
    return guard.func.__name__ in ("Unequality", "StrictGreaterThan", "GreaterThan", "LessThan") and guard.args[-1] in (0, 1, 2)


def _equates_named_sizes(guard: Any, names: Mapping[Any, str]) -> bool:
    """Whether a guard only says that sizes with the same user-given name are equal."""
    import sympy  # type: ignore[import-untyped]

    return bool(guard.xreplace({s: sympy.Symbol(names[s]) for s in guard.free_symbols if s in names}) == sympy.true)


def trace_decomposition(node: Any, names: Mapping[Any, str]) -> tuple[Any, list[Any]] | None:
    """Trace one node's decomposition: its graph, and the nodes that its placeholders stand for; None if there is none.

    `names` maps symbols to the user's names of dimensions.
    """
    before = len(_guards(_fake_mode([n.meta.get("val") for n in node.all_input_nodes])))
    functions = decompositions_of(node.target)
    return next((found for function in functions if (found := _trace(node, function, names, before))), None)


def _fake_mode(values: list[Any]) -> Any:
    return frameworks.torch()._guards.detect_fake_mode(values)


def _guards(mode: Any) -> list[Any]:
    return mode.shape_env.guards if mode is not None and mode.shape_env is not None else []


def _graph_of(leaf: Any) -> Any:
    """The subgraph that an argument refers to; None for any other argument."""
    torch = frameworks.torch()
    if not isinstance(leaf, torch.fx.Node) or leaf.op != "get_attr":
        return None
    subgraph = functools.reduce(getattr, leaf.target.split("."), leaf.graph.owning_module)
    return subgraph if isinstance(subgraph, torch.fx.GraphModule) else None


def _with_reference_ffts(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function to use PyTorch's reference Fourier transforms: the shapes of the fake kernels specialize sizes."""
    torch = frameworks.torch()
    from torch._refs import fft
    from torch.overrides import TorchFunctionMode

    references = {getattr(torch.fft, name): getattr(fft, name) for name in fft.__all__ if hasattr(torch.fft, name)}

    class Transforms(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return references.get(function, function)(*args, **(kwargs or {}))

    def with_references(*arguments: Any) -> Any:
        with Transforms():
            return run(*arguments)

    return with_references


def _trace(node: Any, function: Callable[..., Any], names: Mapping[Any, str], before: int) -> tuple[Any, list[Any]] | None:
    """One decomposition's graph and arguments; None if it fails, or if it or one tried earlier has fixed a size, since that stays
    fixed. `before` is the number of guards before any was tried."""
    torch = frameworks.torch()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    leaves = [leaf if (subgraph := _graph_of(leaf)) is None else subgraph for leaf in leaves]
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)))
    values = [source.meta["val"] for source in sources]
    if not all(isinstance(v, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) for v in values):
        return None

    def run(*arguments: Any) -> Any:
        where = dict(zip(sources, arguments, strict=True))
        args, kwargs = pytree.tree_unflatten([where.get(x, x) if isinstance(x, torch.fx.Node) else x for x in leaves], spec)
        return function(*args, **kwargs)

    mode = _fake_mode(values)
    if mode is None:
        return None
    try:
        with mode, lazy_code(), torch.no_grad():
            if is_library(operator_of(node)):
                run = _with_reference_ffts(run)
                run(*values)  # fails where the code needs concrete numbers; under functionalize it would get arbitrary ones
            module = make_fx(run, tracing_mode="real")(*values)
            if not _functionalize(module.graph):  # torch.func.functionalize traces a second time, so only where needed
                module = make_fx(torch.func.functionalize(run, remove="mutations"), tracing_mode="real")(*values)
                if not _functionalize(module.graph):
                    return None
    except Exception:  # PyTorch cannot trace it for these values: treated as having no decomposition
        return None
    if not all(_excludes_zero_or_one(g.expr) or _equates_named_sizes(g.expr, names) for g in _guards(mode)[before:]):
        return None  # valid only for sizes like the example's
    module.graph.eliminate_dead_code()
    if any(n.target is node.target for n in module.graph.nodes):
        return None
    return module.graph, sources


def _functionalize(graph: Any) -> bool:
    """Whether the graph is free of aliased mutations; writes into views are rewritten in place.

    The lazy conjugate of the reference implementations is also a view; functionalization turns it into an operator with a rule.
    """
    if any(n.target is frameworks.torch().ops.prims.conj.default for n in graph.nodes):
        return False
    return not aliasing.needs_functionalization(graph) or functionalize_views.rewrite(graph)
