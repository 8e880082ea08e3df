"""Opset conversion to and from the hub, in place."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, UsageError
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.opset_version import LOWEST_WRITTEN, OPSET

SOURCE_OPSET = "onnxbridge.opset"
"""Key in a model's meta: the opset of the ONNX file that it was read from."""


def to_hub(model: ir.Model) -> ir.Model:
    """Convert a model to the hub's opset, in place. After an error the model is partly converted and must not be used.

    Raises:
        ConversionError: with a problem for every node that cannot be converted.
    """
    return from_hub(model, OPSET)


def check_version(to: int) -> None:
    """Check that an opset of ai.onnx exists.

    Raises:
        UsageError: if it does not.
    """
    from onnxbridge.hub.opset import schema_versions

    if not schema_versions.LOWEST <= to <= schema_versions.NEWEST:
        raise UsageError(f"opset {to} does not exist ({schema_versions.LOWEST} to {schema_versions.NEWEST})")


def from_hub(model: ir.Model, to: int, ml: int | None = None, losses: list[Problem] | None = None) -> ir.Model:
    """Convert a model to another opset, up or down, in place; otherwise as `to_hub`.

    `ml` is the target version of ai.onnx.ml; by default it is not converted. Lossy steps are allowed if `losses` is given, to
    which a problem is added for each.
    """
    from onnxbridge.hub.opset import schema_versions
    from onnxbridge.hub.opset.version_converter import ML, VersionConverter

    check_version(to)
    current = model.opset_imports.get("", to)
    if not schema_versions.LOWEST <= current <= schema_versions.NEWEST:
        newest = schema_versions.NEWEST
        raise UsageError(f"the model has opset {current}, and the newest supported one is {newest}; update onnxbridge.")
    for version in (ml, model.opset_imports.get(ML)):
        if version is not None and not 1 <= version <= schema_versions.NEWEST_ML:
            raise UsageError(f"ai.onnx.ml {version} does not exist (1 to {schema_versions.NEWEST_ML})")
    VersionConverter(model, to, ml, losses).run()
    return model


def for_runtime(model: ir.Model, runtime: str, losses: list[Problem] | None = None) -> ir.Model:
    """Convert a model in place to the opsets that a runtime release ("onnxruntime==1.17") supports, if it does not have these.

    Lossy steps are allowed if `losses` is given, as by `from_hub`.

    Raises:
        ConversionError: with a problem for every node that cannot be converted, or if the model needs a newer IR version.
    """
    from onnxbridge.hub.opset.ir_version import lowest_ir_version
    from onnxbridge.hub.opset.runtime_versions import limits

    supported = limits(runtime)
    trees = model.opset_imports.get("ai.onnx.ml")
    ml = supported.ml if trees is not None and trees > supported.ml else None
    converted = from_hub(model, min(supported.opset, model.opset_imports.get("", OPSET)), ml, losses)
    if (needed := lowest_ir_version(converted)) > supported.ir_version:
        reason = f"it needs IR version {needed}, and {runtime} supports none above {supported.ir_version}"
        raise ConversionError(f"to {runtime}", [Problem("the model", reason)])
    return converted


def conversion_problems(model: ir.Model, to: int) -> list[Problem]:
    """The problems of converting a model to an opset; the model is not changed."""
    try:
        from_hub(model.clone(), to)
    except ConversionError as e:
        return list(e.problems)
    return []


def lowest_opset(model: ir.Model, least: int = LOWEST_WRITTEN) -> int:
    """The lowest opset, from `least` up, that supports a hub model's nodes unchanged."""
    from onnxbridge.hub.opset.opset_support import is_supported

    current = model.opset_imports.get("", OPSET)
    nodes = [n for g in every_graph(model) for n in g if n.domain == ""]
    return next((v for v in range(least, current) if all(is_supported(n, v, current) for n in nodes)), current)
