"""Frozen graphs (GraphDef, in a file or as an object) and MetaGraphDefs with their checkpoint, as functions."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.frameworks.tensorflow_errors import main_line
from onnxbridge.frontends.tensorflow import input_specs
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from onnxbridge.hub.io.safe_files import map_file, open_file

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_NO_RESULT = frozenset({
    "NoOp", "Assert", "Const", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "SaveV2", "RestoreV2", "SaveSlices",
    "RestoreSlice", "MergeV2Checkpoints", "ShardedFilename", "Assign", "AssignVariableOp", "VarHandleOp", "Variable",
    "VariableV2", "VarIsInitializedOp", "ReadVariableOp", "IsVariableInitialized", "MergeSummary", "ScalarSummary",
    "HistogramSummary", "ScalarSummaryV2",
})  # fmt: skip
_SAVER = frozenset({"SaveV2", "RestoreV2", "SaveSlices", "RestoreSlice", "MergeV2Checkpoints"})
_MOST_TEXT = 1 << 30


def is_graph(source: Any) -> bool:
    """Whether a source is a GraphDef, a MetaGraphDef or a tf.Graph."""
    if type(source).__name__ in ("GraphDef", "MetaGraphDef"):
        return True
    return any(c.__name__ == "Graph" and c.__module__.startswith("tensorflow.") for c in type(source).__mro__)


def read(path: str | os.PathLike[str], kind: str) -> Any:
    """The GraphDef or MetaGraphDef in a file, binary or text.

    Raises:
        UnsafeFileError: if it is corrupt.
    """
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import meta_graph_pb2

    made = graph_pb2.GraphDef() if kind == "graphdef" else meta_graph_pb2.MetaGraphDef()
    content = map_file(open_file(path))
    try:
        if bytes(content[:1]) == b"\n":
            made.ParseFromString(bytes(content))
        elif len(content) > _MOST_TEXT:
            raise UnsafeFileError(f"{os.fspath(path)}: is a text file of more than {_MOST_TEXT >> 20} MiB; save it as binary.")
        else:
            text_format.Parse(bytes(content).decode("utf-8"), made)
    except (DecodeError, text_format.ParseError, ValueError, RecursionError) as e:  # ValueError: a number out of range
        raise UnsafeFileError(f"{os.fspath(path)}: is damaged ({main_line(e)}); get the file again or save it again.") from e
    return made


def function(
    graph: Any, inputs: Any = None, inputs_at: Sequence[str] = (), outputs_at: Sequence[str] = (), checkpoint: str = "",
    label: str = "the graph", signature: str = "",
) -> Any:  # fmt: skip
    """A graph as a function of its inputs.

    Inputs are the placeholders that the outputs need, or the tensors `inputs_at`. Outputs are the tensors `outputs_at`, those of
    a signature of a MetaGraphDef, or the one result of the graph. Sizes in `inputs` take the place of those of placeholders.

    Raises:
        UsageError: if the graph has several results, a tensor does not exist, or a variable has no value.
        UnsafeFileError: if it accesses anything outside the model.
    """
    import tensorflow as tf

    definition = _definition(graph)
    nodes = {n.name: n for n in definition.node}
    outputs_at = outputs_at or _signature_outputs(graph, signature, label)
    outputs = [_tensor(name, nodes, label) for name in outputs_at] or _results(definition, nodes, label)
    cut = [_tensor(name, nodes, label) for name in inputs_at]
    needed = _needed(outputs, nodes, {_node(c) for c in cut})
    found = cut + [
        f"{n.name}:0" for n in definition.node if n.op in _PLACEHOLDERS and n.name in needed and f"{n.name}:0" not in cut
    ]
    part = _kept(definition, _needed([*outputs, *cut], nodes, set()))
    if cut and any(operator_checks.is_unsafe(n) for n in part.node):  # what computes the cut tensors is left out
        part = _without_producers(_kept(definition, needed), cut)
    _set_shapes(part, found, inputs)
    operator_checks.check_nodes(part, label)
    try:
        with frameworks.quiet():
            _rename_functions(part)
            variables = _variables(part, checkpoint, label)
            kinds = {n.name: n.op for n in part.node}
            rest = [n for n in part.node if n.name not in variables]
            del part.node[:]
            part.node.extend(rest)
            for node in part.node:
                node.attr.pop("_class", None)  # it is placed beside a variable

            def body() -> None:
                capture = tf.compat.v1.get_default_graph().capture
                stored = {
                    f"{n}:0": capture(v.handle) if kinds[n] == "VarHandleOp" else v.read_value() for n, v in variables.items()
                }  # fmt: skip
                tf.import_graph_def(part, input_map=stored, name="")

            wrapped = tf.compat.v1.wrap_function(body, [])
            made = wrapped.prune([wrapped.graph.get_tensor_by_name(t) for t in found],
                                 [wrapped.graph.get_tensor_by_name(t) for t in outputs])  # fmt: skip
            made.graph.variables = list(variables.values())
            made.kept_variables = variables  # the graph has only weak references
    except (ValueError, KeyError, tf.errors.OpError) as e:
        raise UsageError(f"{label}: TensorFlow cannot import it: {main_line(e)}") from e
    return made


def _definition(graph: Any) -> Any:
    from tensorflow.core.protobuf import meta_graph_pb2

    if isinstance(graph, meta_graph_pb2.MetaGraphDef):
        return graph.graph_def
    return graph.as_graph_def() if hasattr(graph, "as_graph_def") else graph


def _signature_outputs(graph: Any, name: str, label: str) -> list[str]:
    """The outputs of a signature of a MetaGraphDef; none if it has no signatures."""
    found = dict(graph.signature_def) if hasattr(graph, "signature_def") else {}
    if name and name not in found:
        raise UsageError(f"{label} has no signature {name!r}" + (f"; it has {', '.join(found)}" if found else ""))
    chosen = found.get(name or "serving_default") or (next(iter(found.values())) if len(found) == 1 else None)
    return [info.name for info in chosen.outputs.values()] if chosen is not None else []


_NUMBER = re.compile(r"_[0-9]+(?=/|$)")


def named_like(name: str, names: Iterable[str]) -> list[str]:
    """The names that end like a name: Keras names a layer's operators after the model, too, and numbers both ("net_1/conv_1/Relu"
    for "conv/Relu")."""
    names = list(names)
    longer = [n for n in names if n.endswith(f"/{name}")]
    return longer or [n for n in names if _NUMBER.sub("", f"/{n}").endswith(_NUMBER.sub("", f"/{name}"))]


def tensor_of(graph: Any, name: str) -> Any:
    """A tensor of a live graph by its name, "x" for "x:0", or by the end of its name if that is unique: "conv/BiasAdd".

    Raises:
        UsageError: if there is none.
    """
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        import difflib

        names = [op.name for op in graph.get_operations() if op.outputs and op.type not in ("Const", "Placeholder", "NoOp")]
        longer = named_like(_node(name), names)
        if len(longer) == 1:
            return graph.get_tensor_by_name(f"{longer[0]}:{name.partition(':')[2] or 0}")
        near = difflib.get_close_matches(_node(name), names, n=3) or names[-8:]
        raise UsageError(f"the graph has no tensor {name!r}; it has {', '.join(near)}") from None


def other_inputs(outputs: Iterable[Any], feeds: Iterable[Any], inputs: Iterable[Any]) -> list[Any]:
    """The graph's own inputs that the outputs still need where the tensors `feeds` are given."""
    seen = {t.name for t in feeds}
    todo, needed = [t for t in outputs if t.name not in seen], set()
    while todo:
        tensor = todo.pop()
        needed.add(tensor.name)
        for t in tensor.op.inputs:
            if t.name not in seen:
                seen.add(t.name)
                todo.append(t)
    return [t for t in inputs if t.name in needed]


def _node(tensor: str) -> str:
    return tensor.lstrip("^").split(":")[0]


def _tensor(name: str, nodes: Mapping[str, Any], label: str) -> str:
    """A tensor's full name, "x:0" for "x"."""
    if _node(name) not in nodes:
        import difflib

        near = difflib.get_close_matches(_node(name), nodes, n=3)
        raise UsageError(f"{label} has no tensor {name!r}" + (f"; it has {', '.join(near)}" if near else ""))
    return name if ":" in name else f"{name}:0"


def _results(definition: Any, nodes: Mapping[str, Any], label: str) -> list[str]:
    """The results of a graph: what is computed from its inputs and not used in it.

    TensorFlow 2 names the results of a frozen function Identity, Identity_1, ...: these are all outputs.

    Raises:
        UsageError: if there is no result, or a choice between several.
    """
    used = {_node(i) for n in definition.node for i in n.input}
    ends = [n.name for n in definition.node if n.name not in used and n.op not in _NO_RESULT]
    placed = {n.name for n in definition.node if n.op in _PLACEHOLDERS or n.op == "PlaceholderWithDefault"}
    computes = {name: _needed([name], nodes, set()) for name in ends}
    ends = [name for name in ends if not any(nodes[n].op in _SAVER for n in computes[name])]
    found = [name for name in ends if computes[name] & placed] or ends
    frozen = [name for name in found if name == "Identity" or name.startswith("Identity_")]
    if len(found) > 1 and len(frozen) == len(found) and all(nodes[n].op == "Identity" for n in frozen):
        number = {
            n: int(n.removeprefix("Identity_")) if n != "Identity" else 0 for n in frozen if n[9:].isdigit() or n == "Identity"
        }
        if len(number) == len(frozen):
            return [f"{n}:0" for n in sorted(frozen, key=number.__getitem__)]
    if len(found) != 1:
        choice = (
            f"it has {len(found)} results ({', '.join(found[:8])}{', ...' if len(found) > 8 else ''})"
            if found
            else "it has no result"
        )
        raise UsageError(f"{label}: {choice}; name the outputs: --outputs-at TENSOR (outputs_at=[...])")
    return [f"{found[0]}:0"]


def _needed(outputs: Iterable[str], nodes: Mapping[str, Any], stop: set[str]) -> set[str]:
    """The nodes that compute the outputs, up to those in `stop`."""
    found: set[str] = set()
    todo = [_node(o) for o in outputs]
    while todo:
        name = todo.pop()
        if name in found or name not in nodes:
            continue
        found.add(name)
        if name not in stop:
            todo += [_node(i) for i in nodes[name].input]
    return found


def _kept(definition: Any, needed: set[str]) -> Any:
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef(versions=definition.versions)
    made.library.CopyFrom(definition.library)
    made.node.extend(n for n in definition.node if n.name in needed)
    return made


def _without_producers(part: Any, cut: Sequence[str]) -> Any:
    """The graph with placeholders for cut tensors, where what computes them cannot be imported.

    Raises:
        UsageError: for a tensor that is not its node's only output.
    """
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.framework import op_def_registry

    for node in part.node:
        if f"{node.name}:0" not in cut or node.op in _PLACEHOLDERS:
            continue
        known = op_def_registry.get(node.op)
        if known is None or len(known.output_arg) != 1:
            raise UsageError(f"the graph cannot be cut at {node.name!r}: it has several outputs")
        declared = known.output_arg[0]
        dtype = declared.type or node.attr[declared.type_attr].type or types_pb2.DT_FLOAT
        del node.input[:]
        node.op = "Placeholder"
        node.ClearField("attr")
        node.attr["dtype"].type = dtype
        node.attr["shape"].shape.unknown_rank = True
    return part


def _set_shapes(part: Any, found: Sequence[str], inputs: Any) -> None:
    """Give placeholders the sizes that the user asks for, which may differ from those in the file."""
    import tensorflow as tf

    given = input_specs.given(inputs, [t.removesuffix(":0") for t in found])
    for node in part.node:
        spec = given.get(node.name)
        if spec is not None and spec.shape is not None and node.op in _PLACEHOLDERS and "shape" in node.attr:
            sizes = [s if isinstance(s, int) else None for s in spec.shape]
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
            node.attr.pop("_output_shapes", None)


def _rename_functions(part: Any) -> None:
    """Give the functions of a graph names of its own, since the process may have others of the same names."""
    tag = hashlib.sha256(part.library.SerializeToString(deterministic=True)).hexdigest()[:12]
    names = {f.signature.name: f"{f.signature.name}_{tag}" for f in part.library.function}
    for gradient in part.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
    for found in part.library.function:
        found.signature.name = names[found.signature.name]
    for node in [*part.node, *(n for f in part.library.function for n in f.node_def)]:
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            for called in [value.func] if value.HasField("func") else value.list.func:
                called.name = names.get(called.name, called.name)


def _variables(part: Any, checkpoint: str, label: str) -> dict[str, Any]:
    """The variables of a graph by name, with the values in a checkpoint."""
    import tensorflow as tf

    nodes = [n for n in part.node if n.op in _VARIABLES]
    if nodes and not checkpoint:
        names = ", ".join(n.name for n in nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        raise UsageError(
            f"{label}: its variables have no values ({names}); freeze the graph, or give the .meta file of its checkpoint"
        )
    try:
        reader = tf.train.load_checkpoint(checkpoint) if nodes else None
    except (ValueError, tf.errors.OpError) as e:
        raise UsageError(f"{label}: cannot read its checkpoint {checkpoint}: {main_line(e)}") from e
    found = {}
    for node in nodes:
        assert reader is not None
        shared = node.attr["shared_name"].s.decode(errors="replace")
        key = next((k for k in (shared, node.name) if k and reader.has_tensor(k)), None)
        if key is None:
            raise UsageError(f"{label}: the checkpoint {checkpoint} has no variable {node.name!r}")
        value = reader.get_tensor(key)
        found[node.name] = tf.Variable(value, name=node.name, trainable=value.dtype.kind == "f")
    return found


def checkpoint_of(path: str | os.PathLike[str]) -> str:
    """The checkpoint beside a `.meta` file: the same name without the suffix, or the newest one of its folder."""
    stem = os.fspath(path).removesuffix(".meta")
    if Path(stem + ".index").exists() or Path(stem).exists():
        return stem
    others = sorted(Path(path).parent.glob("*.index"), key=lambda p: p.stat().st_mtime)
    return os.fspath(others[-1]).removesuffix(".index") if len(others) == 1 else ""
