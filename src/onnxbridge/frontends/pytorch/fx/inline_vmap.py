"""Inlines vmap in bodies of loops and branches, by tracing them again.

PyTorch's trace omits from a body where each vmap level begins and ends; running the body requires both.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch.fx import aliasing, functionalize_views
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import lazy_code


def _target_name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def inline_vmap(program: Any) -> Any:
    """The program with vmap inlined in every body: its operators work on whole batches.

    Raises:
        UsageError: if PyTorch cannot run a body this way.
    """
    inlined = _inline(program.graph_module)
    if inlined is not program.graph_module:
        program = copy.copy(program)
        program._graph_module = inlined
    return program


def _inline(module: Any) -> Any:
    """The graph without vmap in its bodies, recursively; the same object if there was none."""
    torch = frameworks.torch()
    result: dict[str, Any] = {}
    for name, body in module.named_children():
        if isinstance(body, torch.fx.GraphModule):
            inner = _inline(body)
            inner = _trace(inner) if any(_target_name(n) == "_add_batch_dim" for n in inner.graph.nodes) else inner
            result |= {name: inner} if inner is not body else {}
    if not result:
        return module
    module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for name, body in result.items():
        setattr(module, name, body)
    return module


def _trace(body: Any) -> Any:
    torch = frameworks.torch()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    body = torch.fx.GraphModule(body, copy.deepcopy(body.graph))
    _insert_levels(body.graph)
    values = [n.meta["val"] for n in body.graph.nodes if n.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(values)
    try:
        with mode, lazy_code(), torch.no_grad(), preserve_node_meta():
            result = make_fx(torch.fx.Interpreter(body).run, tracing_mode="real")(*values)
    except Exception as error:  # PyTorch's own code, in many ways
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"PyTorch cannot trace vmap in the body of a loop or a branch: {text}") from error
    if aliasing.needs_functionalization(result.graph) and not functionalize_views.rewrite(result.graph):
        raise UsageError("vmap in the body of a loop or branch mutates an aliased tensor; use an out-of-place operator")
    return result


def _insert_levels(graph: Any) -> None:
    """Insert the start of each vmap level before its first _add_batch_dim, and the end after its last _remove_batch_dim."""
    calls = importlib.import_module("torch._functorch.predispatch")
    levels: dict[int, list[Any]] = {}  # by level: the first node that adds the batch dimension, the last that removes it
    found: list[list[Any]] = []
    for node in graph.nodes:
        if _target_name(node) == "_add_batch_dim":
            level = node.args[2]
            if level not in levels or len(levels[level]) == 2:  # no vmap at this level yet, or it has ended
                levels[level] = [node]
                found.append(levels[level])
        elif _target_name(node) == "_remove_batch_dim" and node.args[1] in levels:
            levels[node.args[1]][1:] = [node]
    for first, last in (each for each in found if len(each) == 2):
        with graph.inserting_before(first):
            graph.call_function(calls._vmap_increment_nesting, (last.args[2], "error"))
        with graph.inserting_after(last):
            graph.call_function(calls._vmap_decrement_nesting, ())
