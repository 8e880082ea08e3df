"""vmap in bodies of loops and branches, which are traced again without it.

PyTorch's trace leaves out of a body where its batches begin and end; a run of it needs both.
"""

from __future__ import annotations

import copy
import importlib
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch.fx import aliasing, functionalize_views
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import code_unread


def _called(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def unbatched(program: Any) -> Any:
    """The program with each body under vmap as one of operators on whole batches.

    Raises:
        UsageError: where PyTorch cannot run a body so.
    """
    whole = _without(program.graph_module)
    if whole is not program.graph_module:
        program = copy.copy(program)
        program._graph_module = whole
    return program


def _without(module: Any) -> Any:
    """A graph whose bodies, and theirs, have no vmap: itself where none had."""
    torch = frameworks.torch()
    made: dict[str, Any] = {}
    for name, body in module.named_children():
        if isinstance(body, torch.fx.GraphModule):
            inner = _without(body)
            inner = _traced(inner) if any(_called(n) == "_add_batch_dim" for n in inner.graph.nodes) else inner
            made |= {name: inner} if inner is not body else {}
    if not made:
        return module
    module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for name, body in made.items():
        setattr(module, name, body)
    return module


def _traced(body: Any) -> Any:
    torch = frameworks.torch()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    body = torch.fx.GraphModule(body, copy.deepcopy(body.graph))
    _bound(body.graph)
    values = [n.meta["val"] for n in body.graph.nodes if n.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(values)
    try:
        with mode, code_unread(), torch.no_grad(), preserve_node_meta():
            made = make_fx(torch.fx.Interpreter(body).run, tracing_mode="real")(*values)
    except Exception as error:  # PyTorch's own code, in many ways
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"PyTorch cannot trace vmap in the body of a loop or a branch: {text}") from error
    if aliasing.needs_functionalisation(made.graph) and not functionalize_views.rewrite(made.graph):
        raise UsageError("vmap in the body of a loop or a branch writes into a tensor that is seen otherwise; write it without")
    return made


def _bound(graph: Any) -> None:
    """Put the beginning of each batch in front of the first tensor that has it, and its end behind the last that loses it."""
    calls = importlib.import_module("torch._functorch.predispatch")
    open_: dict[int, list[Any]] = {}  # by level: the first node that adds the batch and the last that removes it
    found: list[list[Any]] = []
    for node in graph.nodes:
        if _called(node) == "_add_batch_dim":
            level = node.args[2]
            if level not in open_ or len(open_[level]) == 2:  # none at this level yet, or that one has ended
                open_[level] = [node]
                found.append(open_[level])
        elif _called(node) == "_remove_batch_dim" and node.args[1] in open_:
            open_[node.args[1]][1:] = [node]
    for first, last in (each for each in found if len(each) == 2):
        with graph.inserting_before(first):
            graph.call_function(calls._vmap_increment_nesting, (last.args[2], "error"))
        with graph.inserting_after(last):
            graph.call_function(calls._vmap_decrement_nesting, ())
