"""The hub model as a MIL program: what the walker writes into, its inputs and outputs, and coremltools' own conversion."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import coremltools as ct
import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, types
from coremltools.converters.mil.mil.block import curr_block
from coremltools.converters.mil.mil.var import Var

from onnxbridge.backends.coreml.artifact import CoreMLModel
from onnxbridge.backends.coreml.compression.check_compression import Key, check, originals
from onnxbridge.backends.coreml.compression.compress import compressed
from onnxbridge.backends.coreml.element_types import DECLARED, LOSSY, NARROW, cast, held, is_float, narrow, wrapped
from onnxbridge.backends.coreml.interface.features import RANK, Interface, stand_in
from onnxbridge.backends.coreml.interface.names import Names, written
from onnxbridge.backends.coreml.legalize import infer_static_operands, reduce_rank
from onnxbridge.backends.coreml.model_options import Asked, for_graph
from onnxbridge.backends.coreml.ops import rule as rules
from onnxbridge.backends.coreml.precision import fp16_logs, fp16_selection
from onnxbridge.backends.coreml.precision.fp16 import HalfPrecision
from onnxbridge.backends.coreml.precision.value_ranges import ranges
from onnxbridge.backends.coreml.quiet_coremltools import quiet
from onnxbridge.errors import ConversionError, LimitError, Problem, Unsupported, merge
from onnxbridge.formats.coreml.float32_program import Key as Place
from onnxbridge.hub.decompositions import lookup
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.lowering import FAILED, Body, Call, Ref, Target, lower, resolve

DIRECTION = "ONNX to Core ML"
# The operators that can leave the range of an integer narrower than 32 bits.
WRAPS = frozenset({
    "Abs", "Add", "BitShift", "BitwiseNot", "Cast", "CastLike", "CumProd", "CumSum", "Div", "Gemm", "MatMul", "Mul", "Neg",
    "Pow", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sub", "Sum",
})  # fmt: skip


class MilTarget(Target):
    """What the walker writes into: the blocks of a MIL function."""

    direction = DIRECTION

    def __init__(self, target: Any) -> None:
        self.target = target
        self._op = ""
        self._names = Names()
        self._expanded: Call | None = None
        self.choosing: set[str] = set()
        """Names of MIL operators that choose, for one of ONNX's that is several of them."""
        self.lossy: dict[ir.DataType, str] = {}
        """The first value of each float type that Core ML has not, and computes with in float32."""

    def constant(self, value: ir.Value) -> Any:
        """A constant of the hub; coremltools keeps the array itself where its type can stay as it is."""
        assert value.const_value is not None
        if value.dtype == ir.DataType.STRING:
            return value.const_value
        array = narrow(np.asarray(value.const_value.numpy()), saturate=self._op == "Slice")
        made = mb.const(val=array if array.ndim else array[()], name=written(value.name or "constant"))
        if value.dtype is not None:
            DECLARED.get()[made] = value.dtype
        return made

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        known = fold.static(key) if isinstance(key, ir.Value) else None
        if known is None and isinstance(value, Var) and value.val is not None:
            return np.asarray(value.val)
        return known

    @contextlib.contextmanager
    def scope(self, call: Call) -> Iterator[None]:
        rule = rules.get(call.op)
        if rule is not None and rule.needs and call is not self._expanded and self.target < ct.target[rule.needs]:
            raise Unsupported(f"needs {rule.needs}", f"minimum_deployment_target={rule.needs!r}")
        outer, self._op = self._op, call.op
        before = {id(op) for op in curr_block().operations} if call.op in fp16_selection.CHOOSES else None
        try:
            yield
        finally:
            self._op = outer
        if before is not None:
            self.choosing |= fp16_selection.names(op for op in curr_block().operations if id(op) not in before)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self._adopt(call, key, r) if isinstance(key, ir.Value) and isinstance(r, Var) else r
            for key, r in zip(call.outputs, results, strict=False)
        )

    def _adopt(self, call: Call, key: ir.Value, result: Var) -> Var:
        """Hold the result to what the hub says of it, and give it the hub's name."""
        if isinstance(key.type, ir.TensorType) and key.dtype is not None:
            want = held(key.dtype)
            if key.dtype in LOSSY and key.dtype.is_floating_point():
                self.lossy.setdefault(key.dtype, key.name or call.op)
            if result.dtype != want and is_float(result) and want in (types.fp16, types.fp32):
                result = cast(result, want)
            if result.dtype != want:
                raise TypeError(f"the result is {types.builtin_to_string(result.dtype)}, the hub says {key.dtype}")
            if key.dtype in NARROW and call.op in WRAPS:
                result = wrapped(result, key.dtype)
            _agree(result.shape, key.shape)
            if DECLARED.get().setdefault(result, key.dtype) != key.dtype:  # the same numbers in another type
                result = mb.identity(x=result)
                DECLARED.get()[result] = key.dtype
        if key.name and result.op is not None and result.op.op_type != "const" and result.op.enclosing_block is curr_block():
            result.name = result.op.name = self._names.take(key.name)
        return result

    def expand(self, call: Call) -> Body | None:
        self._expanded = call  # what a rule needs, its expansion does not
        if isinstance(call, reduce_rank.Rewritten):
            return call.body
        return infer_static_operands.choice(call) or lookup.body_of(call)


def _agree(shape: Sequence[Any], declared: ir.Shape | None) -> None:
    """Raises TypeError where the hub knows a size and the result has another one."""
    if declared is None or any(str(d).startswith("*") for d in shape):
        return
    same_rank = len(shape) == len(declared)
    if not same_rank or any(
        isinstance(h, int) and isinstance(d, (int, np.integer)) and h != d for d, h in zip(shape, declared, strict=True)
    ):
        told = f"[{', '.join(str(d) if isinstance(d, int) else '?' for d in declared)}]"
        if curr_block().outer_op is None:
            raise TypeError(f"the result has shape {list(shape)}, the hub says {told}")
        raise Unsupported(f"in this branch inputs of these sizes give a result of shape {list(shape)}, the model says {told}",
                          "give sizes that all branches take, or fix the input that decides between them to a number: "
                          "--inputs NAME=16000, inputs={'NAME': 16000}")  # fmt: skip


class _Values(dict[Hashable, Any]):
    """MIL values by hub value. A constant first used inside a block is not seen outside, so only the function's own are kept."""

    def __init__(self, target: MilTarget) -> None:
        super().__init__()
        self._target = target
        self._function = curr_block()

    def __missing__(self, key: Hashable) -> Any:
        if not isinstance(key, ir.Value) or key.const_value is None:
            raise KeyError(key)
        made = self._target.constant(key)
        if curr_block() is self._function and self._target._op != "Slice":
            self[key] = made
        return made


@quiet()
def convert(model: ir.Model, asked: Asked) -> CoreMLModel:
    """Lower a hub model and hand the program to coremltools.

    Raises:
        ConversionError: with every operator, input and output that Core ML cannot hold.
        VerificationError: if compressed weights are not what they should be.
        LimitError: if the disk is full, on which coremltools keeps a model until it is saved.
    """
    program, interface = build(model, asked)
    try:
        made, wide = package(program, interface, model)
        runs = program if asked.kind == "neuralnetwork" else None
        before: Mapping[Key, Any] = {}
        if asked.compress:
            before = originals(made)
            made = compressed(made, asked.compress)
            check(made, before, asked.compress, interface.notes)
    except RuntimeError as e:
        if "FileWriter" not in str(e):
            raise
        raise LimitError(f"coremltools cannot write to {tempfile.gettempdir()!r}: is the disk full?") from e
    return CoreMLModel.make(made, interface, model, runs, before, wide)


def build(model: ir.Model, asked: Asked, target: Callable[[Any], MilTarget] = MilTarget) -> tuple[Program, Interface]:
    """The hub model as a MIL program, which no pass has touched yet.

    Raises:
        ConversionError: with every operator, input and output that Core ML cannot hold.
    """
    # a neural network is written in the oldest operators, whatever the system
    version = ct.target.iOS14 if asked.kind == "neuralnetwork" else ct.target[asked.target]
    mil = target(version)
    DECLARED.set({})
    interface = Interface(for_graph(asked, model.graph))
    interface.take(model.graph)
    refused = bool(interface.problems)
    stands = {f"stand_in_{i}": stand_in(v) for i, v in enumerate(model.graph.inputs)} if refused else {}
    placeholders = {k: v for k, v in stands.items() if v is not None} if refused else interface.placeholders
    with Function(placeholders, version) as function:
        values = _Values(mil)
        if not refused:
            names = {p.hub: p.coreml for p in (*interface.inputs, *interface.states)}
            values |= {v: interface.inside(function.inputs[names[v.name or ""]], v, function) for v in model.graph.inputs}
        else:  # the operators are looked at all the same
            values |= {v: function.inputs.get(k, FAILED) for v, k in zip(model.graph.inputs, stands, strict=True)}
        try:
            lower(reduce_rank.rewritten(map(infer_static_operands.known, graph_reader.of(model.graph))), rules, values, mil)
        except ConversionError as e:
            raise ConversionError(DIRECTION, merge([*interface.problems, *e.problems])) from e
        if not interface.problems:
            function.set_outputs(interface.give(model.graph, resolve([Ref(v) for v in model.graph.outputs], values), function))
        if interface.problems:
            raise ConversionError(DIRECTION, merge(interface.problems))
    outside = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    interface.notes += [f"{dtype.name.lower()} is computed in {LOSSY[dtype]} in Core ML, from {name} on"
                        for dtype, name in mil.lossy.items() if dtype not in outside]  # fmt: skip
    program = Program()
    program.add_function("main", function)
    interface.choosing = fp16_selection.of(program, mil.choosing)
    interface.spread = fp16_logs.of(program)
    return program, interface


def package(program: Program, interface: Interface, model: ir.Model) -> tuple[Any, Mapping[Place, Any]]:
    """coremltools' passes and serializer, without what they print; what is worth knowing of them goes into the notes. Beside the
    model the constants that were rounded to float16, as they were before."""
    asked = interface.asked
    given: dict[str, Any] = {"convert_to": asked.kind, "inputs": interface.flexible or None, "skip_model_load": True}
    half = None
    if asked.kind == "mlprogram":
        given["minimum_deployment_target"] = ct.target[asked.target]
        if asked.precision != "fp32":
            measured = ranges(program, interface, model) if asked.precision == "mixed" else None
            half = HalfPrecision(measured, interface.choosing, interface.spread)
        given["compute_precision"] = ct.precision.FLOAT32 if half is None else ct.transform.FP16ComputePrecision(op_selector=half)
    if asked.labels:
        given["classifier_config"] = ct.ClassifierConfig(
            list(asked.labels), predicted_probabilities_output=interface.outputs[-1].coreml
        )
    try:
        made = ct.convert(program, source="milinternal", **given)
    except ValueError as e:
        if "rank" not in str(e):
            raise
        raise ConversionError(DIRECTION, _too_high(model, str(e))) from e
    if half is not None:
        interface.notes += half.notes()
    return made, {} if half is None else half.before


def _too_high(model: ir.Model, message: str) -> list[Problem]:
    """The operators whose results have more axes than Core ML holds."""
    found = [
        Problem(
            n.op_type, f"a result has rank {len(o.shape)}; Core ML holds {RANK} at most", places=(graph_reader.call_of(n).where,)
        )
        for n in model.graph
        for o in n.outputs
        if o.shape is not None and len(o.shape) > RANK
    ]
    return merge(found) or [Problem("rank", message)]
