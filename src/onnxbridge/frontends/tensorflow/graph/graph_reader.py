"""A TensorFlow graph as calls to lower, with called functions inlined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import SourceLocation
from onnxbridge.frontends.tensorflow import lookup_tables
from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.frontends.tensorflow.graph import control_flow_calls, op_schemas
from onnxbridge.frontends.tensorflow.graph.control_flow_v1 import Branching, ControlFlowV1, Loop, has_control_flow
from onnxbridge.frontends.tensorflow.graph.functions import BRANCHES, LOOPS, called_function, function
from onnxbridge.frontends.tensorflow.graph.loop_shapes import infer_loop_shapes
from onnxbridge.frontends.tensorflow.graph.merge_dilated_conv import DilatedConv, match_dilated_conv
from onnxbridge.frontends.tensorflow.graph.tensors import (
    StoredValue,
    is_list,
    is_stored,
    plain_name,
    ref,
    refs,
    sizes_of,
    tensor_array_of,
    through_identities,
    written_sizes,
)
from onnxbridge.frontends.tensorflow.graph.variables import OF_ROWS, WRITES, Writes
from onnxbridge.lowering import Body, Call, Ref, Schema

VIEWS = frozenset({"Reshape", "Squeeze", "ExpandDims"})
_ALIASES = frozenset({"Identity", "ReadVariableOp"})
Declared = tuple[str, ir.DataType | None, list[int | str | None] | None]


@dataclass
class GraphReader:
    """Reads graphs as calls, and records the name, dtype and shape of each value. `where` gives an operator's location.

    `constants` is the state of the graph's own constants: "constant" beside variables, empty in a frozen graph, whose constants
    are weights too. `writes` finds the variables that the graph changes, None if there are none; `states` has the present value
    of each by its stored one.
    """

    location: Callable[[Any], SourceLocation]
    constants: str = ""
    declared: dict[Hashable, Declared] = field(default_factory=dict)
    writes: Writes | None = None
    states: dict[Any, Any] = field(default_factory=dict)
    _flows: dict[Any, ControlFlowV1 | None] = field(default_factory=dict)

    def calls(self, graph: Any, outputs: Iterable[Any], bound: dict[str, Any], prefix: str = "") -> Iterator[Call]:
        """The calls that the outputs need. `bound` maps names of graph tensors to values, and is extended.

        Keys are (prefix, tensor name); the operators of a called function have the call's name as prefix.
        """
        outputs = list(outputs)
        flow = self._control_flow(graph)
        if flow is not None:
            units = flow.ordered(outputs, bound)
            used = {t.name for t in outputs} | {t.name for unit in units for t in flow.inputs_of(unit)}
        else:
            effects = [op for op in graph.get_operations() if self.writes.handles(op)] if self.writes else []
            units, used = _reachable(outputs, bound, effects)
        for op in units:
            if isinstance(op, (Loop, Branching)):
                assert flow is not None
                yield control_flow_calls.call(self, flow, op, bound, prefix)
            elif op.type == "Const":
                bound[op.outputs[0].name] = Ref(StoredValue(prefix + op.name, _constant(op), self.constants))
            elif op.type == "VarHandleOp":
                bound[op.outputs[0].name] = Ref(StoredValue(prefix + op.name, _shared(op)))
            elif op.type in lookup_tables.OPERATORS:
                bound[op.outputs[0].name] = Ref(StoredValue(prefix + op.name, functools.partial(lookup_tables.of_operator, op)))
            elif called_function(op):
                yield from self._called(op, bound, prefix)
            elif op.type in BRANCHES:
                yield self._branch(op, bound, prefix)
            elif op.type in LOOPS:
                yield from self._loop(op, bound, prefix)
            elif op.type == "BatchToSpaceND" and (found := match_dilated_conv(op)) is not None:
                yield from self._dilated_conv(op, found, bound, prefix)
            elif op.type in WRITES:
                yield from self._write(op, bound, prefix)
            elif op.type == "ReadVariableOp" and (state := self._state(bound.get(op.inputs[0].name))) is not None:
                bound[op.outputs[0].name] = state
            elif op.type in _ALIASES and is_stored(op.inputs[0], bound):
                bound[op.outputs[0].name] = bound[op.inputs[0].name]
            elif op.type in VIEWS and (weight := _viewed_weight(op.outputs[0], bound)) is not None:
                bound[op.outputs[0].name] = bound[weight.name]
            else:
                yield self._operator(op, bound, prefix, used)

    def _control_flow(self, graph: Any) -> ControlFlowV1 | None:
        """The TensorFlow 1 control flow of a graph, None if it has none."""
        if graph not in self._flows:
            self._flows[graph] = None
            if has_control_flow(graph):
                infer_loop_shapes(graph)
                self._flows[graph] = ControlFlowV1(graph)
        return self._flows[graph]

    def _operator(self, op: Any, bound: dict[str, Any], prefix: str, used: set[str]) -> Call:
        known = op_schemas.definition(op.type) or op_schemas.define(op.op_def)
        inputs = [self._state(i) or i for i in refs(op_schemas.groups_of(op, known), bound, prefix)]
        attrs = _attributes(op, known)
        if op.type == "Reshape":
            inputs[1] = _sizes(op.outputs[0]) or inputs[1]
        elif op.type in ("TensorListReserve", "EmptyTensorList"):
            written = written_item(op.outputs[0])
            if written is not None and written.op.type == "RaggedTensorToVariant":
                inputs[0], attrs["element_dtype"] = None, hub_dtype(written.op.inputs[-1].dtype)
            elif written is not None:
                inputs[0] = tuple(-1 if s is None else s for s in written.shape.as_list())
        elif op.type == "TensorArrayV3":
            attrs["element_shape"] = written_sizes(op)
        elif op.type in ("TensorArrayWriteV3", "TensorArrayScatterV3"):
            array = tensor_array_of(op.inputs[0])
            attrs["dynamic_size"] = array is not None and array.get_attr("dynamic_size")
        outputs = tuple(self.declare(t, prefix) if t.name in used else None for t in op.outputs)
        name = f"complex::{op.type}" if any(t.dtype.is_complex for t in (*op.inputs, *op.outputs)) else op.type
        return Call(name, tuple(inputs), attrs, outputs, self.location(op), known.schema)

    def declare(self, tensor: Any, prefix: str) -> tuple[str, str]:
        key = (prefix, tensor.name)
        dtype = None if is_list(tensor) else hub_dtype(tensor.dtype)
        shape = tensor.shape.as_list() if dtype is not None and tensor.shape.rank is not None else None
        self.declared[key] = (prefix + plain_name(tensor), dtype, shape)
        return key

    def _called(self, op: Any, bound: dict[str, Any], prefix: str) -> Iterator[Call]:
        graph = function(op, called_function(op), [t.shape for t in op.inputs])
        inner = dict(zip((t.name for t in graph.inputs), refs(op.inputs, bound, prefix), strict=True))
        inner_prefix = f"{prefix}{op.name}/"
        yield from self.calls(graph, graph.outputs, inner, inner_prefix)
        for outer, result in zip(op.outputs, graph.outputs, strict=True):
            bound[outer.name] = ref(result, inner, inner_prefix)

    def _dilated_conv(self, op: Any, found: DilatedConv, bound: dict[str, Any], prefix: str) -> Iterator[Call]:
        """The convolution as one call; with one spatial axis, it is wrapped in an axis of height 1."""
        known, where = op_schemas.definition(found.conv.type), self.location(op)
        assert known is not None
        x, filter = refs([found.x, found.conv.inputs[1]], bound, prefix)
        attrs = _attributes(found.conv, known) | found.attrs
        output = self.declare(op.outputs[0], prefix)
        if not found.one_axis:
            yield Call(found.conv.type, (x, filter), attrs, (output,), where, known.schema)
            return
        tall, wide = (("dilated", prefix, op.name, i) for i in range(2))
        yield Call("ExpandDims", (x, 1), {}, (tall,), where, Schema(("input", "dim")))
        yield Call(found.conv.type, (Ref(tall), filter), attrs, (wide,), where, known.schema)
        yield Call("Squeeze", (Ref(wide),), {"squeeze_dims": (1,)}, (output,), where, Schema(("input",)))

    def _branch(self, op: Any, bound: dict[str, Any], prefix: str) -> Call:
        """If or Case; the branches capture outer values."""
        inputs_ = refs(op.inputs, bound, prefix)
        changed = self._changed(op, bound)
        states = {stored: (prefix, op.name, "variable", i) for i, stored in enumerate(changed)}
        outputs = (*(self.declare(t, prefix) for t in op.outputs), *states.values())
        shapes = [t.shape for t in op.inputs][1:]

        def body(name: str, label: str) -> Body:
            graph = function(op, name, shapes)
            inner = dict(zip((t.name for t in graph.inputs), inputs_[1:], strict=True))
            return self.body(graph, graph.outputs, (), inner, f"{prefix}{op.name}/{label}/", changed=changed)

        if "If" in op.type:
            bodies = {a: body(op.get_attr(a).name, a) for a in ("then_branch", "else_branch")}
            self.states |= {stored: Ref(key) for stored, key in states.items()}
            return Call("If", (inputs_[0],), bodies, outputs, self.location(op), Schema(("cond",)))
        branches = [body(f.name, f"branch_{i}") for i, f in enumerate(op.get_attr("branches"))]
        self.states |= {stored: Ref(key) for stored, key in states.items()}
        return self.case(op, inputs_[0], branches, outputs)

    def case(self, op: Any, index: Any, branches: list[Body], outputs: tuple[Hashable, ...]) -> Call:
        """The branches as nested Ifs; out-of-range indices select the last."""
        rest = branches[-1]
        where = self.location(op)
        for i in reversed(range(1, len(branches) - 1)):
            inner = tuple(("case", id(op), i, k) for k in range(len(outputs)))
            attrs = {"index": i, "then_branch": branches[i], "else_branch": rest}
            call = Call("Case", (index,), attrs, inner, where, Schema(("branch_index",)))
            rest = Body((), [call], tuple(Ref(k) for k in inner))
        attrs = {"index": 0, "then_branch": branches[0], "else_branch": rest}
        return Call("Case", (index,), attrs, outputs, where, Schema(("branch_index",)))

    def _loop(self, op: Any, bound: dict[str, Any], prefix: str) -> Iterator[Call]:
        """A While whose states are the values that its body changes, variables included; the others are captured."""
        variables = self._changed(op, bound)
        inputs_ = refs(op.inputs, bound, prefix)
        graphs = {a: function(op, op.get_attr(a).name) for a in ("cond", "body")}
        inputs, results = graphs["body"].inputs, graphs["body"].outputs
        changed = [i for i, t in enumerate(results) if through_identities(t) is not inputs[i]]
        for i, outer in enumerate(op.outputs):
            if i not in changed:
                bound[outer.name] = inputs_[i]
        attrs: dict[str, Any] = {"shapes": (*(sizes_of(inputs[i]) for i in changed), *(None for _ in variables))}
        for a, graph in graphs.items():
            inner_prefix = f"{prefix}{op.name}/{a}/"
            inner = {t.name: inputs_[i] for i, t in enumerate(graph.inputs) if i not in changed}
            wanted = graph.outputs if a == "cond" else [results[i] for i in changed]
            inside = {stored: (inner_prefix, f"variable {i}") for i, stored in enumerate(variables)}
            taken_in = (*((inner_prefix, graph.inputs[i].name) for i in changed), *inside.values())
            states = {**self.states, **{stored: Ref(key) for stored, key in inside.items()}}
            attrs[a] = self.body(graph, wanted, taken_in, inner, inner_prefix, states, variables if a == "body" else ())
        after = {stored: (prefix, op.name, "variable", i) for i, stored in enumerate(variables)}
        outputs = (*(self.declare(op.outputs[i], prefix) for i in changed), *after.values())
        starts = (*(inputs_[i] for i in changed), *(self.states[stored] for stored in variables))
        self.states |= {stored: Ref(key) for stored, key in after.items()}
        yield Call("While", (starts,), attrs, outputs, self.location(op), Schema(("input",)))

    def body(
        self, graph: Any, outputs: Any, inputs: tuple[Any, ...], bound: dict[str, Any], prefix: str,
        states: Mapping[Any, Any] | None = None, changed: Sequence[Any] = (),
    ) -> Body:  # fmt: skip
        """The graph as a body. `states` are the values of variables at its start, by default the present ones; those of `changed`
        are results, too."""
        bound |= {name: Ref((p, name)) for p, name in inputs}
        before, self.states = self.states, dict(self.states if states is None else states)
        calls = list(self.calls(graph, outputs, bound, prefix))
        results = (*(ref(t, bound, prefix) for t in outputs), *(self.states[stored] for stored in changed))
        self.states = before
        return Body(inputs, calls, results)

    def _state(self, value: Any) -> Any:
        """The present value of a variable that the graph changes; None for other values."""
        return self.states.get(value.key) if self.states and isinstance(value, Ref) else None

    def _changed(self, op: Any, bound: dict[str, Any]) -> list[Any]:
        """The stored values of the variables that an operator changes."""
        return [bound[handle.name].key for handle in self.writes.handles(op)] if self.writes else []

    def _write(self, op: Any, bound: dict[str, Any], prefix: str) -> Iterator[Call]:
        """The next value of a variable."""
        [stored] = self._changed(op, bound)
        inputs, where = refs(op.inputs[1:], bound, prefix), self.location(op)
        known = op_schemas.definition(WRITES[op.type])
        if known is None:
            self.states[stored] = inputs[0]
            return
        if op.type in OF_ROWS:
            rows = (prefix, op.name, "rows")
            yield Call("ExpandDims", (inputs[0], -1), {}, (rows,), where, Schema(("input", "dim")))
            inputs[0] = Ref(rows)
        name = f"complex::{WRITES[op.type]}" if op.inputs[-1].dtype.is_complex else WRITES[op.type]
        key = (prefix, op.name, "next")
        yield Call(name, (self.states[stored], *inputs), _attributes(op, known), (key,), where, known.schema)
        self.states[stored] = Ref(key)


def written_item(items: Any) -> Any:
    """A tensor of known rank that is written into a list anywhere, or None if none is."""
    for op in items.consumers():
        at = [i for i, t in enumerate(op.inputs) if t is items]
        written = None
        if op.type in ("TensorListSetItem", "TensorListPushBack"):
            written = op.inputs[-1] if op.inputs[-1].shape.rank is not None else None
        elif op.type in LOOPS or called_function(op):
            graph = function(op, op.get_attr("body").name if op.type in LOOPS else called_function(op))
            written = next((found for i in at if (found := written_item(graph.inputs[i])) is not None), None)
        elif op.type in ("If", "StatelessIf"):
            graphs = [function(op, op.get_attr(a).name) for a in ("then_branch", "else_branch")]
            branches = [written_item(g.inputs[i - 1]) for g in graphs for i in at]
            written = next((b for b in branches if b is not None), None)
        if written is not None:
            return written
    return None


def _attributes(op: Any, known: op_schemas.Definition) -> dict[str, Any]:
    """The attributes that the definition's operator has."""
    given = op.node_def.attr
    return {name: op_schemas.plain(given[name]) for name in known.attrs if name in given}


def _viewed_weight(tensor: Any, bound: dict[str, Any]) -> Any:
    """The weight that a chain of views restores; None if its shape differs."""
    shape = tensor.shape
    while tensor.op.type in VIEWS:
        tensor = tensor.op.inputs[0]
    weight = shape.is_fully_defined() and tensor.shape.is_fully_defined() and shape.as_list() == tensor.shape.as_list()
    return tensor if weight and is_stored(tensor, bound) else None


def _constant(op: Any) -> Callable[[], Any]:
    return lambda: op_schemas.array(op.get_attr("value"))


def _shared(op: Any) -> Callable[[], Any]:
    """Reads a variable of an old SavedModel, which is identified by its shared name."""
    import tensorflow as tf

    def read() -> Any:
        named = {k: op.get_attr(k) for k in ("container", "shared_name")}
        handle = tf.raw_ops.VarHandleOp(dtype=op.get_attr("dtype"), shape=op.get_attr("shape"), **named)
        return op_schemas.eager_array(tf.raw_ops.ReadVariableOp(resource=handle, dtype=op.get_attr("dtype")))

    return read


def _reachable(outputs: Iterable[Any], bound: dict[str, Any], effects: Iterable[Any] = ()) -> tuple[list[Any], set[str]]:
    """The operators that the outputs and the effects on variables need, in creation order, and the names of the used values.

    An operator that reads or changes a variable is created after those that must run before it.
    """
    outputs = list(outputs)
    used = {t.name for t in outputs}
    stack = [*(t.op for t in outputs if t.name not in bound), *effects]
    found: set[Any] = set()
    while stack:
        op = stack.pop()
        if op in found:
            continue
        found.add(op)
        for t in op.inputs:
            used.add(t.name)
            if t.name not in bound:
                stack.append(t.op)
    return sorted(found, key=lambda op: op._id), used


def _sizes(reshaped: Any) -> tuple[int, ...] | None:
    """A Reshape's target shape if TensorFlow infers all sizes but at most one, which is -1."""
    if reshaped.shape.rank is None:
        return None
    sizes = reshaped.shape.as_list()
    if sizes.count(None) > 1 or 0 in sizes and None in sizes:
        return None
    return tuple(-1 if s is None else s for s in sizes)
