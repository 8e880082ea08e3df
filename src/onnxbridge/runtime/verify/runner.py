"""One of the two models that a verification compares, and what happens when it fails to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import OnnxbridgeError, VerificationError, first_line

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Runner:
    """One of the two models that are compared.

    Attributes:
        run: takes inputs and returns outputs by the hub's names.
        unit: its unit roundoff, where that is larger than of the hub model's dtypes.
        quantized_unit: how far it is, relatively, from the numbers that it quantizes, where it computes with integers.
        finer: the same model without that rounding, where it can be run so.
        stored: runs the model with its weights as lossy compression stores them, where `run` uses the original ones.
        replayed: whether its outputs were computed before, so that every run gives the same random numbers.
        weak: why a comparison with this model proves little.
        main_line: the line of an error's message that gives the reason.
        has_empty_arrays: whether it runs on arrays without elements.
        run_traced: `Frontend.run_traced` of the source.
    """

    title: str
    run: Callable[[Arrays], Mapping[str, Any]]
    unit: float | None = None
    quantized_unit: float | None = None
    finer: Runner | None = None
    stored: Callable[[Arrays], Mapping[str, Any]] | None = None
    replayed: bool = False
    weak: str = ""
    main_line: Callable[[BaseException | str], str] = first_line
    has_empty_arrays: bool = True
    run_traced: Callable[[Arrays], Mapping[str, Any] | None] | None = None


def run(runner: Runner, feed: Arrays) -> Mapping[str, Any]:
    try:
        return runner.run(feed)
    except Exception as e:
        if isinstance(e, OnnxbridgeError) and e.exit_code != OnnxbridgeError.exit_code:
            raise
        shapes = ", ".join(f"{k}{list(np.shape(v))}" for k, v in feed.items()) or "no inputs"
        reason = f"{type(e).__name__}: {runner.main_line(e)}"
        raise VerificationError(f"{runner.title} cannot run the model on {shapes}: {reason}") from e
