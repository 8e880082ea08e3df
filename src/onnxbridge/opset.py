"""Opset conversion for users: `onnxbridge.opset.convert(model, to=17)`, up and down."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import overload

import onnx
import onnx_ir as ir

from onnxbridge.errors import LossyStep, Problem, UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.opset.opset_conversion import from_hub

_DOMAINS = {"": "", "ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}


@overload
def convert(model: onnx.ModelProto, to: int | Mapping[str, int], *, allow_lossy: bool = False) -> onnx.ModelProto: ...
@overload
def convert(model: ir.Model, to: int | Mapping[str, int], *, allow_lossy: bool = False) -> ir.Model: ...
def convert(
    model: onnx.ModelProto | ir.Model, to: int | Mapping[str, int], *, allow_lossy: bool = False
) -> onnx.ModelProto | ir.Model:
    """Convert an ONNX model to another opset, up or down.

    Args:
        model: an `onnx.ModelProto` or an `onnx_ir.Model`. It is not changed.
        to: the opset of ai.onnx, or versions by domain: {"ai.onnx": 15, "ai.onnx.ml": 3}. Domains that are not named stay at
            their version.
        allow_lossy: allow steps after which the model can give other results than the operators' definitions say. Each is
            reported as a `LossyStep` warning. Without it they are refused.

    Returns:
        A new model of the same type. Value names are preserved.

    Raises:
        ConversionError: with every node that cannot be converted, its operator, version and reason. A model is never returned
            unconverted.
        UsageError: if the version or the domain does not exist.
    """
    if not isinstance(model, (ir.Model, onnx.ModelProto)):
        raise TypeError(f"convert() takes an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")
    hub = model.clone() if isinstance(model, ir.Model) else onnx_files.from_proto(model)
    losses: list[Problem] | None = [] if allow_lossy else None
    made = from_hub(hub, *versions_of(hub, to), losses)
    for loss in losses or ():
        warnings.warn(loss.reason, LossyStep, stacklevel=2)
    return made if isinstance(model, ir.Model) else onnx_files.to_proto(made)


def versions_of(model: ir.Model, to: int | Mapping[str, int]) -> tuple[int, int | None]:
    """The versions of ai.onnx and ai.onnx.ml to write; None for the latter if it is not requested.

    Raises:
        UsageError: if `to` names another domain.
    """
    wanted = {"": to} if isinstance(to, int) else {_DOMAINS.get(domain, domain): version for domain, version in to.items()}
    if unknown := sorted(set(wanted) - set(_DOMAINS.values())):
        raise UsageError(f"the domain {unknown[0]!r} cannot be converted: only ai.onnx and ai.onnx.ml can")
    return wanted.get("", model.opset_imports.get("", OPSET)), wanted.get("ai.onnx.ml")
