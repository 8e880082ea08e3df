"""What a verification found, as text and as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.runtime.verify.compare import Comparison

MAX_DRIFT = 0.1
"""How far lossy compression may move an output by default, as a share of the output's range."""
_MOST_SHOWN = 6


@dataclass(frozen=True)
class Report:
    """What a verification found.

    Attributes:
        outputs: one comparison for each output, over all samples.
        sizes: the input shapes of each sample.
        weak: why the verification as a whole proves little, whatever its outputs.
        max_drift: how far lossy compression may move an output, as a share of its range.
        feeds: the inputs of each sample.
    """

    reference: str
    candidate: str
    outputs: tuple[Comparison, ...]
    samples: int
    seed: int | None
    sizes: tuple[Mapping[str, tuple[int, ...]], ...]
    seconds: float
    notes: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    max_drift: float = MAX_DRIFT
    feeds: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)

    @property
    def verdict(self) -> str:
        """"PASSED", "FAILED", or "WEAK": the outputs agree, which proves little for the reasons in `weaknesses`."""
        return "FAILED" if not self.agrees else "WEAK" if self.weaknesses else "PASSED"

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASSED."""
        return self.verdict == "PASSED"

    @property
    def agrees(self) -> bool:
        """Whether every output agrees on every sample and compression moves none by more than `max_drift`."""
        return bool(self.outputs) and all(o.passed for o in self.outputs) and not self.drifted

    @property
    def drifted(self) -> tuple[str, ...]:
        """The outputs that compression moves by more than `max_drift`."""
        return tuple(o.name for o in self.outputs if o.drift is not None and not o.drift <= self.max_drift)

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """Why agreement proves little: the reasons of the whole verification, and of its outputs where all are weak."""
        if not all(o.weak for o in self.outputs):
            return self.weak
        return (*self.weak, *(f"output {o.name}: {o.weak}" for o in self.outputs[:_MOST_SHOWN]))

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "passed": self.passed, "weak": list(self.weaknesses), "reference": self.reference,
            "candidate": self.candidate, "samples": self.samples, "seed": self.seed, "seconds": round(self.seconds, 3),
            "max_drift": self.max_drift, "notes": list(self.notes),
            "inputs": [{k: list(v) for k, v in s.items()} for s in self.sizes], "outputs": [o.as_dict() for o in self.outputs],
        }  # fmt: skip

    def __str__(self) -> str:
        inputs = "given inputs" if self.seed is None else f"seed {self.seed}"
        models = one_line(f"{self.reference} against {self.candidate}")
        lines = [f"{self.verdict:6}  {models}: {self.samples} samples, {inputs}, {self.seconds:.1f} s"]
        lines += [f"  weak: {one_line(reason)}" for reason in self.weaknesses]
        for o in self.outputs:
            mark = "ok  " if o.passed and o.name not in self.drifted else "FAIL"
            allowed = f"{o.tolerance.atol:.2g}" + (f" + {o.tolerance.rtol:.2g} relative" if o.tolerance.rtol else "")
            if o.tolerance.mismatches:
                allowed += f" or {o.tolerance.mismatches:.2%} of the elements"
            lines.append(
                f"  {mark} {one_line(o.name)} {o.dtype}{list(o.shape)}: max abs {o.max_abs:.2g}, max rel {o.max_rel:.2g}"
                f" (allowed {allowed}, {one_line(o.tolerance.origin)})"
            )
            if not o.passed and o.worst is not None:
                at, values = list(o.worst.index), f"{o.worst.candidate!r} instead of {o.worst.reference!r}"
                lines.append(f"       worst: sample {o.worst.sample + 1}, element {at}: {one_line(values)}")
            if o.drift is not None:
                lines.append(f"       compression moves it by {o.drift:.2%} of its range (allowed {self.max_drift:.2%})")
            lines += [f"       note: {one_line(n)}" for n in o.notes]
        return "\n".join([*lines, *(f"  note: {one_line(n)}" for n in self.notes)])
