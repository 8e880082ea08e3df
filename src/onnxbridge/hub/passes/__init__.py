"""Passes over a hub model: what every model goes through after its frontend, and what a file needs before it is one."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.frameworks.log_suppression import hushed
from onnxbridge.hub.passes.batched_matmul import KeepBatches
from onnxbridge.hub.passes.constant_reshapes import SettleReshapes
from onnxbridge.hub.passes.infer_types import infer
from onnxbridge.hub.passes.merge_constants import MergeConstants
from onnxbridge.hub.passes.remove_identities import DropIdentities
from onnxbridge.hub.passes.transposes.merge_transposes import JoinTransposes

__all__ = ["clean", "infer", "inline"]

ML = "ai.onnx.ml"
MOST_NODES = 250_000  # of a model whose functions are written out: each may call another twice, and that one the next


def inline(model: ir.Model) -> ir.Model:
    """Write every call of a model-local function as the function's own nodes.

    Raises:
        UnsafeFileError: if a function calls itself, however far around.
        LimitError: if there would be more nodes than any model has.
    """
    if (count := _written_out(model)) > MOST_NODES:
        raise LimitError(f"the model's functions are {count} nodes when they are written out, and the budget is {MOST_NODES}")
    _agree(model)
    try:
        return common.InlinePass()(model).model if model.functions else model
    except ir.passes.PreconditionError as e:
        raise UnsafeFileError(f"the model's functions call each other in a circle: {e}") from e


def _agree(model: ir.Model) -> None:
    """Bring a model and its functions to one version of the operators, where they were written at several."""
    from onnxbridge.hub.opset.opset_conversion import from_hub

    imports = [model.opset_imports, *(f.opset_imports for f in model.functions.values())]
    for domain, versions in {d: {i[d] for i in imports if d in i} for d in ("", ML)}.items():
        if len(versions) > 1:
            there = model.opset_imports.setdefault("", max(versions))
            from_hub(model, *((max(versions),) if not domain else (there, max(versions))))


def _written_out(model: ir.Model) -> int:
    """The number of nodes that the model has once its functions are written out; calls in a circle count once."""
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
    """Leave out what computes nothing: identities, nodes written twice, nodes and weights that nobody uses.

    Weights that happen to be equal stay apart: each has its own name, and in a target that trains its own future.
    """
    passes = ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0),
        JoinTransposes(),
        KeepBatches(),
        DropIdentities(),
        MergeConstants(),
        SettleReshapes(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
    )
    with hushed("onnx_ir"):  # these passes remark on each weight that they leave as it is
        return passes(model).model
