"""`bisect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge import plugins
from onnxbridge.api._data import SAMPLES, run_on, specs_and_samples
from onnxbridge.api._early_checks import check_names
from onnxbridge.api._example_inputs import parsed_dynamic
from onnxbridge.api._load import Progress, quiet
from onnxbridge.api._pair import Reader, described_inputs, require
from onnxbridge.runtime.bisect.bisect import bisect_pair
from onnxbridge.runtime.bisect.bisection import Bisection
from onnxbridge.runtime.verify.pairing import fixed_sizes, paired
from onnxbridge.runtime.verify.time_limit import SECONDS
from onnxbridge.runtime.verify.verification import Tolerances, verify_runners


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

    The arguments are those of `verify`.

    Returns:
        A `Bisection`: `.first` is where the two diverge, None if they agree; `.save(folder)` writes a minimal reproduction.

    Raises:
        UsageError: if the models, names or inputs do not match.
        VerificationError: if one of the two models cannot be run.
        LimitError: if verification takes too long.
    """
    from onnxbridge.hub.ir import provenance

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
    check_names(hub, rtol, atol, bounds)
    report = verify_runners(
        hub, first.runner, paired(first, second), **run_on(given, hub, bounds), samples=samples or SAMPLES, seed=seed,
        bounds=provenance.within_sizes(hub, {**fixed_sizes(first, second), **bounds}), rtol=rtol, atol=atol,
        time_limit=time_limit, progress=progress, mutants=0,
    )  # fmt: skip
    return bisect_pair(first, second, report, progress)
