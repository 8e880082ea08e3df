"""`check` and `explain`: what prevents a conversion, and how each operator is converted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from onnxbridge import isolation, plugin_options, plugins
from onnxbridge.api._arguments.example_inputs import parsed_dynamic
from onnxbridge.api._guarded import guarded
from onnxbridge.api._load import load, prepared, with_bounds
from onnxbridge.errors import (
    ConversionError,
    MissingFrameworkError,
    Problem,
    UsageError,
)
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation import Mode

logger = logging.getLogger("onnxbridge")


@guarded
def check(
    source: Any,
    to: str | Sequence[str] | None = None,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    isolate: Mode | None = None,
    limits: Limits | None = None,
    **backend_options: Any,
) -> list[Problem]:
    """List everything that prevents a conversion, for one target, several, or all installed ones (None).

    That includes custom operators of ONNX that nothing can run here, without which only `convert` with `verify=False` converts.
    Nothing is written, and nothing is run. Each target gets those of `backend_options` that it has; the other arguments are
    those of `convert`.

    Returns:
        A list of `Problem`, empty if the source can be converted to every target.

    Raises:
        UsageError: if no target has one of the options.
    """
    by_target = problems_by_target(
        source, to, frontend=frontend, inputs=inputs, dynamic=dynamic, imports=imports, **backend_options
    )
    found: list[Problem] = []
    for _, problem in by_target:
        if problem not in found:  # a custom operator is a problem of several targets
            found.append(problem)
    return found


def problems_by_target(
    source: Any,
    to: str | Sequence[str] | None = None,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    **backend_options: Any,
) -> list[tuple[str | None, Problem]]:
    """The problems of `check`, each with its target: None for those of reading the source, which prevent every conversion."""
    plugins.import_modules(imports)
    reader = isolation.frontend_for(source, frontend)
    own, backend_options = plugin_options.of_source(reader, backend_options)
    try:
        hub = load(source, frontend=reader.name, inputs=inputs, dynamic=dynamic, **own)
    except ConversionError as e:
        return [(None, problem) for problem in e.problems]
    except UsageError as e:
        outline = None if inputs is not None else reader.outline(source)
        if outline is None:
            raise
        logger.info("only the operators were checked: %s", e)
        return [(None, problem) for problem in outline.problems]
    found: list[tuple[str | None, Problem]] = []
    targets = [to] if isinstance(to, str) else list(to or plugins.installed("backend"))
    bounds = parsed_dynamic(dynamic)[1]
    verified_by_onnx: list[str] = []  # targets for whose verification an ONNX model runs
    for name, given in plugin_options.shared([plugins.backend(name) for name in targets], backend_options).items():
        try:
            writer = plugins.backend(name)
            given = with_bounds(writer, given, bounds)
            writer.from_hub(prepared(writer, hub, given), **given)
            if writer.rules is None or reader.rules is None or not reader.runs_here():
                verified_by_onnx.append(name)
        except ConversionError as e:
            found += [(name, Problem(p.op, f"{e.direction}: {p.reason}", p.hint, p.locations)) for p in e.problems]
        except MissingFrameworkError as e:
            found.append((name, Problem(name, str(e))))
    if verified_by_onnx:
        from onnxbridge.runtime import devices

        found += [(name, problem) for problem in devices.unsupported(hub) for name in verified_by_onnx]
    return found


def explain(
    source: Any,
    to: str,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    **backend_options: Any,
) -> list[Any]:
    """How a backend converts each operator of the source. Empty for a backend that cannot say; only "coreml" can.

    Returns:
        A list of lines with `as_dict()`, one for each kind of operator, also for operators that cannot be converted.

    Raises:
        ConversionError: if the source cannot be read.
    """
    plugins.import_modules(imports)
    writer = plugins.backend(to)
    if not writer.explains:
        return []
    reader = isolation.frontend_for(source, frontend)
    own, backend_options = plugin_options.of_source(reader, backend_options)
    try:
        hub = load(source, frontend=reader.name, inputs=inputs, dynamic=dynamic, **own)
    except UsageError:
        if inputs is not None or reader.outline(source) is None:
            raise
        return []  # of operators whose shapes are not known
    given = with_bounds(writer, plugin_options.checked(writer, backend_options), parsed_dynamic(dynamic)[1])
    return list(writer.explain(prepared(writer, hub, given), **given))
