"""The distance between runs of a model that round differently, and the inputs of such runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.compare import result_array

# An element jumps if it moves JUMP times as far as the lowest decile of the elements that move, in the run that moves them least,
# and by more than these shares of itself and of the largest element.
JUMP, OF_ITSELF, OF_LARGEST = 32, 1 / 32, 1 / 256
# Elements MASKED times as large as 1 and as all others represent infinity, as in attention masks: float32 has 24 bits, so a sum
# with them leaves almost nothing of the others. They have a tolerance of their own.
MASKED = 2.0**20


@dataclass(frozen=True)
class Noise:
    """What was measured of one output.

    Attributes:
        distance: the largest distance of an element, without those that jump.
        scale: the largest magnitude.
        share: the share of elements that jump or, in an integer output, that differ.
        masked: the largest relative distance of the elements that represent infinity.
        resized: whether the output's size depends on rounding.
    """

    distance: float = 0.0
    scale: float = 0.0
    share: float = 0.0
    masked: float = 0.0
    resized: bool = False

    def combined(self, other: Noise) -> Noise:
        return Noise(*map(max, astuple(self), astuple(other)))


def epsilon(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of the dtype, 0 for exact dtypes."""
    if dtype.kind in "biuUSO" or ir.DataType.from_numpy(dtype).is_integer():  # 4 bits are of no kind that NumPy has
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def moved_by_rounding(array: np.ndarray[Any, Any], rng: np.random.Generator, exact: Sequence[Any] = ()) -> np.ndarray[Any, Any]:
    """Floating-point inputs moved up or down by half of eps, as float64, except numbers in `exact`.

    Dtypes of 8 bits and fewer only store numbers, which operators convert before they compute.
    """
    eps = epsilon(array.dtype)
    if not eps or array.dtype.itemsize == 1:
        return array
    wide = array.astype(np.float64)
    moved = wide * (1 + eps * rng.choice([-0.5, 0.5], wide.shape))
    return np.asarray(np.where(np.isin(wide, np.asarray(exact, np.float64)), wide, moved) if len(exact) else moved)


def noise_between(exact: Any, others: Sequence[Any], whole: bool = False) -> Noise:
    """The distance of other runs from the exact one; with `whole`, elements that jump count as others do."""
    a = result_array(exact)
    runs = [result_array(other) for other in others]
    found = Noise(resized=any(run.shape != a.shape for run in runs))
    runs = [run for run in runs if run.shape == a.shape]
    if not a.size or not runs:
        return found
    if a.dtype == bool or a.dtype.kind in "USOiu":
        steps = [np.abs(a.astype(np.float64) - run.astype(np.float64)).max() for run in runs] if a.dtype.kind in "iu" else [0.0]
        return found.combined(Noise(float(max(steps)), share=max(float(np.mean(a != run)) for run in runs)))
    a = a.astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore"):
        distances = [np.abs(a - run.astype(np.float64).reshape(-1)) for run in runs]
    masked = _masked(np.abs(a))
    for d in distances:
        with np.errstate(invalid="ignore"):
            relative = d[masked] / np.abs(a[masked])
        chosen = (relative > OF_ITSELF) & (not whole)  # whether it is masked depends on rounding
        still = relative[~chosen & np.isfinite(relative)].max(initial=0.0)
        found = found.combined(Noise(share=float(chosen.sum()) / masked.size, masked=float(still)))
    a, distances = a[~masked], [d[~masked] for d in distances]
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    found = found.combined(Noise(scale=scale))
    moved_at = [np.flatnonzero(np.isfinite(d) & (d > 0)) for d in distances]
    usual = min((float(np.quantile(d[at], 0.1)) for d, at in zip(distances, moved_at, strict=True) if at.size), default=0.0)
    for d, at in zip(distances, moved_at, strict=True):
        moved = d[at]
        jumps = (moved > JUMP * usual) & (moved > OF_ITSELF * np.abs(a[at])) & (moved > OF_LARGEST * scale) & (not whole)
        found = found.combined(Noise(float(moved[~jumps].max(initial=0.0)), scale, float(jumps.sum()) / masked.size))
    return found


def _masked(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which elements represent infinity."""
    ordered = np.unique(sizes[np.isfinite(sizes)])
    beyond = np.flatnonzero(ordered[1:] >= MASKED * np.maximum(ordered[:-1], 1.0))
    return sizes >= ordered[beyond[0] + 1] if beyond.size else np.zeros(sizes.shape, bool)
