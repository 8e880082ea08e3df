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
    """The model at opset `to`, as a new model of the kind that was given; names of values are kept.

    `to` is the opset of ai.onnx, or versions by domain: {"ai.onnx": 15, "ai.onnx.ml": 3}; a domain that is not named stays as
    it is. Steps that do not keep every number exactly as the operators' definitions have it, beyond the order of rounding, are
    refused; with `allow_lossy` they are made, and each is told as a `LossyStep` warning.

    Raises:
        ConversionError: with every node in the way, naming operator, version and reason. A model is never returned unconverted.
        UsageError: for a version or a domain that there is not.
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
    """The versions of ai.onnx and ai.onnx.ml to write; None for the latter where it is not asked for.

    Raises:
        UsageError: if another domain is named.
    """
    wanted = {"": to} if isinstance(to, int) else {_DOMAINS.get(domain, domain): version for domain, version in to.items()}
    if unknown := sorted(set(wanted) - set(_DOMAINS.values())):
        raise UsageError(f"{unknown[0]!r} cannot be converted: versions are known of ai.onnx and ai.onnx.ml.")
    return wanted.get("", model.opset_imports.get("", OPSET)), wanted.get("ai.onnx.ml")
