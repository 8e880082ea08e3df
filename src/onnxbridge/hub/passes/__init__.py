"""Passes over a hub model: what every model goes through after its frontend, and what a file needs before it is one."""

from __future__ import annotations

import logging

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.errors import UnsafeFileError
from onnxbridge.hub.passes.identities import DropIdentities
from onnxbridge.hub.passes.infer import infer
from onnxbridge.hub.passes.reshapes import SettleReshapes

__all__ = ["clean", "infer", "inline"]


def inline(model: ir.Model) -> ir.Model:
    """Write every call of a model-local function as the function's own nodes.

    Raises:
        UnsafeFileError: if a function calls itself, however far around.
    """
    try:
        return common.InlinePass()(model).model if model.functions else model
    except ir.passes.PreconditionError as e:
        raise UnsafeFileError(f"the model's functions call each other in a circle: {e}") from e


def clean(model: ir.Model) -> ir.Model:
    """Leave out what computes nothing: identities, nodes written twice, nodes and weights that nobody uses.

    Weights that happen to be equal stay apart: each has its own name, and in a target that trains its own future.
    """
    passes = ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0),
        DropIdentities(),
        SettleReshapes(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
    )
    log = logging.getLogger("onnx_ir")
    level = log.level
    log.setLevel(logging.ERROR)  # these passes remark on each weight that they leave as it is
    try:
        return passes(model).model
    finally:
        log.setLevel(level)
