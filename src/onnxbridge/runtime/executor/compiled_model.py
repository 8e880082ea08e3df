"""A model compiled in this process: any operator of the standard, any intermediate value, and on request all of it in float64."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.io.resource_limits import Budget, Limits, limited
from onnxbridge.hub.ir import graph_reader, strings
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.lowering import Call, Ref
from onnxbridge.runtime.executor.buffer_pool import Pool, using_pool
from onnxbridge.runtime.executor.kernels.compile import availability
from onnxbridge.runtime.executor.kernels.compile.compile_policy import Account, TooEarly
from onnxbridge.runtime.executor.kernels.run.call_recorder import active_recorder
from onnxbridge.runtime.executor.plan import Plan, Step, execute
from onnxbridge.runtime.executor.plan_compiler import Compiler, Settings
from onnxbridge.runtime.executor.record_run import record, worthwhile
from onnxbridge.runtime.executor.recorded_run import Recording, disjoint, kinds, owned, without_warnings
from onnxbridge.runtime.executor.widening import ROUNDED, widen_arguments, widen_step, widened, widened_at_use

if TYPE_CHECKING:
    from onnxbridge.runtime.executor.explain import Planned
    from onnxbridge.runtime.executor.rerun import Rerunner
    from onnxbridge.runtime.verify.rounding.simulate_precision import SimulatedPrecision

Array = np.ndarray[Any, Any]


class Compiled:
    """A model, read and compiled; the implementation of `Executor`. `wide`: in float64; `native`: with compiled kernels."""

    def __init__(self, model: Any, wide: bool, limits: Limits, expanded: frozenset[str], native: bool) -> None:
        self._wide, self._limits, self._native = wide, limits, native
        read = model if isinstance(model, ir.Model) else _read(model)
        self._hub = _hub(read, read is model)
        graph = self._graph = self._hub.graph
        self._inputs = {str(v.name): v for v in graph.inputs}
        self.input_names = [name for name, v in self._inputs.items() if v.const_value is None]
        self._defaults = [name for name, v in self._inputs.items() if v.const_value is not None]
        self.output_names = [str(v.name) for v in graph.outputs]
        self._settings = _settings(self._hub, wide, expanded)
        compiler = Compiler(self._settings)
        self._plan = _compiled(compiler, graph)
        self._all_steps = compiler.steps
        made = [v for node in graph for v in node.outputs if v in compiler.slots]
        self._slots = {str(v.name): compiler.slots[v] for v in (*graph.initializers.values(), *graph.inputs, *made)}
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._pool = Pool()
        self._fused: Plan | None = None
        self._account = Account()
        self._kernels = self._repeats = False
        self._recording: Recording | None = None
        self._recorded: Any = None
        self._last: Any = None

    def run(
        self, names: Sequence[str] | None, feeds: Mapping[str, Any], simulated: SimulatedPrecision | None = None
    ) -> list[Any]:
        """The named values (all outputs for None; intermediate ones may be named) for these inputs.

        Raises:
            UsageError: if an input is missing, unknown, or not as the model declares it.
            LimitError: if the run would take more than the limits allow.
        """
        if names is None and simulated is None and self._native and (self._kernels or self._account.pays()):
            try:
                with limited(self._limits) as budget, self._account.guarding():
                    results = self._run_plan(self._fused_plan_for(feeds, True), feeds, budget)
                self._account.compiles = self._kernels
                return results
            except TooEarly:
                self._fused, self._kernels, self._recording = None, False, None
        with limited(self._limits) as budget:
            if simulated is not None:
                plan = self._plan if names is None else self._plan_for(tuple(names))
                return self._by_operator(plan, feeds, budget, simulated)
            return self._run_plan(
                self._fused_plan_for(feeds, False) if names is None else self._plan_for(tuple(names)), feeds, budget
            )

    def watch(
        self, see: Callable[[str, Any], None], feeds: Mapping[str, Any], simulated: SimulatedPrecision | None = None
    ) -> list[Any]:
        """The outputs; `see` is called with the name and the value of each input and of each result of a node."""
        names = {slot: name for name, slot in self._slots.items()}

        def seen(slot: int, value: Any) -> None:
            if slot in names:  # others belong to decompositions
                see(names[slot], value)

        with limited(self._limits) as budget:
            return self._by_operator(self._plan, feeds, budget, simulated, seen)

    def rerunner(self, work: int) -> Rerunner:
        """Runs this model with variants of it beside."""
        from onnxbridge.runtime.executor.rerun import Rerunner

        inputs = functools.partial(self._inputs_by_slot, defaults=True)
        return Rerunner(self._plan, self._slots, self._settings, self._limits, inputs, work)

    @property
    def work(self) -> int:
        """The operations of all runs so far that NumPy did."""
        return self._account.work

    def explain(self, feeds: Mapping[str, Any] | None = None) -> list[Planned]:
        """The steps that a run takes on these inputs (drawn ones for none): what was put together, how each runs, its cost."""
        from onnxbridge.runtime.executor.explain import planned
        from onnxbridge.runtime.verify.samples.random_inputs import samples_for

        given = samples_for(self._graph, 1)[0] if feeds is None else feeds
        with limited(self._limits) as budget, without_warnings():
            plan = self._fused_plan_for(given, self._native and availability.available())
            inputs = self._inputs_by_slot(given, plan is not self._fused)
            return planned(plan, _filled(plan, inputs), inputs, budget, self._settings.adapt_result)

    def _run_plan(self, plan: Plan, feeds: Mapping[str, Any], budget: Budget) -> list[Any]:
        """The outputs of a plan."""
        inputs = self._inputs_by_slot(feeds, plan is not self._fused)
        if plan is self._fused and self._repeats:
            return self._replay_or_record(plan, inputs, budget)
        return self._executed(plan, inputs, budget)

    def _executed(self, plan: Plan, inputs: dict[int, Any], budget: Budget) -> list[Any]:
        """The outputs, step by step."""
        with without_warnings(), using_pool(self._pool):
            results = execute(plan, _filled(plan, inputs), budget, self._settings.adapt_result)
        if plan is not self._fused or not self._kernels:
            self._account.work += budget.work
        return owned(results, (*inputs.values(), *plan.frame))

    def _by_operator(
        self, plan: Plan, feeds: Mapping[str, Any], budget: Budget, simulated: SimulatedPrecision | None,
        see: Callable[[int, Any], None] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The outputs of a plan without fusions. `simulated` rounds inputs, constants and results of operators."""
        adapt = self._settings.adapt_result
        inputs = self._inputs_by_slot(feeds, True)
        frame = _filled(plan, inputs)
        if simulated is not None:
            inputs = {slot: simulated(value) for slot, value in inputs.items()}
            frame = [simulated.constant(value) for value in plan.frame]
            for slot, value in inputs.items():
                frame[slot] = value
        if see is not None:
            for slot, value in inputs.items():
                see(slot, value)
        if simulated is not None:
            adapt = simulated if adapt is None else _both(adapt, simulated)
        with without_warnings():
            results = execute(plan, frame, budget, adapt, see)
        self._account.work += budget.work
        return owned(results, (*inputs.values(), *plan.frame))

    def _replay_or_record(self, plan: Plan, inputs: dict[int, Any], budget: Budget) -> list[Any]:
        """The outputs, by replaying a run on inputs of these shapes; the first run is recorded, and repeated ones."""
        kind = kinds(inputs)
        known = self._recording
        if kind is None or active_recorder() is not None or (known is not None and kind != self._recorded and kind != self._last):
            self._last = kind
            return self._executed(plan, inputs, budget)
        self._last = kind
        if known is not None and kind == self._recorded:
            if not known.lock.acquire(blocking=False):
                return self._executed(plan, inputs, budget)
            try:
                with contextlib.nullcontext() if known.all_native else without_warnings():
                    found = known.replay(inputs, budget, self._settings.adapt_result)
                if found is not None:
                    return owned(found, (*inputs.values(), *known.frame))
            finally:
                known.lock.release()
            self._repeats = False  # shapes depend on values
            self._recording = None
            return self._executed(plan, inputs, budget)
        if not disjoint(inputs):
            return self._executed(plan, inputs, budget)
        self._recording = known = None  # release its memory before more is allocated
        with without_warnings():
            results, made = record(plan, _filled(plan, inputs), tuple(inputs), budget, self._settings.adapt_result)
        self._recorded, self._recording = kind, made
        return owned(results, (*inputs.values(), *made.frame))

    def _fused_plan_for(self, feeds: Mapping[str, Any], kernels: bool) -> Plan:
        """The plan of all outputs, with constants folded, and with `kernels` steps fused into compiled kernels.

        In float64 mode, and where an input's default is overridden, it is the plan as it was compiled.
        """
        if self._wide or any(name in feeds for name in self._defaults):
            return self._plan
        fused_plan = self._fused
        if fused_plan is None or kernels != self._kernels:
            from onnxbridge.runtime.executor.fusion import canonical, fused

            self._fused = fused_plan = None  # release its memory before more is allocated
            plan = _compiled(Compiler(self._settings), canonical(self._hub)) if kernels else self._plan
            defaults = {self._slots[name]: self._settings.constant(self._inputs[name]) for name in self._defaults}
            fused_plan = fused(plan, defaults, self._pool, kernels)
            self._repeats, self._fused, self._kernels = worthwhile(fused_plan), fused_plan, kernels
        return fused_plan

    def _plan_for(self, names: tuple[str, ...]) -> Plan:
        if names not in self._plans:
            unknown = [n for n in names if n not in self._slots]
            if unknown:
                raise UsageError(f"the model has no value named {unknown[0]!r}")
            whole = Plan(self._plan.frame, self._all_steps, self._plan.inputs, self._plan.outputs)
            self._plans[names] = whole.pruned(tuple(self._slots[n] for n in names))
        return self._plans[names]

    def _inputs_by_slot(self, feeds: Mapping[str, Any], defaults: bool) -> dict[int, Any]:
        """The inputs by their slots."""
        found: dict[int, Any] = {}
        for name, given in feeds.items():
            if name not in self._inputs:
                raise UsageError(f"the model has no input named {name!r}; it has {', '.join(self._inputs) or 'none'}")
            found[self._slots[name]] = self._checked_input(name, given)
        for name, value in self._inputs.items():
            if name not in feeds:
                if value.const_value is None:
                    raise UsageError(f"the input {name!r} is missing")
                if defaults:
                    found[self._slots[name]] = self._settings.constant(value)
        return found

    def _checked_input(self, name: str, given: Any) -> Any:
        """An input as rules expect it; tensors must have the dtype and the fixed sizes that the model declares."""
        if given is None or isinstance(given, dict):
            return given
        value = self._inputs[name]
        if isinstance(value.type, ir.SequenceType) or (isinstance(given, list) and isinstance(value.type, ir.OptionalType)):
            return [self._loaded(np.asarray(item)) for item in given]
        array = np.asarray(given)
        if strings.is_strings(array):
            array = strings.decoded(array)
        if isinstance(value.type, ir.TensorType) and value.dtype is not None:
            declared = np.dtype(value.dtype.numpy())
            if array.dtype != declared and not (self._wide and array.dtype.kind == "f" and declared in ROUNDED):
                raise UsageError(f"the input {name!r} is {array.dtype}, the model declares {declared}")
            _check_shape(name, array, value.shape)
        return self._loaded(array)

    def _loaded(self, array: Array) -> Array:
        return widened(array) if self._wide else array


def _compiled(compiler: Compiler, graph: ir.Graph) -> Plan:
    # inputs have the first slots, in their order
    return compiler.compile(list(graph.inputs), list(graph_reader.calls_of(graph)), [Ref(v) for v in graph.outputs])


def _filled(plan: Plan, inputs: dict[int, Any]) -> list[Any]:
    frame = plan.frame.copy()
    for slot, value in inputs.items():
        frame[slot] = value
    return frame


def _check_shape(name: str, array: Array, shape: ir.Shape | None) -> None:
    if shape is None:
        return
    fits = len(shape) == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True))
    if not fits:
        declared = ", ".join(str(d) for d in shape)
        raise UsageError(f"the input {name!r} has shape {list(array.shape)}, the model declares [{declared}]")


def _read(model: onnx.ModelProto | str | os.PathLike[str]) -> ir.Model:
    if isinstance(model, onnx.ModelProto):
        return onnx_files.from_proto(model, keep_maps=True)
    return onnx_files.read(model, keep_maps=True)


def _hub(model: ir.Model, given: bool) -> ir.Model:
    """The model at the hub's opset, without functions; the caller's model is not changed."""
    from onnxbridge.hub import passes
    from onnxbridge.hub.decompositions import microsoft
    from onnxbridge.hub.decompositions.autodiff import gradient

    hub = passes.inline(model.clone() if given else model) if model.functions else model
    if hub.opset_imports.get("", OPSET) != OPSET:
        from onnxbridge.hub.opset.opset_conversion import to_hub

        hub = to_hub(hub.clone() if given and hub is model else hub)
    if microsoft.has_contrib_ops(hub):
        hub = hub.clone() if given and hub is model else hub
        passes.infer(hub)
    if gradient.has_gradient_nodes(hub):
        hub = hub.clone() if given and hub is model else hub
        gradient.decompose_gradients(hub)
    return hub


def _settings(model: ir.Model, wide: bool, expanded: frozenset[str]) -> Settings:
    from onnxbridge.hub.decompositions.lookup import decomposition_of
    from onnxbridge.runtime.executor.numpy.ops import rule, variants

    late = widened_at_use(model) if wide else frozenset()

    def constant(key: Hashable) -> Any:
        if not isinstance(key, ir.Value) or key.const_value is None:
            return None
        array = array_of(key.const_value)
        return widened(array) if wide and not (key.const_value in late and not key.is_graph_output()) else array

    def adapt(call: Call, step: Step) -> None:
        when, run = variants.get(call.op, (None, step.run))
        if when is not None and when(call):
            step.run = run
        if wide:
            widen_step(call, step)
        if late:
            widen_arguments(step)

    rules = {op: r for op, r in rule.items() if op not in expanded} if expanded else rule
    return Settings(rules, constant, decomposition_of, adapt, widened if wide else None)


def _both(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: second(first(value))
