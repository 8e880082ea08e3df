"""`bisect`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxbridge import plugins
from onnxbridge.api._arguments.data import sampling, specs_and_samples
from onnxbridge.api._arguments.example_inputs import parsed_dynamic
from onnxbridge.api._low_precision import is_low_precision, low_precision, other_precision
from onnxbridge.api._pair import Reader, described_inputs, require
from onnxbridge.progress import Progress, quiet, with_progress
from onnxbridge.runtime.bisect.bisect import bisect_pair
from onnxbridge.runtime.bisect.bisection import Bisection
from onnxbridge.runtime.verify.pairing import fixed_sizes, paired, paired_names
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Tolerances, verify_runners


@with_progress
def bisect(
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
    suggest: bool = False,
    data: Any = None,
    samples: int | None = None,
    seed: int = 0,
    device: str = "auto",
    time_limit: float | None = SECONDS,
    progress: Progress = quiet,
) -> Bisection:
    """Find the first value at which two models differ by more than rounding explains, although everything before it agrees.

    The models are compared as by `verify`. Where they disagree, the graph of each runs in float64 on the sample that shows it, so
    that what is left are differences of the computation and not of rounding. Values are paired by name if the two graphs share
    their names, otherwise by what they hold.

    A candidate that computes in lower precision (float16, quantized, compressed weights) differs everywhere. `.operators` has the
    operators that add error, in place of a first divergence, unless its program differs in float32, too.

    Args:
        suggest: for a candidate of lower precision, search for operators to keep in float32 so that its outputs are off by at
            most `max_drift` of their range (0.01 by default). A model that onnxbridge converted is converted again with them and
            verified; of a file of another tool, the nodes are run in float32: `.suggestion`.

    The other arguments are those of `verify`.

    Returns:
        A `Bisection`: `.first` is where the two diverge, None if they agree; `.save(folder)` writes a minimal reproduction.

    Raises:
        UsageError: if the models, names or inputs do not match.
        VerificationError: if one of the two models cannot be run.
        LimitError: if verification takes too long.
    """
    plugins.import_modules(imports)
    specs, given = specs_and_samples(inputs, data, samples)
    dims, bounds = parsed_dynamic(dynamic)
    require(frontend, reference, candidate)
    reader = Reader(specs, given, dims, device)
    progress("reading the reference")
    first = reader.reference(reference, frontend)
    progress("reading the candidate")
    second = reader.candidate(candidate, first)
    hub = described_inputs(first, second)
    runner = paired(first, second)
    sampled = sampling(given, hub, bounds, samples, seed, rtol, atol, fixed=fixed_sizes(first, second))
    report = verify_runners(hub, first.runner, runner, **sampled, time_limit=time_limit, progress=progress, mutants=0)
    report = replace(report, names=paired_names(first, second))
    low = None
    if is_low_precision(runner, report):
        low = low_precision(
            first, second, runner, report, suggest=suggest, limit=max_drift, device=device, time_limit=time_limit,
            progress=progress, source=str(reference) if isinstance(reference, (str, os.PathLike)) else "MODEL",
        )  # fmt: skip
    if low is None:
        low = other_precision(first, second, runner, report, suggest=suggest, limit=max_drift, progress=progress)
    if low is not None:
        return Bisection(report, operators=low.errors, suggestion=low.suggestion)
    return bisect_pair(first, second, report, progress)
