"""The tolerance of one output from the noise that was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.verify.compare import Tolerance
from onnxbridge.runtime.verify.rounding.noise import Noise, epsilon

# Correct implementations sum in other orders (blocked, fused, Winograd) than our executor, each with its own error: the fastest
# convolution algorithms lose up to 15 times what direct summation loses.
ORDERS = 16
# Simulated low precision rounds after each ONNX operator; the real implementation may have several operators for one.
OPERATORS = 6
# The share of elements that may differ is scaled up by ORDERS to at most this one, unless twice the measured share is larger.
FEW = 0.1
# Units in the last place that any output may differ by: a last division rounded otherwise, for example.
ULPS = 4
# With noise of the full allowed size, or sums in sequence, each of the two models may be as far off as the runs were.
MODELS = 2
# The default by the size of the dtype in bytes: absolute and relative.
_DEFAULTS = {2: (2e-3, 2e-2), 4: (1e-5, 1e-3), 8: (1e-9, 1e-7)}


def default_tolerance(dtype: np.dtype[Any], reason: str) -> Tolerance:
    """The tolerance of an output of which nothing was measured, for this reason."""
    atol, rtol = _DEFAULTS.get(dtype.itemsize, _DEFAULTS[4]) if epsilon(dtype) else (0.0, 0.0)
    return Tolerance(atol, rtol, origin=f"default, since {reason}")


def derived_tolerance(
    dtype: np.dtype[Any],
    rounding: Noise,
    in_sequence: Noise,
    low_precision: Noise,
    choices: Noise,
    seen: Sequence[np.ndarray[Any, Any]],
    *,
    unit: float | None,
    quantizes: bool,
    has_errors_of_one: bool,
    is_quantized: bool = False,
    ties: float = 0.0,
) -> Tolerance:
    """The tolerance that follows from the noise of rounding, of long sums in sequence, of simulated low precision and of other
    choices.

    `seen` are the values of the runs with other choices; `unit` is the unit roundoff of a lower precision in which one of the
    two models computes, else None; `is_quantized` says that integers count steps of a quantization, and `ties` is the share of
    elements that depend on the choice among equal numbers.
    """
    eps = epsilon(dtype)
    share_of_choices = min(MODELS * choices.share, 1.0)
    candidates = np.unique(np.concatenate(seen).astype(np.float64)) if share_of_choices else np.zeros(0)
    twice = 2 * max(rounding.share, in_sequence.share, low_precision.share)
    share = min(max(twice, min(ORDERS * rounding.share, FEW)), 1.0)
    tied = min(MODELS * ties, 1.0)
    share = max(share, tied)
    if not eps and is_quantized:
        steps = MODELS * max(rounding.distance, in_sequence.distance, low_precision.distance)
        return Tolerance(steps, 0.0, origin="derived")
    if not eps:
        return Tolerance(0.0, 0.0, mismatches=share, origin="derived", choices=share_of_choices, seen=candidates, ties=tied)
    scale = max(rounding.scale, 1.0) if has_errors_of_one else rounding.scale
    # a model of lower precision rounds its last operator by more, too
    last_operator = ULPS * max(eps, 2 * unit if unit else 0.0)
    distance = max(ORDERS * rounding.distance, MODELS * in_sequence.distance, OPERATORS * low_precision.distance)
    if quantizes:
        distance = MODELS * max(rounding.distance, in_sequence.distance, low_precision.distance)
    rtol = max(last_operator, ORDERS * rounding.masked, MODELS * in_sequence.masked, OPERATORS * low_precision.masked)
    return Tolerance(distance + last_operator * scale, rtol, share, "derived", share_of_choices, candidates, tied)
