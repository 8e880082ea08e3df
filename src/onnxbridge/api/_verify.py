"""`verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.api._early_checks import check_names
from onnxbridge.api._load import Progress, quiet
from onnxbridge.api._pair import read_pair
from onnxbridge.runtime.verify.pairing import fixed_sizes, paired
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

    pair = read_pair(reference, candidate, inputs, frontend, dynamic, imports, device, progress)
    check_names(pair.hub, rtol, atol, pair.bounds)
    first, second = pair.reference, pair.candidate
    return verify_runners(
        pair.hub, first.runner, paired(first, second), feeds=pair.feeds, samples=samples, seed=seed,
        bounds=provenance.within_sizes(pair.hub, fixed_sizes(first, second) | dict(pair.bounds)), rtol=rtol, atol=atol,
        max_drift=max_drift, time_limit=time_limit, progress=progress,
    )  # fmt: skip
