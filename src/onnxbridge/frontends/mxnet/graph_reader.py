"""An MXNet symbol with its parameters as calls to lower, and the hub model made from them."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import SourceLocation, UsageError
from onnxbridge.formats.mxnet.dtypes import FLAGS, dtype_named
from onnxbridge.formats.mxnet.read_symbol import Graph, Node, literal
from onnxbridge.frontends.mxnet import output_names
from onnxbridge.frontends.mxnet.operator_aliases import first_name
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.builder.target import HubTarget
from onnxbridge.hub.ir import provenance
from onnxbridge.lowering import Body, Call, Ref, lower, resolve

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int | str | None, ...], np.dtype[Any]]
Scope = tuple[int, ...]

# Stands for an attribute that is None where the rule's default is not None.
NONE = Ref("None")
# These control memory, speed, devices and training, or repeat the number of inputs: they do not affect the result.
IRRELEVANT = frozenset({
    "workspace", "cudnn_tune", "cudnn_off", "momentum", "grad_scale", "num_args", "ctx", "key", "ndev",
})  # fmt: skip
# The input of an operator that is a training label, which inference ignores.
LABELS = {
    "SoftmaxOutput": 1, "Softmax": 1, "LinearRegressionOutput": 1, "LogisticRegressionOutput": 1, "MAERegressionOutput": 1,
    "SVMOutput": 1,
}  # fmt: skip
# The inputs of an operator that are weights.
WEIGHTS = {
    "Convolution": (1, 2), "Convolution_v1": (1, 2), "Deconvolution": (1, 2), "FullyConnected": (1, 2), "BatchNorm": (1, 2, 3, 4),
    "BatchNorm_v1": (1, 2, 3, 4), "CuDNNBatchNorm": (1, 2, 3, 4), "_contrib_SyncBatchNorm": (1, 2, 3, 4), "Embedding": (1,),
    "_contrib_SparseEmbedding": (1,), "LayerNorm": (1, 2), "InstanceNorm": (1, 2), "GroupNorm": (1, 2), "RNN": (1,),
    "_contrib_DeformableConvolution": (2, 3), "_npx_convolution": (1, 2), "_npx_deconvolution": (1, 2),
    "_npx_fully_connected": (1, 2), "_npx_batch_norm": (1, 2, 3, 4), "_npx_embedding": (1,), "_npx_layer_norm": (1, 2),
    "_npx_rnn": (1,),
}  # fmt: skip
# Attributes that Gluon and this project write for variables of parameters only.
_TRAINED = frozenset({"__lr_mult__", "__wd_mult__", "__init__"})
FUSED = frozenset({"_sg_mkldnn_conv", "_sg_mkldnn_fully_connected", "_sg_mkldnn_selfatt_qk", "_sg_mkldnn_selfatt_valatt"})
"""Operators whose subgraph is a chain of layers that oneDNN computes at once."""
SUBGRAPHS = {
    "_foreach": ("fn",), "_while_loop": ("cond", "func"), "_cond": ("cond", "then_branch", "else_branch"),
    **dict.fromkeys(FUSED, ("fn",)),
}  # fmt: skip
_SUMS = ("elemwise_add", "_plus", "_Plus")
SEMANTICS = ("np_shape", "mxnet_2")
# The names, in the rules, of attributes that had others in files of MXNet 1.4 and 1.5, or have others in those of MXNet 2.
_RENAMED = {
    "_sg_mkldnn_conv": {"with_relu": "with_act", "with_postsum_relu": "with_postsum_act"},
    "_sg_mkldnn_fully_connected": {"with_relu": "with_eltwise"}, "_npi_pad": {"constant_values": "constant_value"},
}  # fmt: skip


def free_variables(graph: Graph, params: Mapping[str, Array]) -> list[int]:
    """The variables without a parameter value, in the symbol's order: the model's inputs, and labels."""
    return [i for i, n in enumerate(graph.nodes) if n.op == "null" and n.name not in params]


def labels(graph: Graph, params: Mapping[str, Array]) -> list[int]:
    """The free variables that only training operators use."""
    uses: dict[int, list[bool]] = {i: [] for i in free_variables(graph, params)}
    for node in graph.nodes:
        for position, (i, _) in enumerate(node.inputs):
            if i in uses:
                uses[i].append(LABELS.get(node.op) == position)
    for i, _ in graph.heads:
        if i in uses:
            uses[i].append(False)
    return [i for i, seen in uses.items() if seen and all(seen)]


def missing_weights(graph: Graph, params: Mapping[str, Array], specs: Mapping[str, Spec]) -> list[str]:
    """The weights without values; a weight that the user describes is an input of the model."""
    free = {i for i in free_variables(graph, params) if graph.nodes[i].name not in specs}
    found = {i for i in free if _TRAINED & set(graph.nodes[i].attrs)}
    for node in graph.nodes:
        for position in WEIGHTS.get(node.op, ()):
            if position < len(node.inputs) and node.inputs[position][0] in free:
                found.add(node.inputs[position][0])
    return [graph.nodes[i].name for i in sorted(found - set(labels(graph, params)))]


def hub_model(graph: Graph, params: Mapping[str, Array], specs: Mapping[str, Spec], auxiliary: Container[str] = ()) -> ir.Model:
    """The symbol as a hub model with the given inputs; `auxiliary` parameters are states that are not trained.

    Raises:
        ConversionError: with every operator that cannot be converted.
        UsageError: if an input's shape is unknown, or a parameter has no value.
    """
    missing = missing_weights(graph, params, specs)
    if missing:
        shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        reason = "they are not in the .params file" if params else "there is no .params file"
        if params and not {n.name for n in graph.nodes} & params.keys():
            reason = f"the .params file has others ({', '.join(list(params)[:2])}, ...), as block.save_parameters writes them"
        raise UsageError(
            f"the parameters {shown} have no values: {reason}; pass the pair (symbol, params) as written by block.export or "
            "mx.model.save_checkpoint, or describe them in inputs= if they are inputs"
        )
    target = HubTarget("MXNet to ONNX", lambda key: (_name(graph, key), None, None))
    op = target.writer
    unused = set(labels(graph, params))
    values: dict[Hashable, Any] = _Values(graph, params, op, auxiliary)
    values[NONE.key] = None
    inputs = []
    for i in free_variables(graph, params):
        name = graph.nodes[i].name
        spec = specs.get(name) or _declared(graph.nodes[i])
        if spec is None:
            if i not in unused:
                raise UsageError(_missing(graph, params, specs))
            values[i, 0] = None
            continue
        shape, dtype = spec
        value = op.input(name, ir.DataType.from_numpy(dtype), shape)
        values[i, 0] = value
        inputs.append(value)
    semantics = {"np_shape": graph.np_shape, "mxnet_2": graph.version >= 20000}
    lower(calls(graph, semantics=frozenset(name for name, holds in semantics.items() if holds)), rule, values, target)
    results = resolve([Ref(h) for h in graph.heads], values)
    outputs = [op.output(op.constant(r), name) for r, name in zip(results, output_names.outputs(graph), strict=True)]
    return op.model(inputs, outputs)


class _Values(dict[Hashable, Any]):
    """The hub's values by (node, output); a parameter becomes a constant when it is first used."""

    def __init__(self, graph: Graph, params: Mapping[str, Array], op: Any, auxiliary: Container[str]) -> None:
        super().__init__()
        self._graph, self._params, self._op, self._auxiliary = graph, params, op, auxiliary

    def __missing__(self, key: Any) -> Any:
        node = self._graph.nodes[key[0]]
        made = self[key] = self._op.constant(ir.tensor(self._params[node.name], name=node.name), node.name)
        if node.name in self._auxiliary:
            provenance.set_state(made.const_value, "buffer")
        return made


def calls(graph: Graph, scope: Scope = (), semantics: Container[str] = ()) -> Iterator[Call]:
    """The graph's operators. Keys are (node, output); in a subgraph they are prefixed with its path of indices.

    Each of the `semantics` that the symbol has ("np_shape", "mxnet_2") is passed to the rules that have a parameter of that name.
    """
    used: dict[int, int] = {}
    for i, o in (e for es in (graph.heads, *(n.inputs for n in graph.nodes)) for e in es):
        used[i] = max(used.get(i, 0), o + 1)
    used_outputs = {e for es in (graph.heads, *(n.inputs for n in graph.nodes)) for e in es}
    for i, node in enumerate(graph.nodes):
        if node.op == "null":
            continue
        kind = first_name(node.op, rule)
        if kind == "Custom":  # code of the user's, under the name with which it is registered
            kind = f"Custom:{node.attrs.get('op_type', '')}"
        attrs = _attributes(node)
        if kind.startswith("Custom:"):
            attrs.pop("op_type", None)
        for k, (name, inner) in enumerate(zip(SUBGRAPHS.get(node.op, ()), node.subgraphs, strict=False)):
            attrs[name] = body(inner, (*scope, i, k), semantics, fused=node.op in FUSED)
        if node.op in FUSED:
            layers = node.subgraphs[0].nodes if node.subgraphs else ()
            attrs["layers"] = [(first_name(n.op, rule), _attributes(n)) for n in layers if n.op != "null"]
        defaults = {p.name: p.default for p in rule[kind].params} if kind in rule else {}
        attrs |= {name: True for name in SEMANTICS if name in semantics and name in defaults}
        attrs = {k: NONE if v is None and defaults.get(k) is not None else v for k, v in attrs.items()}
        yield Call(
            kind,
            tuple(Ref((*scope, *e)) for e in node.inputs),
            attrs,
            tuple((*scope, i, o) if (i, o) in used_outputs else None for o in range(used.get(i, 1))),
            SourceLocation(node=node.name),
        )


def _attributes(node: Node) -> dict[str, Any]:
    """The attributes that affect the result, as Python values."""
    names = _RENAMED.get(node.op, {})
    return {
        names.get(name, name): literal(text)
        for name, text in node.attrs.items()
        if name not in IRRELEVANT and not (name.startswith("__") and name.endswith("__"))
    }


def body(graph: Graph, scope: Scope, semantics: Container[str] = (), fused: bool = False) -> Body:
    """A subgraph; its variables are its inputs, in order. In a fused layer the summand comes last."""
    variables = [i for i, n in enumerate(graph.nodes) if n.op == "null"]
    if fused:
        summands = {i for n in graph.nodes if n.op in _SUMS for i, _ in n.inputs} & set(variables)
        variables.sort(key=lambda i: i in summands)
    return Body(
        tuple((*scope, i, 0) for i in variables),
        list(calls(graph, scope, semantics)),
        tuple(Ref((*scope, *e)) for e in graph.heads),
    )


def _name(graph: Graph, key: Any) -> str:
    """The name of a value; in a subgraph it is prefixed with the names of the enclosing nodes."""
    if len(key) == 2:
        return output_names.output(graph.nodes[key[0]], key[1])
    node = graph.nodes[key[0]]
    return f"{node.name}/{_name(node.subgraphs[key[1]], key[2:])}"


def _declared(node: Node) -> Spec | None:
    """The shape and dtype in a variable's attributes, if complete."""
    shape = literal(node.attrs.get("__shape__", ""))
    if not isinstance(shape, (tuple, list)) or not shape or not all(isinstance(d, int) and d > 0 for d in shape):
        return None
    flag = literal(node.attrs.get("__dtype__", "0"))
    return tuple(shape), FLAGS.get(flag if isinstance(flag, int) else 0, FLAGS[0])


def _missing(graph: Graph, params: Mapping[str, Array], specs: Mapping[str, Spec]) -> str:
    unused = labels(graph, params)
    free = [graph.nodes[i].name for i in free_variables(graph, params) if i not in unused]
    unknown = [n for n in free if n not in specs]
    given = f" (given: {', '.join(specs)})" if specs else ""
    text = ", ".join(unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
    hint = f'inputs={{"{unknown[0]}": ((1, 3, 224, 224), "float32")}}, or --inputs "{unknown[0]}:float32[N,3,224,224]"'
    return f"the shapes of the inputs {text} are unknown{given}; pass them: {hint}; weights are read from the .params file"


def specs_of(graph: Graph, params: Mapping[str, Array], inputs: Any, dynamic: Any) -> dict[str, Spec]:
    """Input shapes and dtypes by name, from a mapping or a sequence of (shape, dtype) or arrays.

    Raises:
        UsageError: if a name is no input of the symbol.
    """
    unused = labels(graph, params)
    order = sorted(free_variables(graph, params), key=lambda i: i in unused)
    free = [graph.nodes[i].name for i in order]
    if inputs is None:
        given: dict[str, Any] = {}
    elif isinstance(inputs, Mapping):
        given = dict(inputs)
    else:
        items = as_list(inputs)
        if len(items) > len(free):
            raise UsageError(f"{len(items)} inputs were given, but the symbol has {len(free)} ({', '.join(free)})")
        given = dict(zip(free, items, strict=False))
    found: dict[str, Spec] = {}
    for name, item in given.items():
        if name not in free:
            raise UsageError(f"the symbol has no input {name!r}; it has {', '.join(free) or 'none'}")
        shape, dtype = spec_of(item)
        axes = dict(dynamic.get(name, {})) if isinstance(dynamic, Mapping) else {}
        for axis in axes:
            if not -len(shape) <= axis < len(shape):
                raise UsageError(f"input {name!r} has no axis {axis}: its shape is {shape}")
        names_by_axis = {axis % len(shape): label for axis, label in axes.items()}
        found[name] = (tuple(names_by_axis.get(i, d) for i, d in enumerate(shape)), dtype)
    return found


def _is_spec(item: Any) -> bool:
    pair = isinstance(item, (tuple, list)) and len(item) == 2
    return pair and isinstance(item[0], (tuple, list)) and isinstance(item[1], (str, type, np.dtype))


def as_list(inputs: Any) -> list[Any]:
    """Inputs without names as a list: a sequence of them, or a single one."""
    return list(inputs) if isinstance(inputs, Sequence) and not _is_spec(inputs) else [inputs]


def spec_of(item: Any) -> Spec:
    """The shape and dtype of an input, from (shape, dtype) or an array.

    Raises:
        UsageError: for anything else.
    """
    try:
        shape, dtype = item if _is_spec(item) else (item.shape, item.dtype)
        return tuple(shape), dtype_named(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except (AttributeError, TypeError) as error:
        raise UsageError(f'an input is an array or a pair like ((1, 3, 224, 224), "float32"), not {item!r:.80}') from error
