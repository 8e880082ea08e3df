"""Turns a hub model into a functional Keras model, or into a `tf.Module` where Keras has no symbolic tensors for it."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.backends.tensorflow import hub_module
from onnxbridge.backends.tensorflow.functional import build as functional
from onnxbridge.errors import ConversionError
from onnxbridge.hub.passes.transposes.channels_last import channels_last


def build(model: ir.Model) -> Any:
    """The hub model as a Keras model or a module. The model is not changed.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    moved = model.clone()
    channels_last(moved)
    common.LiftSubgraphInitializersToMainGraphPass()(moved)
    common.RemoveUnusedNodesPass()(moved)
    try:
        return functional.build(moved)
    except (functional.NotFunctional, ConversionError):
        return hub_module.build(moved)
