"""Layers of one list that are called one behind the other: the list is an nn.Sequential again, as its source had it."""

from __future__ import annotations

from torch import fx, nn

from onnxbridge.backends.pytorch.weights import Weights

_GAPS = 3
"""A list with more places than so many times its layers is no sequence: names of another kind are numbers too."""


def join(root: nn.Module, graph: fx.Graph, weights: Weights) -> None:
    """Make one module, and one call, of each list of layers that is such a chain.

    What the model does without, as a dropout or a batch normalization that went into the weights before it, leaves its place in
    the list to an nn.Identity.
    """
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_module":
            calls.setdefault(str(node.target), []).append(node)
    lists = [path for path, module in root.named_modules() if path and _is_list(module)]
    for path in sorted(lists, key=lambda p: -p.count(".")):  # those inside first
        within = weights.at(path)._modules
        places = sorted(within, key=int)
        chain = [node for place in places for node in calls.get(f"{path}.{place}", [])]
        if [str(n.target) for n in chain] != [f"{path}.{place}" for place in places] or not _is_chain(chain):
            continue
        with graph.inserting_before(chain[0]):
            whole = graph.call_module(path, chain[0].args)
        whole.meta.update(chain[-1].meta)
        chain[-1].replace_all_uses_with(whole)
        for node in reversed(chain):
            graph.erase_node(node)
        calls[path] = [whole]
        layers = []
        for i in range(int(places[-1]) + 1):
            if str(i) not in within:
                weights.layers[f"{path}.{i}"] = nn.Identity, {}
            layers.append(within.get(str(i), nn.Identity()))
        scope, _, name = path.rpartition(".")
        (weights.at(scope) if scope else root)._modules[name] = nn.Sequential(*layers)


def _is_list(module: nn.Module) -> bool:
    names = list(module._modules)
    numbered = bool(names) and all(n.isascii() and n.isdigit() and str(int(n)) == n for n in names)
    bare = type(module) is nn.Module and not module._parameters and not module._buffers
    return bare and numbered and max(map(int, names)) < _GAPS * len(names)


def _is_chain(calls: list[fx.Node]) -> bool:
    """Whether each call takes what the one before gives, which nobody else does."""
    single = all(len(n.args) == 1 and isinstance(n.args[0], fx.Node) and not n.kwargs for n in calls)
    return single and all(
        after.args[0] is before and list(before.users) == [after] for before, after in zip(calls, calls[1:], strict=False)
    )
