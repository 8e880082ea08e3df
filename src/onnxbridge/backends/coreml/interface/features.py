"""The inputs, states and outputs of a program: their dtypes, names and sizes in Core ML."""

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

from onnxbridge.backends.coreml.element_types import HUB_DTYPES, LOSSY, cast, mil_type
from onnxbridge.backends.coreml.interface.feature_values import Feature, GrowingState
from onnxbridge.backends.coreml.interface.kv_cache_state import DEFAULT_BOUND, GrowingStateValue, bounds_of, growing_state
from onnxbridge.backends.coreml.interface.names import Names
from onnxbridge.backends.coreml.legalize.runtime_sizes import MAX_RANK
from onnxbridge.backends.coreml.model_options import CoreMLOptions, Image
from onnxbridge.errors import Problem, SourceLocation, Unsupported, UsageError
from onnxbridge.hub.ir.values import dtype_name


@dataclass
class Interface:
    """The inputs, states and outputs of a model.

    Attributes:
        inputs, states, outputs: in the hub's order; a state is an input that the model stores between runs.
        growths: how states grow, by the hub's name.
        positions: the input that says how many elements of growing states are filled, by the name of the dimension.
        placeholders: of the MIL function, by name.
        flexible: input types for `ct.convert`: flexible shapes and images.
        notes: the differences to the hub model.
        problems: what Core ML does not support.
        fp32_selection: names of MIL operators that select elements or compute the scores they are selected by.
        fp32_logs: names of MIL operators between small numbers and their logarithm, or squares and their root.
        fp32_requested: names of the MIL operators that the user keeps in float32.
    """

    options: CoreMLOptions
    inputs: list[Feature] = field(default_factory=list)
    states: list[Feature] = field(default_factory=list)
    outputs: list[Feature] = field(default_factory=list)
    growing_states: dict[str, GrowingState] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)
    placeholders: dict[str, Any] = field(default_factory=dict)
    flexible: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    fp32_selection: set[str] = field(default_factory=set)
    fp32_logs: set[str] = field(default_factory=set)
    fp32_requested: set[str] = field(default_factory=set)
    _names: Names = field(default_factory=Names)
    _symbols: dict[str, tuple[Any, int, int]] = field(default_factory=dict)

    def read_inputs(self, graph: ir.Graph) -> None:
        """Read the graph's inputs."""
        known = {v.name for v in graph.inputs}
        for what, names in (("image", self.options.images), ("shapes", self.options.shapes), ("state", self.options.states)):
            for name in names:
                if name not in known:
                    raise UsageError(f"{what}: the model has no input {name!r}; it has {', '.join(sorted(map(str, known)))}")
        several = [name for name, shapes in self.options.shapes.items() if len(shapes) > 1]
        if len(several) > 1:
            if self.options.kind == "mlprogram" and ct.target[self.options.target] < ct.target.iOS18:
                raise UsageError(f"shapes: {', '.join(several)} have several shapes each; this needs iOS18, "
                                 "minimum_deployment_target='iOS18'")  # fmt: skip
            if len({len(self.options.shapes[name]) for name in several}) > 1:
                raise UsageError(f"shapes: {', '.join(several)} change their shapes together; give the same number for each")
        dim_names = sorted({d.value for v in graph.inputs for d in v.shape or () if isinstance(d, ir.SymbolicDim) and d.value})
        for name in self.options.bounds:
            if name not in dim_names and not any(dim.startswith(f"{name} + ") for dim in dim_names):
                known_dims = f"dynamic dimensions: {', '.join(dim_names)}" if dim_names else "all are static or unnamed"
                raise UsageError(f"dynamic: the model's inputs have no dimension {name!r}; {known_dims}")
        if self.options.single:
            what = "an image model" if self.options.images else "a classifier"
            self.notes.append(f"{what} takes one sample at a time: {', '.join(sorted(self.options.single))} is 1")
        made = {v.name: v for v in graph.outputs}
        for name, result in self.options.states.items():
            if result not in made:
                raise UsageError(f"state {name}={result}: the model has no output {result!r}; it has {', '.join(map(str, made))}")
        if not graph.inputs:
            self.problems.append(Problem("input", "Core ML requires at least one input"))
        for value in graph.inputs:
            try:
                self._add_input(value, made.get(self.options.states.get(value.name or "")))
            except Unsupported as e:
                self.problems.append(Problem("input", e.reason, e.hint, (SourceLocation(node=value.name or ""),)))
        labels = dict.fromkeys(g.label for g in self.growing_states.values())
        for label in labels:
            name = self.positions[label] = self._names.unique("position" if len(labels) == 1 else f"position_{label}")
            self.placeholders[name] = mb.placeholder(shape=[1], dtype=types.int32)
            self.notes.append(f"the input {name} says how many elements of the states along {label} are filled")
        if not self.inputs and self.states:
            self.problems.append(Problem("input", "all inputs are states; Core ML requires at least one other input"))

    def _add_input(self, value: ir.Value, result: ir.Value | None) -> None:
        hub = value.name or ""
        dtype, dims = (
            feature_dtype(value, self.options, self.notes),
            tuple(1 if d in self.options.single else d for d in _dims(value)),
        )
        name = self._unique_name(hub, "input")
        if result is not None:
            self._add_state(value, result, name, dims)
        elif hub in self.options.images:
            self._add_image(value, name, dims, self.options.images[hub])
        else:
            shape, ranges = self._sizes(hub, dims or (1,))
            self.placeholders[name] = mb.placeholder(shape=shape, dtype=dtype)
            if ranges is not None:
                self.flexible.append(ct.TensorType(name=name, shape=ranges, dtype=dtype))
            self.inputs.append(Feature(hub, name, _hub_type(value), dims))

    def _unique_name(self, hub: str, what: str) -> str:
        name = self._names.unique(hub or what)
        if name != hub:
            self.notes.append(f"the {what} {hub} is renamed to {name}")
        return name

    def _add_state(self, value: ir.Value, result: ir.Value, name: str, dims: tuple[int | str | None, ...]) -> None:
        if ct.target[self.options.target] < ct.target.iOS18:
            raise Unsupported("states need iOS18", "minimum_deployment_target='iOS18'")
        if not dims or mil_type(value.dtype) not in (types.fp16, types.fp32):
            raise Unsupported("a state must be a float tensor")
        sizes = [self._static_if_bounded(d) for d in dims]
        details = ""
        if not all(isinstance(n, int) for n in sizes):
            grows = self.growing_states[value.name or ""] = growing_state(value, result, sizes, self.options.bounds)
            sizes[grows.axis] = grows.length
            details = f" of length {grows.length} along axis {grows.axis}"
            if bounds_of(grows.label, self.options.bounds)[1] is None:
                details += f" (no upper bound given for {grows.label})"
        self.placeholders[name] = mb.state_tensor_placeholder(tuple(n for n in sizes if isinstance(n, int)), dtype=types.fp16)
        self.states.append(Feature(value.name or "", name, _hub_type(value), dims))
        self.notes.append(
            f"the input {value.name} is a float16 state{details}, initially zero; its updated value is {result.name}"
        )

    def _static_if_bounded(self, dim: int | str | None) -> int | str | None:
        """The dimension, as a number if its bounds are equal."""
        low, high = self.options.bounds.get(dim, (0, None)) if isinstance(dim, str) else (0, None)
        return low if low == high else dim

    def _add_image(self, value: ir.Value, name: str, dims: tuple[int | str | None, ...], image: Image) -> None:
        nchw_dims = dims if image.layout == "NCHW" or len(dims) != 4 else (dims[0], dims[3], dims[1], dims[2])
        if (
            len(nchw_dims) != 4
            or nchw_dims[1] not in (image.channels, None)
            or mil_type(value.dtype) not in (types.fp32, types.fp16)
        ):
            expected = f"{image.layout} with {image.channels} channels"
            raise Unsupported(f"a {image.color} image must be a float tensor in {expected}; this has shape {list(dims)}")
        if nchw_dims[0] != 1:
            self.notes.append(f"the image {value.name} has batch size 1")
        nchw_dims = (1, image.channels, *nchw_dims[2:])
        shape, ranges = self._sizes(value.name or "", nchw_dims)
        kind = {"name": name, "color_layout": ct.colorlayout[image.color], "channel_first": True}
        self.placeholders[name] = mb.placeholder(shape=shape, dtype=types.fp32)
        self.flexible.append(ct.ImageType(shape=shape if ranges is None else ranges, **kind))
        dims = nchw_dims if image.layout == "NCHW" else (nchw_dims[0], *nchw_dims[2:], nchw_dims[1])
        self.inputs.append(Feature(value.name or "", name, _hub_type(value), dims))

    def _sizes(self, hub: str, dims: Sequence[int | str | None]) -> tuple[list[Any], Any]:
        """The shape of a placeholder, and coremltools' flexible shape, None if it is static."""
        given = self.options.shapes.get(hub)
        if given is not None:
            rank_differs = len(given[0]) != len(dims)
            if rank_differs or any(isinstance(d, int) and d != n for s in given for d, n in zip(dims, s, strict=True)):
                raise UsageError(f"shapes of {hub}: they do not match the model's shape {list(dims)}")
            if len(given) == 1:
                return list(given[0]), None
            columns = list(zip(*given, strict=True))
            # one symbol per named dimension, so that equal sizes of two inputs are known to be equal
            shape = [c[0] if len(set(c)) == 1 else self._symbol(d or f"{hub}[{a}]", min(c), max(c))[0]
                     for a, (c, d) in enumerate(zip(columns, dims, strict=True))]  # fmt: skip
            return shape, ct.EnumeratedShapes(shapes=[list(s) for s in given], default=list(given[0]))
        shape, ranges = [], []
        for axis, dim in enumerate(map(self._static_if_bounded, dims)):
            if isinstance(dim, int):
                shape.append(dim)
                ranges.append(dim)
                continue
            label = dim or f"{hub}[{axis}]"
            if label not in self._symbols:
                low, high = bounds_of(label, self.options.bounds)
                if high is None:
                    self.notes.append(
                        f"the dimension {label} gets the default upper bound {DEFAULT_BOUND}, which Core ML requires"
                    )
                self._symbol(label, max(low, 1), max(DEFAULT_BOUND if high is None else high, low, 1))
            symbol, low, high = self._symbols[label]
            shape.append(symbol)
            ranges.append(ct.RangeDim(low, high, default=low))
        return shape, ranges if any(isinstance(r, ct.RangeDim) for r in ranges) else None

    def _symbol(self, label: Any, low: int, high: int) -> tuple[Any, int, int]:
        return self._symbols.setdefault(label, (get_new_symbol(), low, high))

    def input_value(self, given: Var, value: ir.Value, function: Any) -> Var | GrowingStateValue:
        """The value that operators read for an input: cast, preprocessed, or read from a state."""
        inner = mil_type(value.dtype)
        if value.name in self.growing_states:
            grows = self.growing_states[value.name]
            return GrowingStateValue(given, function.inputs[self.positions[grows.label]], grows, inner)
        if value.name in self.options.states:
            given = cast(mb.read_state(input=given), inner)
        elif value.name in self.options.images:
            given = cast(_preprocess(given, self.options.images[value.name or ""]), inner)
        else:
            given = scalar_if_declared(given, value)
            given = mb.not_equal(x=given, y=np.int32(0)) if inner == types.bool else cast(given, inner)
        assert value.dtype is not None
        HUB_DTYPES.get()[given] = value.dtype
        return given

    def write_outputs(self, graph: ir.Graph, results: Sequence[Any], function: Any) -> list[Var]:
        """Write the function's outputs: distinct values with their own names, in dtypes that Core ML outputs have."""
        written = []
        used = set(function.inputs.values())
        state_inputs = {output: name for name, output in self.options.states.items()}
        for value, result in zip(graph.outputs, results, strict=True):
            location = (SourceLocation(node=value.name or ""),)
            try:
                if isinstance(result, list):
                    raise Unsupported("it is a sequence; Core ML outputs are tensors", "return its elements, or concatenate them")
                if not isinstance(result, Var):
                    raise Unsupported("it is not a tensor")
                if any(isinstance(d, (int, np.integer)) and d == 0 for d in result.shape):
                    raise Unsupported("it is empty; Core ML has no empty tensors")
                if value.name in state_inputs:
                    self._update_state(function, state_inputs[value.name], result)
                    continue
                dtype = feature_dtype(value, self.options, self.notes)
            except Unsupported as e:
                self.problems.append(Problem("output", e.reason, e.hint, location))
                continue
            name = self._unique_name(value.name or "output", "output")
            out = cast(result, dtype)
            dims = value.shape if value.shape is not None else (ir.SymbolicDim(None),) * out.rank
            shape = tuple(d if isinstance(d, int) else d.value for d in dims)
            if (
                self.options.labels
                and self.options.single
                and value is graph.outputs[-1]
                and any(is_symbolic(n) for n in out.shape)
            ):
                out = mb.reshape(x=out, shape=[d if isinstance(d, int) else 1 for d in shape])
            if out in used or out.op is None or out.op.op_type == "const":
                out = mb.identity(x=out)
            used.add(out)
            out.name = out.op.name = name
            written.append(out)
            self.outputs.append(Feature(value.name or "", name, _hub_type(value), shape))
        if written and self.options.labels and not self.problems:
            self._check_scores(written[-1])
        if not written and not self.problems:
            self.problems.append(Problem("output", "all outputs are states; Core ML requires at least one other output"))
        return written

    def _check_scores(self, result: Var) -> None:
        """Check that an output has one score per label, as a classifier needs.

        Raises:
            UsageError: if it does not.
        """
        name, labels, sizes = self.outputs[-1].hub, len(self.options.labels), list(result.shape)
        if result.dtype not in (types.fp16, types.fp32):
            raise UsageError(f"labels: the last output, {name}, is {self.outputs[-1].dtype.lower()}; scores must be floats")
        others = [n for n in sizes[:-1] if isinstance(n, (int, np.integer)) and n != 1]
        if not sizes or others or not isinstance(sizes[-1], (int, np.integer)) or sizes[-1] != labels:
            shape = list(self.outputs[-1].shape)
            raise UsageError(f"labels: {labels} labels, but the last output, {name}, has shape {shape}; it needs one score each")
        if not all(isinstance(n, (int, np.integer)) for n in sizes):
            raise UsageError(f"labels: the last output, {name}, has a dynamic batch size, and a classifier takes one sample "
                             "at a time; give the inputs a batch size of 1")  # fmt: skip

    def _update_state(self, function: Any, hub: str, result: Var) -> None:
        """Write a state's updated value; a growing state is written where it is concatenated."""
        if hub in self.growing_states:
            return
        feature = next(p for p in self.states if p.hub == hub)
        if tuple(result.shape) != tuple(feature.shape):
            raise Unsupported(f"the state {hub} has shape {list(feature.shape)}, its updated value {list(result.shape)}",
                              "export the model with a cache of a fixed length")  # fmt: skip
        mb.coreml_update_state(state=function.inputs[feature.coreml], value=cast(result, types.fp16))


def _preprocess(given: Var, image: Image) -> Var:
    """Preprocess an image: scale, bias and layout."""
    if any(s != 1 for s in image.scale):
        given = mb.mul(x=given, y=image.along(image.scale))
    if any(image.bias):
        given = mb.add(x=given, y=image.along(image.bias))
    return given if image.layout == "NCHW" else mb.transpose(x=given, perm=[0, 2, 3, 1])


def _hub_type(value: ir.Value) -> str:
    assert value.dtype is not None
    return value.dtype.name


def feature_dtype(value: ir.Value, options: CoreMLOptions, notes: list[str]) -> Any:
    """The MIL dtype of an input or output, which in Core ML is int32 or a float.

    Raises:
        Unsupported: if there is none.
    """
    if not isinstance(value.type, ir.TensorType):
        raise Unsupported(f"Core ML's inputs and outputs are tensors, not {value.type}")
    inner = mil_type(value.dtype)
    if value.dtype in LOSSY:
        notes.append(f"{value.name} is {dtype_name(value.dtype)} in the source and {LOSSY[value.dtype]} in Core ML")
    if inner == types.bool:
        return types.int32
    older = options.kind == "neuralnetwork" or ct.target[options.target] < ct.target.iOS16
    return types.fp32 if inner == types.fp16 and older else inner


def _dims(value: ir.Value) -> tuple[int | str | None, ...]:
    if value.shape is None:
        raise Unsupported("its rank is unknown", "give the input a shape")
    dims = tuple(d if isinstance(d, int) else d.value for d in value.shape)
    if len(dims) > MAX_RANK:
        raise Unsupported(f"it has rank {len(dims)}; Core ML supports at most {MAX_RANK}")
    if 0 in dims:
        raise Unsupported("it is empty; Core ML has no empty tensors")
    return dims


def scalar_if_declared(given: Var, value: ir.Value) -> Var:
    """An input of a program, which has at least one axis, as a scalar if it is one in the hub."""
    return mb.squeeze(x=given, axes=[0]) if value.shape is not None and len(value.shape) == 0 else given


def placeholder_like(value: ir.Value) -> Any:
    """A placeholder for an unsupported input, so that its consumers are checked too; None if there is no such placeholder."""
    dims = [d if isinstance(d, int) else 1 for d in value.shape or ()]
    try:
        return None if 0 in dims else mb.placeholder(shape=dims or [1], dtype=mil_type(value.dtype))
    except Unsupported:
        return None
