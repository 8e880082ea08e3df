"""Passes over hub models: cleanup of every model after its frontend, and inlining of functions of ONNX files."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.frameworks.log_suppression import loggers_disabled
from onnxbridge.hub.ir.fold import forget_formulas
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.passes.batched_matmul import RemoveBatchReshapes
from onnxbridge.hub.passes.constant_reshapes import ConstantReshapes
from onnxbridge.hub.passes.convolutions.fuse_conv_bias import fuse_conv_bias
from onnxbridge.hub.passes.convolutions.fuse_pads import fuse_pads
from onnxbridge.hub.passes.drop_empty_concat_operands import DropEmptyConcatOperands
from onnxbridge.hub.passes.infer_types import infer
from onnxbridge.hub.passes.merge_concats import MergeConcats
from onnxbridge.hub.passes.merge_constants import MergeConstants
from onnxbridge.hub.passes.merge_reshapes import MergeReshapes
from onnxbridge.hub.passes.recurrent.loop_trip_count import infer_trip_counts
from onnxbridge.hub.passes.recurrent.merge_directions import merge_directions
from onnxbridge.hub.passes.recurrent.recognize_rnn import recognize_rnn
from onnxbridge.hub.passes.recurrent.split_states import split_states
from onnxbridge.hub.passes.remove_identities import RemoveIdentities
from onnxbridge.hub.passes.remove_requantization import remove_requantization
from onnxbridge.hub.passes.remove_unused import RemoveUnused
from onnxbridge.hub.passes.repeats_as_resize import repeats_as_resize
from onnxbridge.hub.passes.transposes.decompose_batch_norm import decompose_batch_norm
from onnxbridge.hub.passes.transposes.merge_transposes import MergeTransposes
from onnxbridge.hub.passes.transposes.push_transposes import push_transposes
from onnxbridge.hub.passes.transposes.transpose_before_cast import transpose_before_cast
from onnxbridge.hub.patterns import canonicalize

__all__ = ["clean", "infer", "inline"]

ML = "ai.onnx.ml"
MAX_NODES = 250_000  # after inlining: nested calls of functions can grow exponentially


def inline(model: ir.Model) -> ir.Model:
    """Inline every call of a model-local function.

    Raises:
        UnsafeFileError: if a function calls itself, directly or indirectly.
        LimitError: if the inlined model would have too many nodes.
    """
    if (count := _inlined_node_count(model)) > MAX_NODES:
        raise LimitError(f"the model would have {count} nodes after inlining its functions, and the limit is {MAX_NODES}")
    _unify_opsets(model)
    try:
        return common.InlinePass()(model).model if model.functions else model
    except ir.passes.PreconditionError as e:
        raise UnsafeFileError(f"the model's functions call each other recursively: {e}") from e


def _unify_opsets(model: ir.Model) -> None:
    """Convert a model and its functions to one version of each domain."""
    from onnxbridge.hub.opset.opset_conversion import from_hub

    imports = [model.opset_imports, *(f.opset_imports for f in model.functions.values())]
    for domain, versions in {d: {i[d] for i in imports if d in i} for d in ("", ML)}.items():
        if len(versions) > 1:
            opset = model.opset_imports.setdefault("", max(versions))
            from_hub(model, *((max(versions),) if not domain else (opset, max(versions))))


def _inlined_node_count(model: ir.Model) -> int:
    """The number of nodes after inlining all functions; recursive calls count once."""
    counts: dict[ir.OperatorIdentifier, int] = {}
    open_: set[ir.OperatorIdentifier] = set()

    def total(graph: ir.Graph | ir.Function) -> int:
        nodes = [n for g in (graph, *graph.subgraphs()) for n in g]
        return sum(counts.get(n.op_identifier(), 1) for n in nodes)

    waiting = list(model.functions)
    while waiting:
        name = waiting[-1]
        function = model.functions[name]
        inside = {n.op_identifier() for g in (function, *function.subgraphs()) for n in g}
        missing = [] if name in open_ else [n for n in inside if n in model.functions and n not in counts and n not in open_]
        if missing:
            open_.add(name)
            waiting += missing
            continue
        waiting.pop()
        if name not in counts:
            counts[name] = total(function)
    return total(model.graph)


def clean(model: ir.Model) -> ir.Model:
    """Recognize recurrent and normalization layers that the source decomposes, move transposes and pads into layers, and remove
    identities, duplicate nodes, and unused nodes and weights.

    Equal weights are not merged: each has its own name and may be trained separately.
    """
    unused = RemoveUnused()
    unused(model)
    RemoveIdentities()(model)
    infer_trip_counts(model)
    split_states(model)
    recognize_rnn(model)
    merge_directions(model)
    canonicalize(model, {"BatchNormalization", "PRelu"}.__contains__, outermost_first=True)
    canonicalize(model, {"LayerNormalization"}.__contains__)  # before transposes change its axes
    forget_formulas(model)
    fuse_conv_bias(model)
    unused(model)
    repeats_as_resize(model)
    transpose_before_cast(model, names_in(model))
    push_transposes(model)
    decompose_batch_norm(model)
    remove_requantization(model)
    unused(model)
    fuse_pads(model)
    passes = ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0),
        MergeTransposes(),
        RemoveBatchReshapes(),
        DropEmptyConcatOperands(),
        RemoveIdentities(),
        MergeConcats(),
        MergeConstants(),
        ConstantReshapes(),
        MergeReshapes(),
        common.CommonSubexpressionEliminationPass(),
        RemoveUnused(),
    )
    with loggers_disabled("onnx_ir"):  # these passes log each weight that they do not change
        return passes(model).model
