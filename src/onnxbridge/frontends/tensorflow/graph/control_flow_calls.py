"""TensorFlow 1 control flow as the calls that `If`, `Case` and `While` make."""

from __future__ import annotations

from typing import Any

from onnxbridge.frontends.tensorflow.graph.control_flow_v1 import Branching, ControlFlowV1, Loop, State
from onnxbridge.frontends.tensorflow.graph.tensors import ref, sizes_of, through_identities
from onnxbridge.lowering import Body, Call, Ref, Schema


def call(reader: Any, flow: ControlFlowV1, unit: Loop | Branching, bound: dict[str, Any], prefix: str) -> Call:
    """The loop or the branching as one call; `bound` is extended by states that do not change."""
    if isinstance(unit, Loop):
        return _loop(reader, flow, unit, bound, prefix)
    return _branching(reader, flow, unit, bound, prefix)


def _branching(reader: Any, flow: ControlFlowV1, unit: Branching, bound: dict[str, Any], prefix: str) -> Call:
    first = unit.merges[0]
    outputs = tuple(reader.declare(m.outputs[0], prefix) for m in unit.merges)
    where = reader.location(first)

    def body(branch: int, label: str) -> Body:
        inner = {name: ref(outer, bound, prefix) for name, outer in flow.taken_in(unit, branch)}
        found: Body = reader.body(first.graph, unit.branches[branch], (), inner, f"{prefix}{first.name}/{label}/")
        return found

    predicate = ref(unit.predicate, bound, prefix)
    if unit.predicate.dtype.is_bool:
        bodies = {"then_branch": body(1, "then_branch"), "else_branch": body(0, "else_branch")}
        return Call("If", (predicate,), bodies, outputs, where, Schema(("cond",)))
    branches = [body(i, f"branch_{i}") for i in sorted(unit.branches)]
    nested: Call = reader.case(first, predicate, branches, outputs)
    return nested


def _loop(reader: Any, flow: ControlFlowV1, loop: Loop, bound: dict[str, Any], prefix: str) -> Call:
    """The loop as a While whose states are the values that its body changes; the others are captured."""
    states, enters = flow.needed(loop)
    outer = {e: ref(e.inputs[0], bound, prefix) for e in enters}
    changed = [s for s in states if through_identities(s.next.inputs[0]).name != s.switch.outputs[1].name]
    fixed = {e.outputs[0].name: value for e, value in outer.items()}
    for s in states:
        if s not in changed:
            fixed |= {s.merge.outputs[0].name: outer[s.enter], s.switch.outputs[1].name: outer[s.enter]}
            if s.exit is not None:
                bound[s.exit.outputs[0].name] = outer[s.enter]
    name = loop.condition.op.name.rpartition("/")[0] or loop.frame
    graph = flow.graph

    def body(wanted: list[Any], label: str) -> Body:
        inner_prefix = f"{prefix}{name}/{label}/"
        inner = dict(fixed)
        for s in changed:  # the condition reads a state at its Merge, the body at its Switch
            inner[s.switch.outputs[1].name] = Ref((inner_prefix, s.merge.outputs[0].name))
        inputs = tuple((inner_prefix, s.merge.outputs[0].name) for s in changed)
        made: Body = reader.body(graph, wanted, inputs, inner, inner_prefix)
        return made

    attrs: dict[str, Any] = {
        "shapes": tuple(_sizes_of_state(s) for s in changed),
        "cond": body([loop.condition], "cond"),
        "body": body([s.next.inputs[0] for s in changed], "body"),
    }
    outputs = tuple(None if s.exit is None else reader.declare(s.exit.outputs[0], prefix) for s in changed)
    inputs = (tuple(outer[s.enter] for s in changed),)
    return Call("While", inputs, attrs, outputs, reader.location(loop.condition.op), Schema(("input",)))


def _sizes_of_state(state: State) -> tuple[int | None, ...] | None:
    """The sizes that a state has in every iteration, as far as its first value and the next one agree."""
    found = [sizes_of(t) for t in (state.enter.inputs[0], state.next.inputs[0])]
    first, following = found
    if first is None or following is None or len(first) != len(following):
        return None
    return tuple(a if a == b else None for a, b in zip(first, following, strict=True))
