"""How many planted faults a verification would have caught, from its own samples and tolerances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnxbridge.errors import first_line
from onnxbridge.runtime.mutation.measure import Executors, Feeds, Sample, measure
from onnxbridge.runtime.mutation.sensitivity import Sensitivity
from onnxbridge.runtime.verify.compare import Comparison
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.samples.random_inputs import samples_for
from onnxbridge.runtime.verify.samples.sizes import sizes_of

SHARE = 0.8
"""What planted faults may take, as a share of the operations that deriving the tolerance took."""

FRESH = 2
"""The number of further samples that show whether a fault changes anything."""


def measured_sensitivity(
    model: ir.Model, estimator: Rounding, feeds: Sequence[Feeds], found: Mapping[str, Sequence[Comparison]], mutants: int | None,
    seed: int,
) -> tuple[Sensitivity | None, str]:  # fmt: skip
    """What the comparisons in `found`, one for each sample of each output, would have caught.

    Returns:
        The sensitivity, None where no fault can be planted or the executor cannot run the model, and a note on what went wrong.
    """
    executors = estimator.executors
    if executors is None or mutants == 0:
        return None, ""
    samples = []
    for i, feed in enumerate(feeds):
        here = {name: comparisons[i].tolerance for name, comparisons in found.items() if i < len(comparisons)}
        samples.append(Sample(feed, {name: t for name, t in here.items() if t.origin != "statistical"}))

    def fresh() -> Sequence[Feeds]:
        sizes = {name: (size, size) for name, size in sizes_of(model.graph, feeds[0]).items()}
        try:
            return samples_for(model.graph, FRESH, seed + 1, sizes)
        except Exception:  # sizes of the user's own inputs that random inputs cannot have
            return []

    own, exact = executors
    work = int(SHARE * estimator.work)
    runners = Executors(own, exact, estimator.work_of_a_run)
    try:
        return measure(model, runners, samples, fresh, mutants=mutants, work=work), ""
    except Exception as e:  # the comparison itself is done, and right
        return None, f"no faults were planted, since that fails with {type(e).__name__}: {first_line(e)}"
