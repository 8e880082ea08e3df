"""How far lossy compression of weights, or arithmetic in lower precision, moves a model's outputs.

No tolerance can separate that from errors: one that is derived from the loss itself allows whatever is lost. So it is measured,
and limited by a number that users see and set. docs/verification.md has the measurements that the default limits come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.compare import PROVES_LITTLE, Comparison, result_array
from onnxbridge.runtime.verify.runner import Runner

MAX_DRIFT = 0.1
"""How far an output may move by default, as a share of its range; more fails."""
SAFE_DRIFT = 0.02
"""Up to here no class changed in any measurement on real inputs. Whether a model that moves further is usable, its user knows."""


_SELECTING = frozenset({"ArgMax", "ArgMin", "Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"})
_MOST_JUMPING = 0.2


def cause_of(reference: Runner, candidate: Runner, max_drift: float | None) -> str:
    """What moves the outputs, "" where nothing should: then the tolerance decides.

    With a limit by the user, any two models may be compared by drift alone, such as a float model and a quantized one.
    """
    if candidate.stored is not None:
        return "compression"
    if reference.unit or candidate.unit:
        return "lower precision"
    return "the candidate" if max_drift is not None else ""


def jumping_shares(model: ir.Model, cause: str, comparisons: Sequence[Comparison]) -> dict[str, float]:
    """By output, the share of elements that lower precision may replace by others, in models that select elements."""
    if cause != "lower precision" or not any(node.op_type in _SELECTING for node in model.graph.all_nodes()):
        return {}
    return {c.name: min(c.tolerance.mismatches, _MOST_JUMPING) for c in comparisons}


def weaknesses(drifts: Mapping[str, float], cause: str, samples_are_random: bool) -> list[str]:
    """Why drift below the default limit proves little."""
    found = {name: share for name, share in drifts.items() if SAFE_DRIFT < share <= MAX_DRIFT}
    if not found:
        return []
    moved = ", ".join(f"{name} by {share:.1%}" for name, share in found.items())
    data = "; --data measures it on real inputs" if samples_are_random else ""
    accepts = f"--max-drift {max(found.values()) * 1.1:.1%} (max_drift=) accepts it"
    return [f"{cause} moves {moved} of its range, beyond {SAFE_DRIFT:.0%}, from where on classes may change; {accepts}{data}"]


class Drift:
    """Measures the distance of each output from its reference over all samples."""

    def __init__(self) -> None:
        self._distances: dict[str, float] = {}
        self._spans: dict[str, tuple[float, float]] = {}

    def add(self, reference: Mapping[str, Any], stored: Mapping[str, Any], jumping: Mapping[str, float] | None = None) -> None:
        """Add one sample: the reference's outputs, and those of the model with compressed weights or in lower precision.

        `jumping`: by output, the share of elements that are left out, since the model selects others.
        """
        for name, value in reference.items():
            a, b = result_array(value), result_array(stored.get(name))
            if a.dtype.kind in "biufV" and a.shape == b.shape and a.size:
                a, b = a.astype(np.float64), b.astype(np.float64)
                finite = np.isfinite(a)
                distance = np.nan_to_num(np.abs(b[finite] - a[finite]), nan=np.inf, posinf=np.inf)
                if share := (jumping or {}).get(name, 0.0):
                    distance = np.sort(distance)[: max(distance.size - int(share * distance.size), 1)]
                self._distances[name] = max(self._distances.get(name, 0.0), float(distance.max(initial=0.0)))
                low, high = self._spans.get(name, (np.inf, -np.inf))
                self._spans[name] = min(low, a[finite].min(initial=np.inf)), max(high, a[finite].max(initial=-np.inf))

    def shares(self, within: Collection[str] = ()) -> dict[str, float]:
        """The largest distance of each output as a share of the reference's range, or of its magnitude where that is constant. An
        output of zeros has neither: 0 for those that are `within` their tolerances."""
        found = {}
        for name, distance in self._distances.items():
            low, high = self._spans[name]
            scale = high - low if high > low else abs(high)
            is_zero = distance == 0 or (not scale and name in within)
            found[name] = 0.0 if is_zero else float(distance / scale) if scale else np.inf
        return found


def with_drift(output: Comparison, share: float | None) -> Comparison:
    """An output with its drift. How wide its tolerance is says nothing where the drift is limited."""
    if share is None or output.span is None or output.span[0] == output.span[1]:
        return replace(output, drift=share)
    notes = tuple(n for n in output.notes if not n.endswith(PROVES_LITTLE))
    return replace(output, drift=share, weak="", notes=notes)
