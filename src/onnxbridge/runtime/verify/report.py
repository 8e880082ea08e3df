"""What a verification found, as text and as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from onnxbridge.diagnostics import one_line
from onnxbridge.errors import VerificationError
from onnxbridge.runtime.mutation.sensitivity import Sensitivity
from onnxbridge.runtime.verify.compare import Comparison
from onnxbridge.runtime.verify.compression_drift import MAX_DRIFT
from onnxbridge.runtime.verify.drawn_elements import Pairs
from onnxbridge.runtime.verify.layer_error import LayerError
from onnxbridge.runtime.verify.metrics.metric import Metric

_MOST_SHOWN = 6


@dataclass(frozen=True)
class Report:
    """What a verification found.

    Attributes:
        outputs: one comparison for each output, over all samples.
        sizes: the input shapes of each sample.
        weak: why the verification as a whole proves little, whatever its outputs.
        feeds: the inputs of each sample.
        max_drift: how far lossy compression or lower precision may move an output, as a share of its range.
        drift_cause: what moves it: "compression", "lower precision", or "the candidate" where only drift is limited.
        metrics: those that were requested, with their limits.
        varied_sizes: the dynamic sizes that differed between the samples, with their values.
        sample_names: of the user's own samples, such as their files; empty for random ones.
        sensitivity: how many planted faults it would have caught; None where none was planted.
        weak_outputs: which outputs prove little, whatever the others prove, and why.
        drawn: some elements of each output, of the reference and of the candidate.
        layers: the error of each layer, if it was measured (`layers=True`).
        names: the candidate's name of each input and output, by the reference's.
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
    drift_cause: str = ""
    sample_names: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    varied_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sensitivity: Sensitivity | None = None
    weak_outputs: tuple[str, ...] = ()
    drawn: Pairs = field(default_factory=dict, repr=False, compare=False)
    layers: tuple[LayerError, ...] = field(default=(), repr=False, compare=False)
    names: Mapping[str, str] = field(default_factory=dict)

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
        """Whether every output agrees on every sample, none drifts by more than `max_drift`, and every metric keeps its limit."""
        return bool(self.outputs) and all(o.passed for o in self.outputs) and not self.drifted and not self.beyond_limits

    @property
    def drifted(self) -> tuple[str, ...]:
        """The outputs that compression or lower precision moves by more than `max_drift`."""
        return tuple(o.name for o in self.outputs if o.drift is not None and not o.drift <= self.max_drift)

    @property
    def beyond_limits(self) -> tuple[str, ...]:
        """The metrics that exceed their limits, in words."""
        found = ((o, m, o.metrics[m.name]) for o in self.outputs for m in self.metrics if m.name in o.metrics)
        return tuple(f"{o.name}: {m.described(value)}" for o, m, value in found if not m.keeps(value))

    @property
    def worst_feed(self) -> Mapping[str, Any]:
        """The inputs of the sample on which the outputs differ most."""
        failed = [o for o in self.outputs if not o.passed]
        worst = max(failed, key=lambda o: o.excess, default=None)
        return self.feeds[0 if worst is None or worst.worst is None else worst.worst.sample]

    @property
    def limit_exceeded(self) -> str:
        """Why the verdict is FAILED although every output agrees within its tolerance: which limit is exceeded, and what allows
        it. "" otherwise."""
        if not all(o.passed for o in self.outputs):
            return ""
        if self.beyond_limits:
            return f"a limit is exceeded: {'; '.join(self.beyond_limits)}"
        if not self.drifted:
            return ""
        moved = ", ".join(f"{o.name} by {o.drift:.0%} of its range" for o in self.outputs if o.name in self.drifted)
        most = max(o.drift or 0.0 for o in self.outputs)
        return f"{self.drift_cause} moves {moved}; --max-drift {most * 1.1:.2g} (max_drift=) allows it"

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """Why agreement proves little: reasons of the whole verification, of single outputs, and of all where all are weak."""
        all_weak = [f"output {o.name}: {o.weak}" for o in self.outputs] if all(o.weak for o in self.outputs) else []
        return (*list(dict.fromkeys([*self.weak_outputs, *all_weak]))[:_MOST_SHOWN], *self.weak)

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict, "passed": self.passed, "weak": list(self.weaknesses), "reference": self.reference,
            "candidate": self.candidate, "samples": self.samples, "seed": self.seed, "seconds": round(self.seconds, 3),
            "max_drift": self.max_drift, "drift_cause": self.drift_cause,
            "limits": {m.name: m.limit for m in self.metrics if m.limit is not None},
            "beyond_limits": list(self.beyond_limits), "notes": list(self.notes),
            "inputs": [{k: list(v) for k, v in s.items()} for s in self.sizes], "sample_names": list(self.sample_names),
            "varied_sizes": {name: list(sizes) for name, sizes in self.varied_sizes.items()},
            "sensitivity": self.sensitivity.as_dict() if self.sensitivity is not None else None,
            "names": dict(self.names), "outputs": [o.as_dict() for o in self.outputs],
        }  # fmt: skip

    def __repr__(self) -> str:
        counted = [(self.samples, "sample"), (len(self.outputs), "output")]
        counts = ", ".join(f"{n} {what}{'s' if n != 1 else ''}" for n, what in counted)
        return one_line(f"Report({self.verdict}: {self.reference} against {self.candidate}, {counts})")

    def _repr_html_(self) -> str:
        from onnxbridge.reports.notebook import html_of

        return html_of(self, "verify")

    def __str__(self) -> str:
        samples = f"{self.samples} sample" + ("s" if self.samples != 1 else "")
        inputs = "given inputs" if self.seed is None else f"seed {self.seed}"
        models = one_line(f"{self.reference} against {self.candidate}")
        lines = [f"{self.verdict:6}  {models}: {samples}, {inputs}, {self.seconds:.1f} s"]
        if self.varied_sizes:
            sizes = [f"{name} = {', '.join(map(str, values))}" for name, values in self.varied_sizes.items()]
            lines.append(f"  sizes varied: {one_line('; '.join(sizes))}")
        lines += [f"  weak: {one_line(reason)}" for reason in self.weaknesses]
        for o in self.outputs:
            mark = "ok  " if o.passed and o.name not in self.drifted else "FAIL"
            allowed = f"{o.tolerance.atol:.2g}" + (f" + {o.tolerance.rtol:.2g} relative" if o.tolerance.rtol else "")
            if o.tolerance.mismatches:
                allowed += f" or {o.tolerance.mismatches:.2%} of the elements"
            if o.tolerance.atol == inf:
                allowed = "any difference within the drift"
            lines.append(
                f"  {mark} {one_line(o.name)} {o.dtype}{list(o.shape)}: max abs {o.max_abs:.2g}, max rel {o.max_rel:.2g}"
                f" (allowed {allowed}, {one_line(o.tolerance.origin)})"
            )
            if not o.passed and o.worst is not None:
                at, values = list(o.worst.index), f"{o.worst.candidate!r} instead of {o.worst.reference!r}"
                file = self.sample_names[o.worst.sample] if self.sample_names else ""
                sample = f"{o.worst.sample + 1} ({one_line(file)})" if file else str(o.worst.sample + 1)
                lines.append(f"       worst: sample {sample}, element {at}: {one_line(values)}")
            if o.metrics:
                measured = [(m, o.metrics[m.name]) for m in self.metrics if m.name in o.metrics]
                texts = [m.described(value) + ("" if m.keeps(value) else " FAIL") for m, value in measured]
                lines.append(f"       {one_line(', '.join(texts))}")
            if o.drift is not None:
                lines.append(f"       {self.drift_cause} moves it by {o.drift:.2%} of its range (allowed {self.max_drift:.2%})")
            lines += [f"       note: {one_line(n)}" for n in o.notes]
        if self.sensitivity is not None:
            lines.append(f"  {self.sensitivity}")
            for title, faults in (("not caught", self.sensitivity.missed), ("not reached", self.sensitivity.unreached)):
                lines += [f"       {title}: {one_line(str(fault))}" for fault in faults[:_MOST_SHOWN]]
                lines += [f"       and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
        return "\n".join([*lines, *(f"  note: {one_line(n)}" for n in self.notes)])


def weakness(report: Report) -> VerificationError | None:
    """The error of a strict verification: why agreement proves little; None where it proves enough."""
    if report.verdict != "WEAK":
        return None
    reasons = "; ".join(map(one_line, report.weaknesses))
    return VerificationError(f"the verification is weak, which --strict (strict=) does not allow: {reasons}", report)
