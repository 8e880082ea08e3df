"""Runs an ONNX model with NumPy: any operator of the standard, any intermediate value, and on request all of it in float64."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxbridge.errors import UsageError
from onnxbridge.hub.io.limits import Limits, present_limits
from onnxbridge.runtime.executor.compiled_model import Compiled

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxbridge.runtime.executor.explain import Planned
    from onnxbridge.runtime.executor.rerun import Rerunner
    from onnxbridge.runtime.verify.rounding.simulate_precision import SimulatedPrecision


class Executor:
    """A model, compiled once and run any number of times.

    `precision="float64"` computes everything that the model declares as float32, float16 or bfloat16 in float64: the reference
    against which rounding is judged. `limits` bounds what one run may take. Operators named in `expanded` are run by their
    expansions, operator by operator. Without `native` no compiled kernels are used: the same numbers wherever NumPy is the same.

    Raises:
        ConversionError: with every operator that cannot be run.
    """

    def __init__(
        self,
        model: onnx.ModelProto | ir.Model | str | os.PathLike[str],
        *,
        precision: str | None = None,
        limits: Limits | None = None,
        expanded: Collection[str] = (),
        native: bool = True,
    ) -> None:
        if precision not in (None, "float64"):
            raise UsageError(f"precision is {precision!r}, it may be 'float64' or nothing")
        self._compiled = Compiled(model, precision == "float64", limits or present_limits(), frozenset(expanded), native)
        self.input_names, self.output_names = self._compiled.input_names, self._compiled.output_names

    def run(
        self, names: Sequence[str] | None, feeds: Mapping[str, Any], *, simulated: SimulatedPrecision | None = None
    ) -> list[Any]:
        """The named values (all outputs for None; intermediate ones may be named) for these inputs.

        With `simulated`, inputs, constants and every operator's results are rounded by it, which simulates lower precision.

        Raises:
            UsageError: if an input is missing, unknown, or not as the model declares it.
            LimitError: if the run would take more than the limits allow.
        """
        return self._compiled.run(names, feeds, simulated)

    def watch(
        self, see: Callable[[str, Any], None], feeds: Mapping[str, Any], *, simulated: SimulatedPrecision | None = None
    ) -> list[Any]:
        """Run operator by operator and call `see` with the name and the value of every input and every node's result.

        A value is freed after its last use, so one run sees all of them in the memory of one run. Returns the outputs.
        """
        return self._compiled.watch(see, feeds, simulated)

    def rerunner(self, work: int = 0) -> Rerunner:
        """Runs this model beside variants with one changed node, of which only what differs is computed (see `rerun.py`).

        `work` are the operations of one run where they are known; costs are estimated from them.
        """
        return self._compiled.rerunner(work)

    @property
    def work(self) -> int:
        """The operations of all runs so far that NumPy did, as `work.py` counts them: the same number on every machine."""
        return self._compiled.work

    def explain(self, feeds: Mapping[str, Any] | None = None) -> list[Planned]:
        """The steps that a run takes on these inputs (drawn ones for none): what was put together, how each runs, its cost."""
        return self._compiled.explain(feeds)
