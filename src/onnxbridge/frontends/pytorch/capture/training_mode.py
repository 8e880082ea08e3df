"""Models in training mode are converted in evaluation mode: live modules, exported programs and TorchScript.

Dropout is removed and norms use their running statistics. Training behavior that the model's code requests also in evaluation
mode, such as `F.dropout(x, training=True)`, is part of the model and is preserved.
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
"""For each operator: its training-mode parameter, the value of it for inference, and the kind of operator."""
_ALWAYS_TRAINING = {"aten::_batch_norm_with_update": None, "aten::_batch_norm_with_update_functional": 4}
"""Norms that always train, and the index of the first of their results that is an updated statistic."""
_UPDATED_RESULTS = {"aten::_native_batch_norm_legit_functional": 3, **_ALWAYS_TRAINING}
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def modules_in_training(module: Any) -> list[str]:
    """The classes of submodules in training mode whose code depends on it, and operators in training mode in a trace."""
    found: dict[str, None] = dict.fromkeys(getattr(module, "training_names", ()))
    for m in module.modules():
        code = getattr(inspect.unwrap(type(m).forward), "__code__", None)
        has_no_effect = any(getattr(m, name, None) == 0 for name in ("p", "dropout"))
        tracks = getattr(m, "track_running_stats", None)
        depends_on_mode = code is not None and "training" in code.co_names
        if m.training and (tracks or (depends_on_mode and tracks is None and not has_no_effect)):
            found[type(m).__name__] = None
    return list(found)


def program_for_inference(program: Any) -> tuple[Any, list[str]]:
    """The program in evaluation mode, and the names of the operators that were in training mode; the argument is unchanged.

    A program has the training flags that its modules had when it was exported. If some operators of a kind (dropout, norms)
    are in evaluation mode, so was the model, and those in training mode were requested by the code.
    """
    buffers = frozenset(s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "BUFFER")
    nodes = [n for graph in _graphs(program.graph_module) for n in graph.nodes]
    known = [(n, kind) for n in nodes if (kind := _training_kind(n, buffers))]
    kinds = training_kinds((kind, _is_on(n)) for n, kind in known)
    if not kinds:
        return program, []
    names = sorted({n.target._schema.name for n, kind in known if kind in kinds})
    result = copy.copy(program)
    result._graph_module = _copy_for_inference(program.graph_module, kinds, buffers)
    if NORM in kinds:
        result._graph_signature = copy.deepcopy(program.graph_signature)
        _drop_statistics(result._graph_module.graph, result._graph_signature)
    result._graph_module.recompile()
    return result, names


def training_kinds(found: Any) -> set[str]:
    """The kinds of operators of which all are in training mode."""
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


def _training_kind(node: Any, buffers: frozenset[str]) -> str:
    """The kind (dropout, or norm with running statistics) of a node, in either mode; empty for any other."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None:
        return ""
    kind = NORM if schema.name in _ALWAYS_TRAINING else FLAGS.get(schema.name, ("", None, ""))[2]
    arguments = _arguments(node) if kind else {}
    if kind == NORM and not _is_buffer(arguments.get("running_mean"), buffers):
        return ""  # uses statistics of the batch, or computed ones, in evaluation mode too
    if schema.name == "aten::scaled_dot_product_attention" and not arguments.get("dropout_p"):
        return ""  # no dropout: does not show the mode
    return kind


def _is_buffer(node: Any, buffers: frozenset[str]) -> bool:
    """Whether a value is a buffer of the program, possibly through alias or repeat (for each instance of a batch)."""
    while node is not None and getattr(getattr(node.target, "_schema", None), "name", "") in ("aten::repeat", "aten::alias"):
        node = node.args[0]
    return node is not None and node.name in buffers


def _is_on(node: Any) -> bool:
    name = node.target._schema.name
    if name in _ALWAYS_TRAINING:
        return True
    flag = FLAGS[name][0]
    default = next((a.default_value for a in node.target._schema.arguments if a.name == flag), None)
    value = _arguments(node).get(flag, default)
    return value is None or bool(value)  # native_dropout(train=None) is training


def _copy_for_inference(module: Any, kinds: set[str], buffers: frozenset[str]) -> Any:
    """Copy a graph and its subgraphs, with these kinds of operators in evaluation mode."""
    torch = frameworks.torch()
    result = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    result.meta.update(module.meta)
    for before, node in zip(module.graph.nodes, result.graph.nodes, strict=True):
        node.name = before.name  # copying renames nodes that shadow Python names, such as `input`; the signature refers to names
    for name, body in module.named_children():
        if isinstance(body, torch.fx.GraphModule):
            setattr(result, name, _copy_for_inference(body, kinds, buffers))
    for node in list(result.graph.nodes):
        kind = _training_kind(node, buffers)
        if kind in kinds and _is_on(node):
            _switch_off(node)
        elif NORM in kinds and _increments_batch_count(node):
            result.graph.erase_node(node)
    result.recompile()
    return result


def _switch_off(node: Any) -> None:
    schema = node.target._schema
    arguments = _arguments(node)
    if schema.name in _UPDATED_RESULTS:
        ops = frameworks.torch().ops.aten
        first = _UPDATED_RESULTS[schema.name]
        for user in list(node.users) if first is not None else []:
            if user.args[1] >= first:
                user.replace_all_uses_with(arguments["running_mean" if user.args[1] == first else "running_var"])
                user.graph.erase_node(user)
        names = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")
        node.target, node.kwargs = ops._native_batch_norm_legit_no_training.default, {}
        node.args = tuple(arguments.get(name) for name in names)
        node.meta["val"] = tuple(node.meta["val"][:3])
        return
    flag, off, _ = FLAGS[schema.name]
    positions = [a.name for a in schema.arguments]
    at = positions.index(flag)
    if at < len(node.args):
        node.args = (*node.args[:at], off, *node.args[at + 1 :])
    else:
        node.kwargs = {**node.kwargs, flag: off}


def _increments_batch_count(node: Any) -> bool:
    """Whether a node only increments the number of batches that a norm was trained with."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name == "aten::add_" and not node.users and str(getattr(node.args[0], "target", "")).endswith("num_batches_tracked")


def _drop_statistics(graph: Any, signature: Any) -> None:
    """Remove the updated statistics of norms from the outputs of the program."""
    output = graph.output_node()
    specs = signature.output_specs
    kept_specs = [s.kind.name != "BUFFER_MUTATION" or str(s.target).rpartition(".")[2] not in _STATISTICS for s in specs]
    output.args = (tuple(value for value, keep in zip(output.args[0], kept_specs, strict=True) if keep),)
    specs[:] = [s for s, keep in zip(specs, kept_specs, strict=True) if keep]
    graph.eliminate_dead_code()
