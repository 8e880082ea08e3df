"""The inputs, states and outputs of a program: their types, names and sizes as Core ML has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import coremltools as ct
import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import get_new_symbol, types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic
from coremltools.converters.mil.mil.var import Var

from onnxbridge.backends.coreml.artifact import Growth, Port
from onnxbridge.backends.coreml.element_types import DECLARED, LOSSY, cast, held
from onnxbridge.backends.coreml.interface.kv_cache_state import LARGEST, Grown, bounds_of, growth
from onnxbridge.backends.coreml.interface.names import Names
from onnxbridge.backends.coreml.model_options import Asked, Image
from onnxbridge.errors import Problem, Source, Unsupported, UsageError

RANK = 5


@dataclass
class Interface:
    """What is known of a model's inputs, states and outputs.

    Attributes:
        inputs, states, outputs: in the hub's order; a state is an input that the model keeps between runs.
        growths: of the states that grow, by the hub's name; positions: the inputs that say how full they are, by the size's name.
        placeholders: of the MIL function, by name.
        flexible: what coremltools has to be told beside the placeholders.
        notes: what is not as in the hub model.
        problems: what Core ML cannot hold.
        choosing: names of MIL operators that choose or make what is chosen by.
        spread: names of MIL operators between small numbers and their logarithm, or squares and their root.
    """

    asked: Asked
    inputs: list[Port] = field(default_factory=list)
    states: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    growths: dict[str, Growth] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)
    placeholders: dict[str, Any] = field(default_factory=dict)
    flexible: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    choosing: set[str] = field(default_factory=set)
    spread: set[str] = field(default_factory=set)
    _names: Names = field(default_factory=Names)
    _symbols: dict[str, tuple[Any, int, int]] = field(default_factory=dict)

    def take(self, graph: ir.Graph) -> None:
        """Read the graph's inputs."""
        known = {v.name for v in graph.inputs}
        for what, names in (("image", self.asked.images), ("shapes", self.asked.shapes), ("state", self.asked.states)):
            for name in names:
                if name not in known:
                    raise UsageError(f"{what}: the model has no input {name!r}; it has {', '.join(sorted(map(str, known)))}")
        several = [name for name, few in self.asked.shapes.items() if len(few) > 1]
        if len(several) > 1:
            if self.asked.kind == "mlprogram" and ct.target[self.asked.target] < ct.target.iOS18:
                raise UsageError(f"shapes: {', '.join(several)} each have a few; before iOS18 only one input may, "
                                 "minimum_deployment_target='iOS18'")  # fmt: skip
            if len({len(self.asked.shapes[name]) for name in several}) > 1:
                raise UsageError(f"shapes: {', '.join(several)} change theirs together, so give as many for each")
        sized = sorted({d.value for v in graph.inputs for d in v.shape or () if isinstance(d, ir.SymbolicDim) and d.value})
        for name in self.asked.bounds:
            if name not in sized and not any(size.startswith(f"{name} + ") for size in sized):
                has = f"its sizes are {', '.join(sized)}" if sized else "all of its sizes are fixed or without a name"
                raise UsageError(f"dynamic: the model's inputs have no size {name!r}; {has}")
        if self.asked.single:
            what = "a model of images" if self.asked.images else "a classifier"
            self.notes.append(f"{what} takes one at a time: {', '.join(sorted(self.asked.single))} is 1")
        made = {v.name: v for v in graph.outputs}
        for name, result in self.asked.states.items():
            if result not in made:
                raise UsageError(f"state {name}={result}: the model has no output {result!r}; it has {', '.join(map(str, made))}")
        if not graph.inputs:
            self.problems.append(Problem("input", "Core ML takes no model without inputs"))
        for value in graph.inputs:
            try:
                self._one(value, made.get(self.asked.states.get(value.name or "")))
            except Unsupported as e:
                self.problems.append(Problem("input", e.reason, e.hint, (Source(node=value.name or ""),)))
        for label in dict.fromkeys(g.label for g in self.growths.values()):
            alone = len({g.label for g in self.growths.values()}) == 1
            name = self.positions[label] = self._names.take("position" if alone else f"position_{label}")
            self.placeholders[name] = mb.placeholder(shape=[1], dtype=types.int32)
            self.notes.append(f"the input {name} says how many elements of the states along {label} are filled")
        if not self.inputs and self.states:
            self.problems.append(Problem("input", "all inputs are states; Core ML takes no model without inputs"))

    def _one(self, value: ir.Value, result: ir.Value | None) -> None:
        hub = value.name or ""
        dtype, dims = outer(value, self.asked, self.notes), tuple(1 if d in self.asked.single else d for d in _dims(value))
        name = self._named(hub, "input")
        if result is not None:
            self._state(value, result, name, dims)
        elif hub in self.asked.images:
            self._image(value, name, dims, self.asked.images[hub])
        else:
            shape, ranges = self._sizes(hub, dims or (1,))
            self.placeholders[name] = mb.placeholder(shape=shape, dtype=dtype)
            if ranges is not None:
                self.flexible.append(ct.TensorType(name=name, shape=ranges, dtype=dtype))
            self.inputs.append(Port(hub, name, _hub_type(value), dims))

    def _named(self, hub: str, what: str) -> str:
        name = self._names.take(hub or what)
        if name != hub:
            self.notes.append(f"the {what} {hub} is called {name}")
        return name

    def _state(self, value: ir.Value, result: ir.Value, name: str, dims: tuple[int | str | None, ...]) -> None:
        if ct.target[self.asked.target] < ct.target.iOS18:
            raise Unsupported("states need iOS18", "minimum_deployment_target='iOS18'")
        if not dims or held(value.dtype) not in (types.fp16, types.fp32):
            raise Unsupported("a state is a tensor of floats")
        sizes = [self._only(d) for d in dims]
        grows, told = None, ""
        if not all(isinstance(n, int) for n in sizes):
            grows = self.growths[value.name or ""] = growth(value, result, sizes, self.asked.bounds)
            sizes[grows.axis] = grows.length
            told = f", {grows.length} long along axis {grows.axis}"
            if bounds_of(grows.label, self.asked.bounds)[1] is None:
                told += f" since nobody bounded {grows.label}"
        self.placeholders[name] = mb.state_tensor_placeholder(tuple(n for n in sizes if isinstance(n, int)), dtype=types.fp16)
        self.states.append(Port(value.name or "", name, _hub_type(value), dims))
        self.notes.append(
            f"the input {value.name} is a state in float16{told}, zero at first; its next value is that of {result.name}"
        )

    def _only(self, dim: int | str | None) -> int | str | None:
        """A size; one that is bounded to a single number is that number."""
        low, high = self.asked.bounds.get(dim, (0, None)) if isinstance(dim, str) else (0, None)
        return low if low == high else dim

    def _image(self, value: ir.Value, name: str, dims: tuple[int | str | None, ...], image: Image) -> None:
        laid = dims if image.layout == "NCHW" or len(dims) != 4 else (dims[0], dims[3], dims[1], dims[2])
        if len(laid) != 4 or laid[1] not in (image.channels, None) or held(value.dtype) not in (types.fp32, types.fp16):
            wanted = f"{image.layout} with {image.channels} channels"
            raise Unsupported(f"a {image.color} image is a float tensor of {wanted}; this is {list(dims)}")
        if laid[0] != 1:
            self.notes.append(f"the image {value.name} is one picture, a batch of 1")
        laid = (1, image.channels, *laid[2:])
        shape, ranges = self._sizes(value.name or "", laid)
        kind = {"name": name, "color_layout": ct.colorlayout[image.color], "channel_first": True}
        self.placeholders[name] = mb.placeholder(shape=shape, dtype=types.fp32)
        self.flexible.append(ct.ImageType(shape=shape if ranges is None else ranges, **kind))
        dims = laid if image.layout == "NCHW" else (laid[0], *laid[2:], laid[1])
        self.inputs.append(Port(value.name or "", name, _hub_type(value), dims))

    def _sizes(self, hub: str, dims: Sequence[int | str | None]) -> tuple[list[Any], Any]:
        """The sizes of a placeholder, and the range of shapes where there is more than one."""
        few = self.asked.shapes.get(hub)
        if few is not None:
            if len(few[0]) != len(dims) or any(isinstance(d, int) and d != n for s in few for d, n in zip(dims, s, strict=True)):
                raise UsageError(f"shapes of {hub}: the model's own shape is {list(dims)}")
            if len(few) == 1:
                return list(few[0]), None
            columns = list(zip(*few, strict=True))
            # one dimension has one symbol, so that sizes which go together in two inputs are known to be equal
            shape = [c[0] if len(set(c)) == 1 else self._symbol(d or f"{hub}[{a}]", min(c), max(c))[0]
                     for a, (c, d) in enumerate(zip(columns, dims, strict=True))]  # fmt: skip
            return shape, ct.EnumeratedShapes(shapes=[list(s) for s in few], default=list(few[0]))
        shape, ranges = [], []
        for axis, dim in enumerate(map(self._only, dims)):
            if isinstance(dim, int):
                shape.append(dim)
                ranges.append(dim)
                continue
            label = dim or f"{hub}[{axis}]"
            if label not in self._symbols:
                low, high = bounds_of(label, self.asked.bounds)
                if high is None:
                    self.notes.append(f"the dimension {label} is bounded by {LARGEST}, since Core ML needs a bound")
                self._symbol(label, max(low, 1), max(LARGEST if high is None else high, low, 1))
            symbol, low, high = self._symbols[label]
            shape.append(symbol)
            ranges.append(ct.RangeDim(low, high, default=low))
        return shape, ranges if any(isinstance(r, ct.RangeDim) for r in ranges) else None

    def _symbol(self, label: Any, low: int, high: int) -> tuple[Any, int, int]:
        return self._symbols.setdefault(label, (get_new_symbol(), low, high))

    def inside(self, given: Var, value: ir.Value, function: Any) -> Var | Grown:
        """The program's own value behind an input."""
        inner = held(value.dtype)
        if value.name in self.growths:
            grows = self.growths[value.name]
            return Grown(given, function.inputs[self.positions[grows.label]], grows, inner)
        if value.name in self.asked.states:
            given = cast(mb.read_state(input=given), inner)
        elif value.name in self.asked.images:
            given = cast(_seen(given, self.asked.images[value.name or ""]), inner)
        else:
            if value.shape is not None and len(value.shape) == 0:
                given = mb.squeeze(x=given, axes=[0])
            given = mb.not_equal(x=given, y=np.int32(0)) if inner == types.bool else cast(given, inner)
        assert value.dtype is not None
        DECLARED.get()[given] = value.dtype
        return given

    def give(self, graph: ir.Graph, results: Sequence[Any], function: Any) -> list[Var]:
        """The function's outputs: each a value of its own, by its own name, in a type that Core ML gives out."""
        given = []
        taken = set(function.inputs.values())
        kept = {output: name for name, output in self.asked.states.items()}
        for value, result in zip(graph.outputs, results, strict=True):
            place = (Source(node=value.name or ""),)
            try:
                if isinstance(result, list):
                    raise Unsupported("it is a sequence; Core ML gives out tensors", "give its elements, or concatenate them")
                if not isinstance(result, Var):
                    raise Unsupported("it is not a tensor")
                if any(isinstance(d, (int, np.integer)) and d == 0 for d in result.shape):
                    raise Unsupported("it is empty; Core ML has no empty tensors")
                if value.name in kept:
                    self._keep(function, kept[value.name], result)
                    continue
                dtype = outer(value, self.asked, self.notes)
            except Unsupported as e:
                self.problems.append(Problem("output", e.reason, e.hint, place))
                continue
            name = self._named(value.name or "output", "output")
            out = cast(result, dtype)
            dims = value.shape if value.shape is not None else (ir.SymbolicDim(None),) * out.rank
            shape = tuple(d if isinstance(d, int) else d.value for d in dims)
            if self.asked.labels and self.asked.single and value is graph.outputs[-1] and any(is_symbolic(n) for n in out.shape):
                out = mb.reshape(x=out, shape=[d if isinstance(d, int) else 1 for d in shape])
            if out in taken or out.op is None or out.op.op_type == "const":
                out = mb.identity(x=out)
            taken.add(out)
            out.name = out.op.name = name
            given.append(out)
            self.outputs.append(Port(value.name or "", name, _hub_type(value), shape))
        if given and self.asked.labels and not self.problems:
            self._scores(given[-1])
        if not given and not self.problems:
            self.problems.append(Problem("output", "all outputs are states; Core ML takes no model without outputs"))
        return given

    def _scores(self, result: Var) -> None:
        """Look whether an output can be a classifier's: one score for each label."""
        name, labels, sizes = self.outputs[-1].hub, len(self.asked.labels), list(result.shape)
        if result.dtype not in (types.fp16, types.fp32):
            raise UsageError(f"labels: the last output, {name}, is {self.outputs[-1].dtype.lower()}; scores are floats")
        others = [n for n in sizes[:-1] if isinstance(n, (int, np.integer)) and n != 1]
        if not sizes or others or not isinstance(sizes[-1], (int, np.integer)) or sizes[-1] != labels:
            shape = list(self.outputs[-1].shape)
            raise UsageError(f"labels: there are {labels}; the last output, {name}, has shape {shape}, not one score for each")
        if not all(isinstance(n, (int, np.integer)) for n in sizes):
            raise UsageError(f"labels: only the running model knows how many the last output, {name}, scores at once, and a "
                             "classifier takes one at a time; give the inputs a batch of 1")  # fmt: skip

    def _keep(self, function: Any, hub: str, result: Var) -> None:
        """Write a state's next value; one that grows is written where it is concatenated."""
        if hub in self.growths:
            return
        port = next(p for p in self.states if p.hub == hub)
        if tuple(result.shape) != tuple(port.shape):
            raise Unsupported(f"the state {hub} has shape {list(port.shape)}, its next value {list(result.shape)}",
                              "export the model with a cache of a fixed length")  # fmt: skip
        mb.coreml_update_state(state=function.inputs[port.coreml], value=cast(result, types.fp16))


def _seen(given: Var, image: Image) -> Var:
    """What the network gets of a picture."""
    if any(s != 1 for s in image.scale):
        given = mb.mul(x=given, y=image.along(image.scale))
    if any(image.bias):
        given = mb.add(x=given, y=image.along(image.bias))
    return given if image.layout == "NCHW" else mb.transpose(x=given, perm=[0, 2, 3, 1])


def _hub_type(value: ir.Value) -> str:
    assert value.dtype is not None
    return value.dtype.name


def outer(value: ir.Value, asked: Asked, notes: list[str]) -> Any:
    """The type of an input or output, in which Core ML has int32 and floats only.

    Raises:
        Unsupported: if Core ML has nothing for it.
    """
    if not isinstance(value.type, ir.TensorType):
        raise Unsupported(f"Core ML's inputs and outputs are tensors; this is {value.type}")
    inner = held(value.dtype)
    if value.dtype in LOSSY:
        notes.append(f"{value.name} is {value.dtype.name.lower()} in the source and {LOSSY[value.dtype]} in Core ML")
    if inner == types.bool:
        return types.int32
    older = asked.kind == "neuralnetwork" or ct.target[asked.target] < ct.target.iOS16
    return types.fp32 if inner == types.fp16 and older else inner


def _dims(value: ir.Value) -> tuple[int | str | None, ...]:
    if value.shape is None:
        raise Unsupported("its rank is not known", "give the input a shape")
    dims = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    if len(dims) > RANK:
        raise Unsupported(f"it has rank {len(dims)}; Core ML holds {RANK} at most")
    if 0 in dims:
        raise Unsupported("it is empty; Core ML has no empty tensors")
    return dims


def stand_in(value: ir.Value) -> Any:
    """A placeholder in an input's place, so that what is behind a refused one is looked at too; None where none is like it."""
    dims = [d if isinstance(d, int) else 1 for d in value.shape or ()]
    try:
        return None if 0 in dims else mb.placeholder(shape=dims or [1], dtype=held(value.dtype))
    except Unsupported:
        return None
