"""Two models to compare, read from what users give: `verify` and `bisect` start with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.api._example_inputs import parsed_dynamic, parsed_inputs, specs_of
from onnxbridge.api._load import Progress, to_hub
from onnxbridge.errors import UsageError
from onnxbridge.runtime.verify.pairing import Runnable, runnable


@dataclass(frozen=True)
class Pair:
    """Two models, the hub model that describes the inputs of both, and the user's own inputs and bounds of sizes."""

    reference: Runnable
    candidate: Runnable
    hub: ir.Model
    feeds: Sequence[Mapping[str, Any]] | None
    bounds: Mapping[str, tuple[int, int | None]]


def read_pair(
    reference: Any, candidate: Any, inputs: Any, frontend: str | None, dynamic: Any, imports: str | Sequence[str] | None,
    device: str, progress: Progress,
) -> Pair:  # fmt: skip
    """Read both models. The arguments are those of `verify`.

    Raises:
        UsageError: if the models or inputs do not match.
    """
    from onnxbridge.hub.passes.bind_inputs import bound_inputs

    plugins.import_modules(imports)
    specs, feeds = parsed_inputs(inputs), None
    if isinstance(inputs, Mapping) and inputs and all(isinstance(v, np.ndarray) for v in inputs.values()):
        feeds = [inputs]
    elif isinstance(inputs, list) and inputs and all(isinstance(i, Mapping) for i in inputs):
        feeds, specs = inputs, inputs[0]
    dims, bounds = parsed_dynamic(dynamic)
    for reader in (plugins.frontend(frontend) if frontend else plugins.frontend_for(reference), plugins.frontend_for(candidate)):
        reader.require()  # before the first of them is read
    progress("reading the reference")
    first = runnable(reference, lambda reader, source: to_hub(reader, source, specs, dims), frontend, device)

    def read(reader: plugins.Frontend, source: Any) -> ir.Model:
        try:
            return to_hub(reader, source, specs, dims)
        except UsageError:
            constants = bound_inputs(first.hub)  # inputs that the conversion made constants
            left = {name: s for name, s in specs.items() if name not in constants} if isinstance(specs, Mapping) else specs
            if first.hub is None or (left == specs and isinstance(specs, Mapping)):
                raise
            named = left if isinstance(left, Mapping) and left else specs_of(first.hub)  # sizes and dtypes of the reference
            return to_hub(reader, source, named, dims)

    progress("reading the candidate")
    second = runnable(candidate, read, device=device)
    hub = first.hub or second.hub
    if hub is None:
        raise UsageError("cannot determine the inputs: pass the source model first, or give --inputs (inputs=)")
    return Pair(first, second, hub, feeds, bounds)
