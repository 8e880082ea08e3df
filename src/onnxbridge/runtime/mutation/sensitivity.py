"""How many planted faults a verification would have caught."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxbridge.runtime.mutation.fault import Fault


@dataclass(frozen=True)
class Sensitivity:
    """What a verification would have caught.

    Attributes:
        planted: the number of faults, without those that change no output.
        missed: the faults that would not have been caught.
        unreached: more faults, in weights that change no output at all on any sample: behind a ReLU that is always zero, or in a
            branch that is not taken. On other inputs they may.
        smallest_weight_error: the smallest relative error of a whole weight that is seen, the median over the planted ones;
            None where no output shows one.
        equivalent: how many more faults were planted that change no output by more than float32 rounds.
        possible: how many faults could have been planted.
    """

    planted: int
    missed: tuple[Fault, ...]
    unreached: tuple[Fault, ...]
    smallest_weight_error: float | None
    equivalent: int
    possible: int

    @property
    def caught(self) -> int:
        return self.planted - len(self.missed)

    @property
    def share(self) -> float:
        """The share of the planted faults that would have been caught, 1 where none was planted."""
        return self.caught / self.planted if self.planted else 1.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "planted": self.planted, "caught": self.caught, "equivalent": self.equivalent, "possible": self.possible,
            "smallest_weight_error": self.smallest_weight_error, "missed": [_described(f) for f in self.missed],
            "unreached": [_described(f) for f in self.unreached],
        }  # fmt: skip

    def __str__(self) -> str:
        faults = f"{self.caught} of {self.planted} planted fault" + ("s" if self.planted > 1 else "")
        text = f"would have caught {faults}"
        if self.smallest_weight_error is not None and self.smallest_weight_error < 1:
            text += f"; the smallest error of a weight that it sees is {_percent(self.smallest_weight_error)}"
        if self.unreached:
            text += f"; {len(self.unreached)} more are in weights that no sample reaches"
        return text


def _described(fault: Fault) -> dict[str, Any]:
    return {
        "kind": fault.kind, "operator": fault.op, "node": fault.node, "location": fault.location.as_dict(), "change": fault.text,
    }  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
