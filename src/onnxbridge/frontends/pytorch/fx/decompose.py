"""ATen operators without a rule, in simpler ones, by PyTorch's own decompositions; traced one by one where they occur."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx import aliasing, functionalize_views
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import code_unread

# they write running statistics when they train; what their rules refuse must not come in by their parts, without the writes
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

    return dict(decomposition_table)


@functools.cache
def _implicit(target: Any) -> bool:
    torch = frameworks.torch()
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)) or target.has_kernel_for_dispatch_key(key)


# whose operators are PyTorch's: their kernels are no programs in other operators
_PYTORCHS = frozenset({"aten", "prim", "prims", "torchvision", "quantized", "quantized_decomposed", "torchao", "inductor"})


@functools.cache
def is_library(target: Any) -> bool:
    """Whether an operator is of a library's or a user's own."""
    return hasattr(target, "_schema") and target.namespace not in _PYTORCHS


@functools.cache
def _kernel(target: Any) -> Callable[..., Any] | None:
    """The Python function that a library has registered to compute its operator."""
    torch = frameworks.torch()
    if not is_library(target) or not hasattr(torch.library, "get_kernel"):
        return None
    try:
        found = torch.library.get_kernel(target, "CPU")
    except RuntimeError:  # it has none
        return None
    if not _FROM_PYTHON.search(str(found)):
        return None  # compiled code may read the memory behind a tensor, which traced ones do not have
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        return found.call_boxed(keys, *args, **kwargs)

    return run


_FROM_PYTHON = re.compile(r"registered at .*\.(py|pyc|ipynb):\d+|registered at (<|/tmp/ipykernel)")


def operator_of(node: Any) -> Any:
    """The operator that a node calls, where it writes into its arguments as functionalisation has it: on copies."""
    return node.args[0] if getattr(node.target, "__name__", "") == "auto_functionalized_v2" else node.target


def _on_copies(target: Any, _all_bases: Any = (), **kwargs: Any) -> Any:
    """What an operator that writes into its arguments returns and leaves in them, as `auto_functionalized_v2` has it."""
    from torch._higher_order_ops import auto_functionalize

    kernel = _kernel(target)
    assert kernel is not None
    bases = [None if base is None else base.clone() for base in _all_bases]
    given, copies = auto_functionalize._generate_new_op_kwargs_from_bases(target._schema, kwargs, bases, (), False)
    found = kernel(*(given[a.name] for a in target._schema.arguments))
    return (*(found if isinstance(found, tuple) else (found,)), *copies)


def _flex_attention(query: Any, key: Any, value: Any, *rest: Any, **more: Any) -> Any:
    """Attention whose scores a function of the user's own changes, on the whole matrix of scores."""
    torch = frameworks.torch()
    from torch._higher_order_ops.flex_attention import _math_attention_inner

    groups = query.shape[1] // key.shape[1]
    if groups != 1:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    _, scores = _math_attention_inner(query, key, value, *rest, **more)
    seen = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
    return seen, scores.logsumexp(-1) / math.log(2), scores.amax(-1) / math.log(2)


_HIGHER_ORDER: dict[str, Callable[..., Any]] = {"auto_functionalized_v2": _on_copies, "flex_attention": _flex_attention}


def can_be(target: Any) -> bool:
    """Whether a target is an operator, for which there may be a decomposition."""
    return hasattr(target, "_schema") or getattr(target, "__name__", "") in _HIGHER_ORDER


def decompositions_of(target: Any) -> list[Callable[..., Any]]:
    """Functions of the operator's own arguments that compute it with others, the best first."""
    if (name := getattr(target, "__name__", "")) in _HIGHER_ORDER:
        return [_HIGHER_ORDER[name]]
    if not hasattr(target, "_schema") or target._schema.name in _STATEFUL:
        return []
    found = [_table()[target]] if target in _table() else []
    if _implicit(target):
        found.append(target.decompose)
    kernel = _kernel(target)
    return found if kernel is None else [*found, kernel]


def _about_one(guard: Any) -> bool:
    """Whether a guard only says that a size is not 0 or 1, which torch.export takes for granted."""
    return guard.func.__name__ in ("Unequality", "StrictGreaterThan", "GreaterThan", "LessThan") and guard.args[-1] in (0, 1, 2)


def _said(guard: Any, names: Mapping[Any, str]) -> bool:
    """Whether a guard only says that sizes are equal which the user has given one name."""
    import sympy  # type: ignore[import-untyped]

    return bool(guard.xreplace({s: sympy.Symbol(names[s]) for s in guard.free_symbols if s in names}) == sympy.true)


def traced(node: Any, names: Mapping[Any, str]) -> tuple[Any, list[Any]] | None:
    """The graph of one node's decomposition, and the nodes that its placeholders stand for; None where there is none.

    `names` are the user's for the symbols of sizes.
    """
    return next((found for function in decompositions_of(node.target) if (found := _traced(node, function, names))), None)


def _graph_of(leaf: Any) -> Any:
    """The graph inside the graph that an argument is, None for any other."""
    torch = frameworks.torch()
    if not isinstance(leaf, torch.fx.Node) or leaf.op != "get_attr":
        return None
    held = functools.reduce(getattr, leaf.target.split("."), leaf.graph.owning_module)
    return held if isinstance(held, torch.fx.GraphModule) else None


def _open_transforms(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function with Fourier transforms as PyTorch's references have them: its kernels' shapes take sizes for numbers."""
    torch = frameworks.torch()
    from torch._refs import fft
    from torch.overrides import TorchFunctionMode

    references = {getattr(torch.fft, name): getattr(fft, name) for name in fft.__all__ if hasattr(torch.fft, name)}

    class Transforms(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return references.get(function, function)(*args, **(kwargs or {}))

    def inside(*given: Any) -> Any:
        with Transforms():
            return run(*given)

    return inside


def _traced(node: Any, function: Callable[..., Any], names: Mapping[Any, str]) -> tuple[Any, list[Any]] | None:
    torch = frameworks.torch()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    leaves = [leaf if (held := _graph_of(leaf)) is None else held for leaf in leaves]
    sources = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)))
    values = [source.meta["val"] for source in sources]
    if not all(isinstance(v, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) for v in values):
        return None

    def run(*given: Any) -> Any:
        where = dict(zip(sources, given, strict=True))
        args, kwargs = pytree.tree_unflatten([where.get(x, x) if isinstance(x, torch.fx.Node) else x for x in leaves], spec)
        return function(*args, **kwargs)

    mode = torch._guards.detect_fake_mode(values)
    if mode is None:
        return None
    guards = mode.shape_env.guards if mode.shape_env is not None else []
    before = len(guards)
    try:
        with mode, code_unread(), torch.no_grad():
            if is_library(operator_of(node)):
                run = _open_transforms(run)
                run(*values)  # which stops where the code asks for numbers; under functionalisation it would get any
            made = make_fx(run, tracing_mode="real")(*values)
            if not _followed(made.graph):  # PyTorch's functionalisation is a second trace around the first, so not for all
                made = make_fx(torch.func.functionalize(run, remove="mutations"), tracing_mode="real")(*values)
                if not _followed(made.graph):
                    return None
    except Exception:  # PyTorch's own code, which cannot take these values: the operator counts as one without decomposition
        return None
    if not all(_about_one(g.expr) or _said(g.expr, names) for g in guards[before:]):
        return None  # it holds only for sizes like the example's
    made.graph.eliminate_dead_code()
    if any(n.target is node.target for n in made.graph.nodes):
        return None
    return made.graph, sources


def _followed(graph: Any) -> bool:
    """Whether what a graph writes is seen nowhere else than where its calls are looked for; writes into views are rewritten.

    The references' own lazy conjugate is a view as well, which functionalisation makes the operator that there is a rule for.
    """
    if any(n.target is frameworks.torch().ops.prims.conj.default for n in graph.nodes):
        return False
    return not aliasing.needs_functionalisation(graph) or functionalize_views.rewrite(graph)
