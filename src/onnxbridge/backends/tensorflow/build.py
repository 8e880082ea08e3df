"""Turns a hub model into a functional Keras model, or into a `tf.Module` where Keras has no symbolic tensors for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.backends.tensorflow import hub_module
from onnxbridge.backends.tensorflow.artifacts.written_as import WrittenAs
from onnxbridge.backends.tensorflow.functional import build as functional
from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.hub.decompositions.autodiff import gradient
from onnxbridge.hub.passes.batched_matmul import RemoveBatchReshapes
from onnxbridge.hub.passes.infer_types import infer
from onnxbridge.hub.passes.remove_identities import RemoveIdentities
from onnxbridge.hub.passes.remove_unused import RemoveUnused
from onnxbridge.hub.passes.transposes.channels_last import channels_last, set_layout, transposed_borders, used_channels_last
from onnxbridge.hub.patterns import canonicalize


def build(model: ir.Model, written_as: WrittenAs, layout: Sequence[str] = ()) -> Any:
    """The hub model as a Keras model or a module. The model is not changed.

    Raises:
        ConversionError: with every operator that cannot be converted.
        UsageError: for a layout of a value that the model does not have.
    """
    moved = model.clone()
    if gradient.has_gradient_nodes(moved):
        gradient.decompose_gradients(moved)
    infer(moved)  # passes leave sizes open that layers need
    if RemoveBatchReshapes()(moved).modified:
        RemoveIdentities()(moved)
        infer(moved)
    canonicalize(moved, lambda op_type: op_type == "Attention")  # for Keras's layer; there is no rule for the operator alone
    channels_last(moved)
    if wanted := _wanted(moved, layout):
        written_as.permutations = set_layout(moved, wanted)
        channels_last(moved)
    common.LiftSubgraphInitializersToMainGraphPass()(moved)
    RemoveUnused()(moved)
    made: Any
    try:
        # Keras writes calls of its functions into .h5 files, but does not read them
        made = functional.build(moved, functions=written_as.suffix != ".h5", unrolled=written_as.suffix == ".tflite")
    except (functional.NotFunctional, ConversionError) as e:
        made = hub_module.build(moved)
        made.reason = str(e)
    made.written_as = written_as
    return made


def _wanted(model: ir.Model, layout: Sequence[str]) -> dict[str, str]:
    parts = [text.rpartition(":") for text in ([layout] if isinstance(layout, str) else layout)]
    given = {name: order for name, _, order in parts}
    every = {v.name or "": v for v in (*model.graph.inputs, *model.graph.outputs)}
    for name in given.keys() - {""}:
        if name not in every:
            raise UsageError(f"layout: the model has no input or output {name!r}; it has {', '.join(every)}")
        shape = every[name].shape
        if shape is None or len(shape) < 3:
            raise UsageError(f"layout: {name!r} has no axis of channels beside others")
    order = given.pop("", "")
    names = {"nhwc": transposed_borders, "nchw": used_channels_last}[order](model) if order else ()
    return {**dict.fromkeys(names, order), **given}
