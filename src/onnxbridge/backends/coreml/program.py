"""The hub model as a MIL program: what the walker writes into, its inputs and outputs, and coremltools' own conversion."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import coremltools as ct
import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, get_new_symbol, types
from coremltools.converters.mil.mil.block import curr_block
from coremltools.converters.mil.mil.passes import pass_pipeline
from coremltools.converters.mil.mil.var import Var

from onnxbridge.backends.coreml import deduce
from onnxbridge.backends.coreml.artifact import CoreMLModel, Port
from onnxbridge.backends.coreml.names import Names, written
from onnxbridge.backends.coreml.ops import rule as rules
from onnxbridge.backends.coreml.precision import HalfPrecision
from onnxbridge.backends.coreml.types import DECLARED, LOSSY, NARROW, cast, held, is_float, narrow, wrapped
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported, merge
from onnxbridge.hub import calls, expand, fold
from onnxbridge.lowering import FAILED, Body, Call, Ref, lower, resolve

DIRECTION = "ONNX to Core ML"
LARGEST = 2048
"""The bound of a dynamic dimension that nobody bounded; Core ML takes none without."""
RANK = 5
# The operators that can leave the range of an integer narrower than 32 bits.
WRAPS = frozenset(
    [
        "Abs",
        "Add",
        "BitShift",
        "BitwiseNot",
        "Cast",
        "CastLike",
        "CumProd",
        "CumSum",
        "Div",
        "Gemm",
        "MatMul",
        "Mul",
        "Neg",
        "Pow",
        "ReduceL1",
        "ReduceL2",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Sub",
        "Sum",
    ]
)

Bounds = Mapping[str, tuple[int, int | None]]


class MilTarget:
    """What the walker writes into: the blocks of a MIL function."""

    direction = DIRECTION
    writer: Any = None

    def __init__(self, target: Any) -> None:
        self.target = target
        self._op = ""

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
        if rule is not None and rule.needs and self.target < ct.target[rule.needs]:
            raise Unsupported(f"needs {rule.needs}", f"minimum_deployment_target={rule.needs!r}")
        outer, self._op = self._op, call.op
        try:
            yield
        finally:
            self._op = outer

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            self._adopt(call, key, r) if isinstance(key, ir.Value) and isinstance(r, Var) else r
            for key, r in zip(call.outputs, results, strict=False)
        )

    def _adopt(self, call: Call, key: ir.Value, result: Var) -> Var:
        """Hold the result to what the hub says of it, and give it the hub's name."""
        if isinstance(key.type, ir.TensorType) and key.dtype is not None:
            want = held(key.dtype)
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
            result.name = result.op.name = written(key.name)
        return result

    def expand(self, call: Call) -> Body | None:
        return deduce.choice(call) or expand.body_of(call)


def _agree(shape: Sequence[Any], declared: ir.Shape | None) -> None:
    """Raises TypeError where the hub knows a size and the result has another one."""
    if declared is None or any(str(d).startswith("*") for d in shape):
        return
    same_rank = len(shape) == len(declared)
    if not same_rank or any(
        isinstance(h, int) and isinstance(d, (int, np.integer)) and h != d for d, h in zip(shape, declared, strict=True)
    ):
        raise TypeError(f"the result has shape {tuple(shape)}, the hub says {list(declared)}")


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


def _inputs(
    graph: ir.Graph, target: Any, bounds: Bounds, names: Names, notes: list[str]
) -> tuple[list[Port], dict[str, Any], list[Any], list[Problem]]:
    """The function's inputs, with the ranges of their sizes where these are dynamic."""
    ports, specs, shapes, problems = [], {}, [], []
    symbols: dict[str, Any] = {}
    if not graph.inputs:
        problems.append(Problem("input", "Core ML takes no model without inputs"))
    for value in graph.inputs:
        try:
            dtype = _outer(value, target, notes)
            dims = _dims(value)
        except Unsupported as e:
            problems.append(Problem("input", e.reason, e.hint, (Source(node=value.name or ""),)))
            continue
        name = names.take(value.name or "input")
        if name != value.name:
            notes.append(f"the input {value.name} is called {name}")
        shape, ranges = [], []
        for axis, dim in enumerate(dims or [1]):
            if isinstance(dim, int):
                shape.append(dim)
                ranges.append(dim)
                continue
            label = dim or f"{value.name}[{axis}]"
            if label not in symbols:
                low, high = bounds.get(label, (1, None))
                if high is None:
                    notes.append(f"the dimension {label} is bounded by {LARGEST}, since Core ML needs a bound")
                symbols[label] = get_new_symbol(), max(low, 1), max(LARGEST if high is None else high, low, 1)
            symbol, low, high = symbols[label]
            shape.append(symbol)
            ranges.append(ct.RangeDim(low, high, default=low))
        specs[name] = mb.placeholder(shape=shape, dtype=dtype)
        flexible = any(isinstance(r, ct.RangeDim) for r in ranges)
        shapes.append(ct.TensorType(name=name, shape=ranges, dtype=dtype) if flexible else None)
        ports.append(Port(value.name or "", name, _hub_type(value), dims))
    return ports, specs, shapes, problems


def _hub_type(value: ir.Value) -> str:
    assert value.dtype is not None
    return value.dtype.name


def _outer(value: ir.Value, target: Any, notes: list[str]) -> Any:
    """The type of an input or output, in which Core ML has int32 and floats only."""
    if not isinstance(value.type, ir.TensorType):
        raise Unsupported(f"Core ML's inputs and outputs are tensors; this is {value.type}")
    inner = held(value.dtype)
    if value.dtype in LOSSY:
        notes.append(f"{value.name} is {value.dtype.name.lower()} in the source and {LOSSY[value.dtype]} in Core ML")
    if inner == types.bool:
        return types.int32
    return types.fp32 if inner == types.fp16 and target < ct.target.iOS16 else inner


def _dims(value: ir.Value) -> tuple[int | str | None, ...]:
    if value.shape is None:
        raise Unsupported("its rank is not known", "give the input a shape")
    dims = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    if len(dims) > RANK:
        raise Unsupported(f"it has rank {len(dims)}; Core ML holds {RANK} at most")
    if 0 in dims:
        raise Unsupported("it is empty; Core ML has no empty tensors")
    return dims


def _taken(given: Var, value: ir.Value) -> Var:
    """The program's own value behind an input."""
    inner = held(value.dtype)
    if value.shape is not None and len(value.shape) == 0:
        given = mb.squeeze(x=given, axes=[0])
    given = mb.not_equal(x=given, y=np.int32(0)) if inner == types.bool else cast(given, inner)
    assert value.dtype is not None
    DECLARED.get()[given] = value.dtype
    return given


def _stand_in(value: ir.Value) -> Any:
    """Something in an input's place, so that the operators behind a refused input are still looked at."""
    try:
        dims = [d if isinstance(d, int) else 1 for d in value.shape or ()]
        return mb.fill(shape=dims or [1], value=np.zeros((), types.nptype_from_builtin(held(value.dtype)))[()])
    except (Unsupported, ValueError):
        return FAILED


def _outputs(
    graph: ir.Graph, results: list[Any], taken: set[Var], target: Any, names: Names, notes: list[str]
) -> tuple[list[Port], list[Var]]:
    """The function's outputs: each a value of its own, by its own name, in a type that Core ML gives out."""
    ports, given, problems = [], [], []
    for value, result in zip(graph.outputs, results, strict=True):
        try:
            dtype = _outer(value, target, notes)
        except Unsupported as e:
            problems.append(Problem("output", e.reason, e.hint, (Source(node=value.name or ""),)))
            continue
        if not isinstance(result, Var):
            problems.append(Problem("output", "it is not a tensor", places=(Source(node=value.name or ""),)))
            continue
        if any(isinstance(d, (int, np.integer)) and d == 0 for d in result.shape):
            problems.append(
                Problem("output", "it is empty; Core ML has no empty tensors", places=(Source(node=value.name or ""),))
            )
            continue
        name = names.take(value.name or "output")
        if name != value.name:
            notes.append(f"the output {value.name} is called {name}")
        out = cast(result, dtype)
        if out in taken or out.op is None or out.op.op_type == "const":
            out = mb.identity(x=out)
        taken.add(out)
        out.name = out.op.name = name
        given.append(out)
        shape = (
            tuple(d if isinstance(d, int) else d.value for d in value.shape) if value.shape is not None else (None,) * out.rank
        )
        ports.append(Port(value.name or "", name, _hub_type(value), shape))
    if problems:
        raise ConversionError(DIRECTION, merge(problems))
    return ports, given


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without coremltools' progress bars and its remarks: what is narrowed is checked and noted here."""
    bar, logger = pass_pipeline.tqdm, logging.getLogger("coremltools")
    level = logger.level
    pass_pipeline.tqdm = lambda passes, **_: passes
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        pass_pipeline.tqdm = bar
        logger.setLevel(level)


@_quiet()
def convert(model: ir.Model, target: Any, precision: str, bounds: Bounds) -> CoreMLModel:
    """Lower a hub model and hand the program to coremltools.

    Raises:
        ConversionError: with every operator, input and output that Core ML cannot hold.
    """
    mil = MilTarget(target)
    DECLARED.set({})
    notes: list[str] = []
    names = Names()
    ports, specs, shapes, problems = _inputs(model.graph, target, bounds, names, notes)
    if problems:
        specs = {}
    with Function(specs, target) as function:
        values = _Values(mil)
        if not problems:
            values |= {v: _taken(function.inputs[p.coreml], v) for v, p in zip(model.graph.inputs, ports, strict=True)}
        else:  # the operators are looked at all the same
            values |= {v: _stand_in(v) for v in model.graph.inputs}
        try:
            lower(map(deduce.known, calls.of(model.graph)), rules, values, mil)
        except ConversionError as e:
            raise ConversionError(DIRECTION, merge([*problems, *e.problems])) from e
        if problems:
            raise ConversionError(DIRECTION, merge(problems))
        results = resolve([Ref(v) for v in model.graph.outputs], values)
        outputs, given = _outputs(model.graph, results, set(function.inputs.values()), target, names, notes)
        function.set_outputs(given)
    program = Program()
    program.add_function("main", function)
    made, kept = _package(program, target, precision, [s for s in shapes if s is not None], model)
    notes += kept
    return CoreMLModel.make(made, ports, outputs, notes, model, half=precision == "fp16")


def _package(program: Program, target: Any, precision: str, shapes: list[Any], model: ir.Model) -> tuple[Any, list[str]]:
    """coremltools' passes and serializer, without what they print; with what is worth knowing of them."""
    half = HalfPrecision()
    asked = ct.transform.FP16ComputePrecision(op_selector=half) if precision == "fp16" else ct.precision.FLOAT32
    try:
        made = ct.convert(
            program,
            source="milinternal",
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=asked,
            inputs=shapes or None,
            skip_model_load=True,
        )
    except ValueError as e:
        if "rank" not in str(e):
            raise
        raise ConversionError(DIRECTION, _too_high(model, str(e))) from e
    notes = (
        [f"stays in float32, since float16 cannot hold its numbers: {', '.join(dict.fromkeys(half.kept))}"] if half.kept else []
    )
    return made, notes


def _too_high(model: ir.Model, message: str) -> list[Problem]:
    """The operators whose results have more axes than Core ML holds."""
    found = [
        Problem(n.op_type, f"a result has rank {len(o.shape)}; Core ML holds {RANK} at most", places=(calls.call_of(n).where,))
        for n in model.graph
        for o in n.outputs
        if o.shape is not None and len(o.shape) > RANK
    ]
    return merge(found) or [Problem("rank", message)]
