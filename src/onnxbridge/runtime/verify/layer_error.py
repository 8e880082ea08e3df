"""The error of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxbridge.diagnostics import SourceLocation


@dataclass(frozen=True)
class LayerError:
    """How far one value of the candidate is from the reference's.

    Attributes:
        name: of the value, as the reference calls it.
        op, location: the operator that computes it, and its source line, module path or node name.
        error: the largest relative difference between statistics of the two tensors (means, also along each axis, powers,
            extremes): 0 for equal tensors, about 1 for unrelated ones. It does not depend on the order of axes.
        rounding: the same between the reference's run in float64 and in its own precision.
    """

    name: str
    op: str
    location: SourceLocation
    error: float
    rounding: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "op": self.op, "location": self.location.as_dict(), "error": self.error, "rounding": self.rounding,
        }  # fmt: skip
