"""Converts the hub model to a MIL program, and the program to a Core ML model with coremltools."""

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
from onnxbridge.backends.coreml.compression.check_compression import WeightKey, check, original_weights
from onnxbridge.backends.coreml.compression.compress import compress
from onnxbridge.backends.coreml.coremltools_passes import ProgramValidatedSeldom, pipeline
from onnxbridge.backends.coreml.coremltools_shape_inference import fast_reshape_inference
from onnxbridge.backends.coreml.element_types import HUB_DTYPES, LOSSY, NARROW, cast, is_float, mil_type, narrow, wrapped
from onnxbridge.backends.coreml.interface.features import Interface, placeholder_like, scalar_if_declared
from onnxbridge.backends.coreml.interface.names import Names, core_ml_name
from onnxbridge.backends.coreml.legalize import reduce_rank
from onnxbridge.backends.coreml.legalize.runtime_sizes import MAX_RANK
from onnxbridge.backends.coreml.model_options import CoreMLOptions, resolve_for_graph
from onnxbridge.backends.coreml.ops import rule as rules
from onnxbridge.backends.coreml.precision import float32_ops, fp16_logs, fp16_selection
from onnxbridge.backends.coreml.precision.fp16 import HalfPrecision
from onnxbridge.backends.coreml.precision.value_ranges import ranges
from onnxbridge.backends.coreml.quiet_coremltools import collects_only_its_own, quiet
from onnxbridge.errors import ConversionError, LimitError, Problem, Unsupported, merge
from onnxbridge.formats.coreml.float32_program import ConstantKey as ConstantKey
from onnxbridge.hub.decompositions import lookup
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.hub.ir.values import dtype_name
from onnxbridge.hub.passes import infer_static_operands
from onnxbridge.lowering import FAILED, Body, Call, Ref, Target, lower, resolve

DIRECTION = "ONNX to Core ML"
# ONNX operators that can overflow integers narrower than 32 bits.
WRAPS = frozenset({
    "Abs", "Add", "BitShift", "BitwiseNot", "Cast", "CastLike", "CumProd", "CumSum", "Div", "Gemm", "MatMul", "Mul", "Neg",
    "Pow", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sub", "Sum",
})  # fmt: skip


def _remove_unfinished(block: Any) -> None:
    """Remove the operator that coremltools refused after it was added to the block: it has no outputs, which no pass expects."""
    last = next(reversed(list(block.operations)), None)
    if last is not None and last.outputs is None:
        last._output_vars = []
        block.remove_ops([last])


class MilTarget(Target):
    """The lowering target: writes into the blocks of a MIL function."""

    direction = DIRECTION

    def __init__(self, target: Any) -> None:
        self.target = target
        self._op = ""
        self._names = Names()
        self._expanded: Call | None = None
        self.selection_ops: list[Any] = []
        """MIL operators that select elements, from ONNX operators that lower to several of them."""
        self.float32_names: Sequence[str] = ()
        """Operator types and values of the hub model that the user keeps in float32."""
        self.float32_ops: list[Any] = []
        """The MIL operators made for them."""
        self.lossy: dict[ir.DataType, str] = {}
        """The first value of each float dtype that Core ML does not have, and computes in float32."""

    def constant(self, value: ir.Value) -> Any:
        """A hub constant as a MIL constant; the array is not copied if its dtype does not change."""
        assert value.const_value is not None
        if value.dtype == ir.DataType.STRING:
            return value.const_value
        array = narrow(np.asarray(value.const_value.numpy()), saturate=self._op == "Slice")
        made = mb.const(val=array if array.ndim else array[()], name=core_ml_name(value.name or "constant"))
        if value.dtype is not None:
            HUB_DTYPES.get()[made] = value.dtype
        return made

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        known = fold.constant_array(key) if isinstance(key, ir.Value) else None
        if known is None and isinstance(value, Var) and value.val is not None:
            return np.asarray(value.val)
        return known

    @contextlib.contextmanager
    def scope(self, call: Call) -> Iterator[None]:
        rule = rules.get(call.op)
        if rule is not None and rule.needs and call is not self._expanded and self.target < ct.target[rule.needs]:
            raise Unsupported(f"needs {rule.needs}", f"minimum_deployment_target={rule.needs!r}")
        outer, self._op = self._op, call.op
        collected = [self.selection_ops] if call.op in fp16_selection.ONNX_SELECTION_OPS else []
        collected += [self.float32_ops] if float32_ops.is_requested(call, self.float32_names) else []
        before = {id(op) for op in curr_block().operations} if collected else set()
        try:
            yield
        except Exception:
            _remove_unfinished(curr_block())
            raise
        finally:
            self._op = outer
        for found in collected:
            found += [op for op in curr_block().operations if id(op) not in before]

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self._adopt(call, key, r) if isinstance(key, ir.Value) and isinstance(r, Var) else r
            for key, r in zip(call.outputs, results, strict=False)
        )

    def _adopt(self, call: Call, key: ir.Value, result: Var) -> Var:
        """Check the result's dtype and shape against the hub's, and set the hub's name."""
        if isinstance(key.type, ir.TensorType) and key.dtype is not None:
            expected = mil_type(key.dtype)
            if key.dtype in LOSSY and key.dtype.is_floating_point():
                self.lossy.setdefault(key.dtype, key.name or call.op)
            if result.dtype != expected and is_float(result) and expected in (types.fp16, types.fp32):
                result = cast(result, expected)
            if result.dtype != expected:
                raise TypeError(f"the result has dtype {types.builtin_to_string(result.dtype)}, expected {key.dtype}")
            if key.dtype in NARROW and call.op in WRAPS:
                result = wrapped(result, key.dtype)
            _check_shape(result.shape, key.shape)
            if HUB_DTYPES.get().setdefault(result, key.dtype) != key.dtype:  # one MIL value would have two hub dtypes
                result = mb.identity(x=result)
                HUB_DTYPES.get()[result] = key.dtype
        if key.name and result.op is not None and result.op.op_type != "const" and result.op.enclosing_block is curr_block():
            result.name = result.op.name = self._names.unique(key.name)
        return result

    def decompose(self, call: Call) -> Body | None:
        self._expanded = call  # the rule's least target does not apply to the decomposition
        if isinstance(call, reduce_rank.RankReducedCall):
            return call.body
        return infer_static_operands.select_among_axes(call) or lookup.decomposition_of(call)


def _check_shape(shape: Sequence[Any], declared: ir.Shape | None) -> None:
    """Check a result's shape against the static sizes of the hub value.

    Raises:
        TypeError: if they differ.
        Unsupported: if they differ inside of a branch.
    """
    if declared is None or any(str(d).startswith("*") for d in shape):
        return
    same_rank = len(shape) == len(declared)
    if not same_rank or any(
        isinstance(h, int) and isinstance(d, (int, np.integer)) and h != d for d, h in zip(shape, declared, strict=True)
    ):
        expected = f"[{', '.join(str(d) if isinstance(d, int) else '?' for d in declared)}]"
        if curr_block().outer_op is None:
            raise TypeError(f"the result has shape {list(shape)}, expected {expected}")
        raise Unsupported(f"for inputs of these sizes, this branch gives a result of shape {list(shape)}, expected {expected}",
                          "use sizes that all branches support, or make the input that selects the branch a constant: "
                          "--inputs NAME=16000, inputs={'NAME': 16000}")  # fmt: skip


class _Values(dict[Hashable, Any]):
    """MIL values by hub value. Only constants of the main block are cached; others are not visible outside of their block."""

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
@fast_reshape_inference()
def convert(model: ir.Model, options: CoreMLOptions) -> CoreMLModel:
    """Convert a hub model to a Core ML model.

    Raises:
        ConversionError: with every unsupported operator, input and output.
        VerificationError: if compressed weights do not match the original ones.
        LimitError: if the disk is full; coremltools stores the model in a temporary folder until it is saved.
    """
    program, interface = build(model, options)
    try:
        made, float32_constants = package(program, interface, model)
        mil_program = program if options.kind == "neuralnetwork" else None
        before: Mapping[WeightKey, Any] = {}
        if options.compress:
            before = original_weights(made)
            made = compress(made, options.compress)
            check(made, before, options.compress, interface.notes)
    except RuntimeError as e:
        if "FileWriter" not in str(e):
            raise
        raise LimitError(f"coremltools cannot write to {tempfile.gettempdir()!r}: is the disk full?") from e
    return CoreMLModel.make(made, interface, model, mil_program, before, float32_constants)


def build(model: ir.Model, options: CoreMLOptions, target: Callable[[Any], MilTarget] = MilTarget) -> tuple[Program, Interface]:
    """Convert the hub model to a MIL program, before coremltools' passes.

    Raises:
        ConversionError: with every unsupported operator, input and output.
    """
    # a neural network uses the oldest operators, whatever the deployment target
    version = ct.target.iOS14 if options.kind == "neuralnetwork" else ct.target[options.target]
    mil = target(version)
    float32_ops.check(options.float32_ops, model.graph)
    mil.float32_names = options.float32_ops
    HUB_DTYPES.set({})
    interface = Interface(resolve_for_graph(options, model.graph))
    interface.read_inputs(model.graph)
    invalid = bool(interface.problems)
    substitutes = {f"stand_in_{i}": placeholder_like(v) for i, v in enumerate(model.graph.inputs)} if invalid else {}
    placeholders = {k: v for k, v in substitutes.items() if v is not None} if invalid else interface.placeholders
    with Function(placeholders, version) as function:
        values = _Values(mil)
        if not invalid:
            names = {p.hub: p.coreml for p in (*interface.inputs, *interface.states)}
            values |= {v: interface.input_value(function.inputs[names[v.name or ""]], v, function) for v in model.graph.inputs}
        else:  # lower the operators anyway, to report all problems at once
            values |= {
                v: scalar_if_declared(function.inputs[k], v) if k in function.inputs else FAILED
                for v, k in zip(model.graph.inputs, substitutes, strict=True)
            }
        try:
            calls = reduce_rank.rewrite(map(infer_static_operands.infer, graph_reader.calls_of(model.graph)))
            lower(calls, rules, values, mil)
        except ConversionError as e:
            raise ConversionError(DIRECTION, merge([*interface.problems, *e.problems])) from e
        if not interface.problems:
            function.set_outputs(
                interface.write_outputs(model.graph, resolve([Ref(v) for v in model.graph.outputs], values), function)
            )
        if interface.problems:
            raise ConversionError(DIRECTION, merge(interface.problems))
    noted = {v.dtype for v in (*model.graph.inputs, *model.graph.outputs)}
    interface.notes += [f"{dtype_name(dtype)} values are computed in {LOSSY[dtype]} in Core ML, first {name}"
                        for dtype, name in mil.lossy.items() if dtype not in noted]  # fmt: skip
    program = ProgramValidatedSeldom()
    program.add_function("main", function)
    interface.fp32_selection = fp16_selection.find(program, fp16_selection.names(mil.selection_ops))
    interface.fp32_requested = float32_ops.find(mil.float32_ops)
    interface.fp32_logs = fp16_logs.find(program)
    return program, interface


def package(program: Program, interface: Interface, model: ir.Model) -> tuple[Any, Mapping[ConstantKey, Any]]:
    """Run coremltools' passes and serializer, and add to the interface's notes.

    Returns the model, and the float32 values of the constants that were rounded to float16.
    """
    options = interface.options
    given: dict[str, Any] = {"convert_to": options.kind, "inputs": interface.flexible or None, "skip_model_load": True}
    selector = None
    if options.kind == "mlprogram":
        given["minimum_deployment_target"] = ct.target[options.target]
        if options.precision != "fp32":
            measured = ranges(program, interface, model) if options.precision == "mixed" else None
            selector = HalfPrecision(measured, interface.fp32_selection, interface.fp32_logs, interface.fp32_requested)
        given["compute_precision"] = (
            ct.precision.FLOAT32 if selector is None else ct.transform.FP16ComputePrecision(op_selector=selector)
        )
    given["pass_pipeline"] = pipeline(float32=selector is None)
    if options.labels:
        given["classifier_config"] = ct.ClassifierConfig(
            list(options.labels), predicted_probabilities_output=interface.outputs[-1].coreml
        )
    try:
        with collects_only_its_own():
            made = ct.convert(program, source="milinternal", **given)
    except ValueError as e:
        if "rank" not in str(e):
            raise
        raise ConversionError(DIRECTION, _rank_problems(model, str(e))) from e
    if selector is not None:
        interface.notes += selector.notes()
    return made, {} if selector is None else selector.float32_constants


def _rank_problems(model: ir.Model, message: str) -> list[Problem]:
    """A problem for each operator whose result has more axes than Core ML supports."""
    found = [
        Problem(
            n.op_type,
            f"a result has rank {len(o.shape)}; Core ML supports at most {MAX_RANK}",
            locations=(graph_reader.call_of(n).location,),
        )
        for n in model.graph
        for o in n.outputs
        if o.shape is not None and len(o.shape) > MAX_RANK
    ]
    return merge(found) or [Problem("rank", message)]
