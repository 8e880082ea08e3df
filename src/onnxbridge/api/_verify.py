"""`verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.api._early_checks import check_names
from onnxbridge.api._example_inputs import parsed_dynamic, parsed_inputs, specs_of
from onnxbridge.api._load import Progress, quiet, to_hub
from onnxbridge.errors import (
    UsageError,
)
from onnxbridge.runtime.verify.pairing import fixed_sizes, paired, runnable
from onnxbridge.runtime.verify.report import Report
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Tolerances, verify_runners


def verify(
    reference: Any,
    candidate: Any,
    inputs: Any = None,
    *,
    frontend: str | None = None,
    dynamic: Any = None,
    imports: str | Sequence[str] | None = None,
    rtol: Tolerances = None,
    atol: Tolerances = None,
    max_drift: float | None = None,
    samples: int = 3,
    seed: int = 0,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    progress: Progress = quiet,
) -> Report:
    """Run two models on the same inputs and compare every output.

    Args:
        reference, candidate: live models or paths. Inputs and outputs are paired by name, or by position if the names differ.
        inputs: {name: array}, or a list of such dicts, to run on; or specifications as for `convert`, for which random samples
            are drawn.

    The other arguments are those of `convert`.

    Returns:
        A `Report`. A model that computes something else is no exception here: see `report.verdict`.

    Raises:
        UsageError: if the models, names or inputs do not match.
        VerificationError: if one of the two models cannot be run.
        LimitError: if verification takes too long.
    """
    from onnxbridge.hub.ir import provenance
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
            if first.hub is None or (left == specs and specs is not None):
                raise
            return to_hub(reader, source, left or specs_of(first.hub), dims)  # a source without sizes uses the reference's

    progress("reading the candidate")
    second = runnable(candidate, read, device=device)
    hub = first.hub or second.hub
    if hub is None:
        raise UsageError("cannot determine the inputs: pass the source model first, or give --inputs (inputs=)")
    check_names(hub, rtol, atol, bounds)
    return verify_runners(
        hub, first.runner, paired(first, second), feeds=feeds, samples=samples, seed=seed,
        bounds=provenance.within_sizes(hub, fixed_sizes(first, second) | bounds), rtol=rtol, atol=atol, max_drift=max_drift,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip
