"""Models in training mode, which are converted as for inference: live modules, exported programs and TorchScript.

Dropout leaves nothing out and norms use their running statistics. What code switches on by itself in evaluation mode, such as
`F.dropout(x, training=True)`, is part of what the model computes and stays.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks

_DROPOUT, NORM = "dropout", "norm"
FLAGS: dict[str, tuple[str, Any, str]] = {
    **dict.fromkeys((
        "aten::dropout", "aten::dropout_", "aten::feature_dropout", "aten::feature_dropout_", "aten::alpha_dropout",
        "aten::alpha_dropout_", "aten::feature_alpha_dropout", "aten::feature_alpha_dropout_", "aten::native_dropout",
        "aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu",
    ), ("train", False, _DROPOUT)),
    **dict.fromkeys((
        "aten::rrelu", "aten::rrelu_", "aten::rrelu_with_noise", "aten::rrelu_with_noise_functional",
    ), ("training", False, _DROPOUT)),
    "aten::scaled_dot_product_attention": ("dropout_p", 0.0, _DROPOUT),
    **dict.fromkeys((
        "aten::batch_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::_native_batch_norm_legit",
        "aten::_native_batch_norm_legit_functional",
    ), ("training", False, NORM)),
    "aten::instance_norm": ("use_input_stats", False, NORM),
}  # fmt: skip
"""The parameter of each operator that says whether the model trains, its value for inference, and the kind of operator."""
_ALWAYS = {"aten::_batch_norm_with_update": None, "aten::_batch_norm_with_update_functional": 4}
"""Norms that always train, and which of their results are the new statistics."""
_NEW = {"aten::_native_batch_norm_legit_functional": 3, **_ALWAYS}
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def modules_in_training(module: Any) -> list[str]:
    """The classes of submodules in training mode whose code depends on it, and the operators that a recording has so."""
    found: dict[str, None] = dict.fromkeys(getattr(module, "recorded_training", ()))
    for m in module.modules():
        code = getattr(inspect.unwrap(type(m).forward), "__code__", None)
        idle = any(getattr(m, name, None) == 0 for name in ("p", "dropout"))
        tracks = getattr(m, "track_running_stats", None)
        asks = code is not None and "training" in code.co_names
        if m.training and (tracks or (asks and tracks is None and not idle)):
            found[type(m).__name__] = None
    return list(found)


def program_for_inference(program: Any) -> tuple[Any, list[str]]:
    """An exported program as it is in evaluation mode, and the operators that trained; the one given is left as it is.

    A program has the flags that its modules had when it was exported. Where some operators of a kind (dropout, norms) do not
    train, it was exported in evaluation mode, and those that do were switched on by code.
    """
    buffers = frozenset(s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "BUFFER")
    nodes = [n for graph in _graphs(program.graph_module) for n in graph.nodes]
    known = [(n, kind) for n in nodes if (kind := _kind(n, buffers))]
    kinds = training_kinds((kind, _is_on(n)) for n, kind in known)
    if not kinds:
        return program, []
    names = sorted({n.target._schema.name for n, kind in known if kind in kinds})
    made = copy.copy(program)
    made._graph_module = _copied(program.graph_module, kinds, buffers)
    if NORM in kinds:
        made._graph_signature = copy.deepcopy(program.graph_signature)
        _drop_statistics(made._graph_module.graph, made._graph_signature)
    made._graph_module.recompile()
    return made, names


def training_kinds(found: Any) -> set[str]:
    """The kinds of operators all of which train."""
    states: dict[str, set[bool]] = {}
    for kind, on in found:
        states.setdefault(kind, set()).add(on)
    return {kind for kind, state in states.items() if state == {True}}


def _graphs(module: Any) -> Iterator[Any]:
    torch = frameworks.torch()
    return (m.graph for m in module.modules() if isinstance(m, torch.fx.GraphModule))


def _arguments(node: Any) -> dict[str, Any]:
    names = [a.name for a in node.target._schema.arguments]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _kind(node: Any, buffers: frozenset[str]) -> str:
    """Whether a node is dropout or a norm with statistics of its own, in training or not; empty for anything else."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None:
        return ""
    kind = NORM if schema.name in _ALWAYS else FLAGS.get(schema.name, ("", None, ""))[2]
    given = _arguments(node) if kind else {}
    if kind == NORM and not _is_buffer(given.get("running_mean"), buffers):
        return ""  # statistics of the batch, or those that the code computes, in evaluation mode too
    if schema.name == "aten::scaled_dot_product_attention" and not given.get("dropout_p"):
        return ""  # says nothing of the mode
    return kind


def _is_buffer(node: Any, buffers: frozenset[str]) -> bool:
    """Whether a value is one of the program's buffers, as it is or repeated for each instance of a batch."""
    while node is not None and getattr(getattr(node.target, "_schema", None), "name", "") in ("aten::repeat", "aten::alias"):
        node = node.args[0]
    return node is not None and node.name in buffers


def _is_on(node: Any) -> bool:
    name = node.target._schema.name
    if name in _ALWAYS:
        return True
    flag = FLAGS[name][0]
    default = next((a.default_value for a in node.target._schema.arguments if a.name == flag), None)
    value = _arguments(node).get(flag, default)
    return value is None or bool(value)  # native_dropout(train=None) trains


def _copied(module: Any, kinds: set[str], buffers: frozenset[str]) -> Any:
    """A graph and the graphs in it, with these kinds of operators in evaluation mode."""
    torch = frameworks.torch()
    made = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    made.meta.update(module.meta)
    for before, node in zip(module.graph.nodes, made.graph.nodes, strict=True):
        node.name = before.name  # a copy renames what Python has a name for, as `input`; the signature goes by names
    for name, body in module.named_children():
        if isinstance(body, torch.fx.GraphModule):
            setattr(made, name, _copied(body, kinds, buffers))
    for node in list(made.graph.nodes):
        kind = _kind(node, buffers)
        if kind in kinds and _is_on(node):
            _switch_off(node)
        elif NORM in kinds and _counts_batches(node):
            made.graph.erase_node(node)
    made.recompile()
    return made


def _switch_off(node: Any) -> None:
    schema = node.target._schema
    given = _arguments(node)
    if schema.name in _NEW:
        ops = frameworks.torch().ops.aten
        first = _NEW[schema.name]
        for user in list(node.users) if first is not None else []:
            if user.args[1] >= first:
                user.replace_all_uses_with(given["running_mean" if user.args[1] == first else "running_var"])
                user.graph.erase_node(user)
        names = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
        node.target, node.kwargs = ops._native_batch_norm_legit_no_training.default, {}
        node.args = tuple(given.get(name) for name in names)
        node.meta["val"] = tuple(node.meta["val"][:3])
        return
    flag, off, _ = FLAGS[schema.name]
    positions = [a.name for a in schema.arguments]
    at = positions.index(flag)
    if at < len(node.args):
        node.args = (*node.args[:at], off, *node.args[at + 1 :])
    else:
        node.kwargs = {**node.kwargs, flag: off}


def _counts_batches(node: Any) -> bool:
    """Whether a node only counts the batches that a norm was trained with."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name == "aten::add_" and not node.users and str(getattr(node.args[0], "target", "")).endswith("num_batches_tracked")


def _drop_statistics(graph: Any, signature: Any) -> None:
    """Take the new statistics of norms from what the program gives back."""
    output = graph.output_node()
    specs = signature.output_specs
    stays = [s.kind.name != "BUFFER_MUTATION" or str(s.target).rpartition(".")[2] not in _STATISTICS for s in specs]
    output.args = (tuple(value for value, keep in zip(output.args[0], stays, strict=True) if keep),)
    specs[:] = [s for s, keep in zip(specs, stays, strict=True) if keep]
    graph.eliminate_dead_code()
