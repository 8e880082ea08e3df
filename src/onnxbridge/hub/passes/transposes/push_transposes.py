"""The pass that propagates transposes with all rules."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.passes.transposes.propagate_transposes import TransposePropagation
from onnxbridge.hub.passes.transposes.transpose_rules import TRANSPOSE_RULES, reduces


def push_transposes(model: ir.Model) -> None:
    """Propagate and cancel the transposes of a model, in place."""
    TransposePropagation(model, TRANSPOSE_RULES, reduces).run()
