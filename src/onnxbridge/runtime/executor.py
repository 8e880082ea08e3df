"""Runs an ONNX model with NumPy: any operator of the standard, any intermediate value, and on request all of it in float64."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxbridge.errors import UsageError
from onnxbridge.hub.bounds import Limits
from onnxbridge.runtime.kept import entry, identity, store
from onnxbridge.runtime.native import placed, presence
from onnxbridge.runtime.recording import Recording, owned, quieted

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnxbridge.runtime.coarse import Coarse
    from onnxbridge.runtime.compiled import Compiled
    from onnxbridge.runtime.explain import Planned


class Executor:
    """A model, compiled once and run as often as wanted.

    `precision="float64"` computes everything that the model declares as float32, float16 or bfloat16 in float64: the reference
    against which rounding is judged. `limits` bounds what one run may take. Operators named in `expanded` are run by their
    expansions, operator by operator.

    A file that an earlier process ran is run by what that one kept, without being read as a model; it is compiled when
    something else is asked of it.

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
    ) -> None:
        if precision not in (None, "float64"):
            raise UsageError(f"precision is {precision!r}, it may be 'float64' or nothing")
        self._model, self._wide, self._limits = model, precision == "float64", limits or Limits()
        self._expanded = frozenset(expanded)
        self._compiling = threading.Lock()
        self._compiled_model: Compiled | None = None
        self._recording: Recording | None = None
        self._known = self._entry = None
        here = placed.possible() and presence.available() and store.folder() is not None
        if here and isinstance(model, str | os.PathLike) and not self._wide and not self._expanded:
            self._known = identity.of(model, store.most())
        if self._known is not None:
            self._entry = entry.find(self._known)
        known = self._entry or self._compiled
        self.input_names, self.output_names = known.input_names, known.output_names

    @property
    def _compiled(self) -> Compiled:
        """The model compiled in this process, when that is first needed."""
        with self._compiling:
            if self._compiled_model is None:
                from onnxbridge.runtime.compiled import Compiled

                model, known = self._model, self._known
                if self._entry is not None and known is not None:
                    model, there = known.path, identity.of(known.path, store.most())
                    if there is None or there.content != known.content:
                        raise UsageError(f"{model}: was changed since this executor was made; make another one.")
                self._compiled_model = Compiled(model, self._wide, self._limits, known, self._expanded)
            return self._compiled_model

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any], *, coarse: Coarse | None = None) -> list[Any]:
        """The named values (all outputs for None; intermediate ones may be named) for these inputs.

        With `coarse`, inputs, constants and every operator's results are rounded by it: as a machine of coarser numbers computes.

        Raises:
            UsageError: if an input is missing, unknown, or not as the model declares it.
            LimitError: if the run would take more than the limits allow.
        """
        if coarse is not None:
            return self._compiled.run(names, feeds, coarse)
        if names is None and self._entry is not None:
            found = self._played(feeds)
            if found is not None:
                return found
        return self._compiled.run(names, feeds)

    def explain(self, feeds: Mapping[str, Any] | None = None) -> list[Planned]:
        """The steps that a run takes on these inputs (drawn ones for none): what was put together, how each runs, its cost."""
        return self._compiled.explain(feeds)

    def _played(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs by a kept recording; None if there is none for such inputs."""
        assert self._entry is not None and self._known is not None
        inputs = self._entry.fits(feeds, self._limits)
        if inputs is None:
            if self._compiled_model is not None or self._recording is not None:
                return None
            other = entry.other(self._known, feeds, self._limits)
            inputs = None if other is None else other.fits(feeds, self._limits)
            if other is None or inputs is None:
                return None
            self._entry = other
        if self._recording is None:
            self._recording = self._entry.recording()
            if self._recording is None:  # not what was written
                self._entry = None
                return None
        made = self._recording
        if not made.busy.acquire(blocking=False):
            return None
        try:
            given = dict(enumerate(inputs))
            if made.quiet and self._limits.seconds is None:
                found = made.play(given, None, None)
            else:
                from onnxbridge.hub.limits import limited

                with limited(self._limits) as budget, quieted():
                    found = made.play(given, budget, None)
            if found is None:  # shapes that hang on values
                self._entry = None
                return None
            return owned(found, (*inputs, *made.frame))
        except Exception:
            if made.quiet:
                raise
            return None  # the compiled model says where
        finally:
            made.busy.release()
