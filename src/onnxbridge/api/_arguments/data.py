"""The inputs that models are run on: the user's own (`data`, or arrays among the `inputs` of `verify`) or random ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge import plugins
from onnxbridge.api._arguments.early_checks import check_names
from onnxbridge.api._arguments.example_inputs import parsed_inputs
from onnxbridge.api._load import to_hub
from onnxbridge.errors import UsageError
from onnxbridge.hub.ir import provenance
from onnxbridge.runtime.verify.samples.check_data import checked_samples
from onnxbridge.runtime.verify.samples.data import read_data
from onnxbridge.runtime.verify.samples.random_inputs import Bounds
from onnxbridge.runtime.verify.samples.samples_file import Sample

_OF_EXAMPLE = "onnxbridge.sizes_of_example"


def specs_and_samples(inputs: Any, data: Any, samples: int | None) -> tuple[Any, list[Sample] | None]:
    """The `inputs` for the frontend, and the samples to run on where `data` or arrays are given.

    Raises:
        UsageError: if both are given, or if there are no samples in `data`.
    """
    one = isinstance(inputs, Mapping) and inputs and all(isinstance(v, np.ndarray) for v in inputs.values())
    several = isinstance(inputs, list) and inputs and all(isinstance(i, Mapping) for i in inputs)
    if not one and not several:
        return parsed_inputs(inputs), None if data is None else read_data(data, samples)
    if data is not None:
        raise UsageError("the arrays to run on are given twice, as inputs and as data: pass one of them")
    return None, read_data(inputs, samples)


def reading(specs: Any, given: Sequence[Sample] | None) -> Callable[..., ir.Model]:
    """`to_hub` with these specifications. Where there are none and the source needs example inputs, the first sample is one."""

    def read(reader: plugins.Frontend, source: Any, *dims_and_options: Any) -> ir.Model:
        try:
            return to_hub(reader, source, specs, *dims_and_options)
        except UsageError:
            if specs is not None or not given:
                raise
        hub = to_hub(reader, source, dict(given[0].inputs), *dims_and_options)
        hub.meta[_OF_EXAMPLE] = True
        return hub

    return read


def sampling(
    given: Sequence[Sample] | None, hub: ir.Model, bounds: Bounds, samples: int | None, seed: int, rtol: Any, atol: Any, *,
    fixed: Bounds | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The arguments of `verify_runners` that say what the models run on and which tolerances replace the derived ones.

    `bounds` are the user's own, `fixed` those of sizes that a model under comparison fixes.

    Raises:
        UsageError: if a tolerance or a bound names nothing in the model, or the samples do not fit it.
    """
    check_names(hub, rtol, atol, bounds)
    within = provenance.within_sizes(hub, {**(fixed or {}), **bounds})
    return {
        **run_on(given, hub, bounds), "samples": samples, "seed": seed, "bounds": within, "rtol": rtol, "atol": atol,
    }  # fmt: skip


def run_on(given: Sequence[Sample] | None, hub: ir.Model, bounds: Bounds) -> dict[str, Any]:
    """The samples as arguments of `verify_runners`.

    Raises:
        UsageError: if they do not fit the model.
    """
    if given is None:
        return {}
    advice = ""
    if hub.meta.get(_OF_EXAMPLE):
        spec = '"x:float32[N,4]"'
        advice = f"; the sizes are those of sample 1: name those that vary, as in --inputs {spec} (inputs=)"
    found = checked_samples(given, hub, bounds, advice)
    return {"feeds": [sample.inputs for sample in found], "sample_names": [sample.name for sample in found]}
