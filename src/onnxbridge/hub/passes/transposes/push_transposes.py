"""The pass that moves transposes through a graph and cancels them."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.passes.transposes.propagate_transposes import Layout
from onnxbridge.hub.passes.transposes.transpose_rules import CARRIERS, shrinks


def push_transposes(model: ir.Model) -> None:
    """Move and cancel the transposes of a model, in place."""
    Layout(model, CARRIERS, shrinks).run()
