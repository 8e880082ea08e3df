"""The one opset of the hub, and the way of any model to it and from it.

`convert` works for users' messages and hub models alike; `to_hub` and `from_hub` work in place, for frontends and backends.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, UsageError
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.opset_version import LOWEST_WRITTEN, OPSET

OWN = "onnxbridge.opset"
"""In a model's meta: the opset of the ONNX file that it was read from."""


def to_hub(model: ir.Model) -> ir.Model:
    """Bring a model of any opset to the hub's, in place. On an error the model is half converted and must not be used.

    Raises:
        ConversionError: with every node in the way.
    """
    return from_hub(model, OPSET)


def check_version(to: int) -> None:
    """Look whether an opset of ai.onnx exists.

    Raises:
        UsageError: if there is no such opset.
    """
    from onnxbridge.hub.opset import schema_versions

    if not schema_versions.LOWEST <= to <= schema_versions.NEWEST:
        raise UsageError(f"opset {to} does not exist ({schema_versions.LOWEST} to {schema_versions.NEWEST})")


def from_hub(model: ir.Model, to: int, ml: int | None = None, losses: list[Problem] | None = None) -> ir.Model:
    """Take a model to another opset, up or down, in place; otherwise as `to_hub`.

    `ml` is the version of ai.onnx.ml to bring its operators to; by default they stay as they are. Lossy steps are made where
    `losses` is given, which then gets a problem for each.
    """
    from onnxbridge.hub.opset import schema_versions
    from onnxbridge.hub.opset.version_converter import ML, Walk

    check_version(to)
    there = model.opset_imports.get("", to)
    if not schema_versions.LOWEST <= there <= schema_versions.NEWEST:
        newest = schema_versions.NEWEST
        raise UsageError(f"the model is of opset {there}, and the newest known here is {newest}; update onnxbridge.")
    for version in (ml, model.opset_imports.get(ML)):
        if version is not None and not 1 <= version <= schema_versions.NEWEST_ML:
            raise UsageError(f"there is no ai.onnx.ml {version}: it goes from 1 to {schema_versions.NEWEST_ML}.")
    Walk(model, to, ml, losses).run()
    return model


def for_runtime(model: ir.Model, runtime: str, losses: list[Problem] | None = None) -> ir.Model:
    """Take a model to what a release of a runtime ("onnxruntime==1.17") loads, in place; one that it loads already stays.

    Lossy steps are made where `losses` is given, as by `from_hub`.

    Raises:
        ConversionError: with every node in the way, or the IR version where the model needs a newer one.
    """
    from onnxbridge.hub.opset.ir_version import lowest_ir_version
    from onnxbridge.hub.opset.runtime_versions import limits

    most = limits(runtime)
    trees = model.opset_imports.get("ai.onnx.ml")
    ml = most.ml if trees is not None and trees > most.ml else None
    made = from_hub(model, min(most.opset, model.opset_imports.get("", OPSET)), ml, losses)
    if (needed := lowest_ir_version(made)) > most.ir_version:
        reason = f"it needs IR version {needed}, and {runtime} loads none above {most.ir_version}"
        raise ConversionError(f"to {runtime}", [Problem("the model", reason)])
    return made


def in_the_way(model: ir.Model, to: int) -> list[Problem]:
    """What keeps a model, which stays as it is, from an opset; nothing where it could go there."""
    try:
        from_hub(model.clone(), to)
    except ConversionError as e:
        return list(e.problems)
    return []


def lowest(model: ir.Model, least: int = LOWEST_WRITTEN) -> int:
    """The lowest opset, from `least` up, at which a hub model's nodes stand as they are."""
    from onnxbridge.hub.opset.opset_support import fits

    there = model.opset_imports.get("", OPSET)
    nodes = [n for g in every_graph(model) for n in g if n.domain == ""]
    return next((v for v in range(least, there) if all(fits(n, v, there) for n in nodes)), there)
