"""`load`, and how sources become hub models that a backend can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge import isolation, plugin_options, plugins
from onnxbridge.api._arguments.example_inputs import parsed_dynamic, parsed_inputs
from onnxbridge.api._guarded import guarded
from onnxbridge.hub.io.limits import Limits
from onnxbridge.hub.io.resource_limits import folding_limited
from onnxbridge.isolation import Mode


@guarded
def load(
    source: Any,
    *,
    frontend: str | None = None,
    inputs: Any = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    isolate: Mode | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> ir.Model:
    """Read a source into a hub model: an `onnx_ir.Model` at the hub's opset.

    The arguments are those of `convert`; `options` are options of the frontend.

    Raises:
        ConversionError: with every operator that cannot be read.
    """
    plugins.import_modules(imports)
    reader = isolation.frontend_for(source, frontend)
    return to_hub(reader, source, parsed_inputs(inputs), parsed_dynamic(dynamic)[0], plugin_options.checked(reader, options))


def to_hub(
    reader: plugins.Frontend, source: Any, inputs: Any, dynamic: Any, options: Mapping[str, Any] | None = None
) -> ir.Model:
    """Read the source with the frontend and clean up the model."""
    from onnxbridge.hub import passes
    from onnxbridge.hub.passes.bind_inputs import bind_inputs, is_number

    numbers = {}
    if isinstance(inputs, Mapping) and not reader.accepts_numbers:
        numbers = {name: given for name, given in inputs.items() if is_number(given)}
    if numbers:
        inputs = {name: given for name, given in inputs.items() if name not in numbers} or None
    with folding_limited():
        model = reader.to_hub(source, inputs, dynamic, **(options or {}))
        if numbers:
            bind_inputs(model, numbers)
            passes.infer(model)  # branches on these numbers are known now
        return passes.clean(model)


def prepared(writer: plugins.Backend, hub: ir.Model, options: Mapping[str, Any]) -> ir.Model:
    """The hub model for a backend: functions inlined, unless it `keeps_functions`, and patterns of simpler operators replaced by
    its native operators."""
    from onnxbridge.hub import passes
    from onnxbridge.hub.patterns import canonicalize

    model = passes.inline(hub.clone()) if hub.functions and not writer.keeps_functions else hub
    if writer.rules is not None:
        model = hub.clone() if model is hub else model
        canonicalize(model, lambda op_type: writer.is_native(op_type, **options))
    return model


def with_bounds(writer: Any, options: dict[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    """The backend's options, with the bounds of dynamic sizes where it has such an option."""
    return {"bounds": bounds, **options} if bounds and plugin_options.has_option(writer, "bounds") else options
