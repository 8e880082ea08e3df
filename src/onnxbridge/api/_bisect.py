"""`bisect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.api._early_checks import check_names
from onnxbridge.api._load import Progress, quiet
from onnxbridge.api._pair import read_pair
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
    samples: int = 3,
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

    pair = read_pair(reference, candidate, inputs, frontend, dynamic, imports, device, progress)
    check_names(pair.hub, rtol, atol, pair.bounds)
    first, second = pair.reference, pair.candidate
    runner = paired(first, second)
    report = verify_runners(
        pair.hub, first.runner, runner, feeds=pair.feeds, samples=samples, seed=seed,
        bounds=provenance.within_sizes(pair.hub, fixed_sizes(first, second) | dict(pair.bounds)), rtol=rtol, atol=atol,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip
    return bisect_pair(first, second, report, progress)
