"""TensorFlow 1 control flow (Switch, Merge, Enter, Exit, NextIteration, LoopCond): which operators form a branch or a loop.

A loop has a frame: its states enter by Enter, each iteration starts at a Merge, LoopCond decides, Switch sends the states to the
body or to Exit, and NextIteration starts the next iteration. A branch is a Switch on a predicate; a Merge takes the result of the
branch that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxbridge.errors import Unsupported

OPERATORS = frozenset({"Switch", "_SwitchN", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
Taken = Mapping[str, int]
"""The branch taken for each predicate, by the predicate's name, under which a value is computed."""


def kind(op: Any) -> str:
    """An operator's type, without the prefix of operators on reference variables (RefSwitch)."""
    return str(op.type).removeprefix("Ref") if op.type.startswith("Ref") else str(op.type)


def has_control_flow(graph: Any) -> bool:
    return any(kind(op) in OPERATORS for op in graph.get_operations())


@dataclass(frozen=True, eq=False)
class State:
    """A state of a loop: its operators. `exit` is None for a state that is not a result."""

    enter: Any
    merge: Any
    switch: Any
    next: Any
    exit: Any


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop by the name of its frame: its condition (the input of LoopCond) and its states."""

    frame: str
    condition: Any
    states: list[State]


@dataclass(frozen=True, eq=False)
class Branching:
    """Merges that one predicate selects: for each branch, the tensors that the merges take from it."""

    predicate: Any
    merges: list[Any]
    branches: dict[int, list[Any]]


@dataclass
class ControlFlowV1:
    """The loops and branches of a graph."""

    graph: Any
    loops: dict[str, Loop] = field(default_factory=dict)
    _taken: dict[Any, Taken] = field(default_factory=dict)
    _branchings: dict[Any, Branching] = field(default_factory=dict)
    _inputs: dict[Any, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.graph.get_operations():
            if kind(op) == "LoopCond":
                loop = self._loop(op)
                self.loops[loop.frame] = loop
        self._conditions = {loop.condition.name for loop in self.loops.values()}

    def loop_of(self, exit: Any) -> Loop:
        """The loop that an Exit leaves."""
        enter = exit.inputs[0].op.inputs[0].op.inputs[0].op  # Exit, Switch, Merge, Enter
        enter = enter if kind(enter) == "Enter" else exit.inputs[0].op.inputs[0].op.inputs[1].op
        return self.loops[enter.get_attr("frame_name").decode()]

    def branching_of(self, merge: Any) -> Branching:
        """The branching that a Merge ends, alone or together with others of the same predicate."""
        if merge not in self._branchings:
            predicate, branches = self._selected(merge)
            self._branchings[merge] = Branching(predicate, [merge], {b: [t] for b, t in branches.items()})
        return self._branchings[merge]

    def inside(self, branching: Branching, branch: int, tensor: Any) -> bool:
        """Whether a tensor is computed only if this branch is taken."""
        return self.taken(tensor).get(branching.predicate.name) == branch

    # the branches under which values are computed

    def taken(self, tensor: Any) -> Taken:
        """The branches under which a tensor is computed."""
        op = tensor.op
        if op not in self._taken:
            for each in _post_order([op], self._before):
                self._taken[each] = self._taken_by(each)
        found = self._taken[op]
        if self.is_branch(op):
            predicate = _root(op.inputs[1])
            return {**found, predicate.name: tensor.value_index}
        return found

    def is_branch(self, op: Any) -> bool:
        """Whether an operator is the Switch of a branch, not that of a loop."""
        return kind(op) in ("Switch", "_SwitchN") and kind(op.inputs[1].op) != "LoopCond"

    def _before(self, op: Any) -> list[Any]:
        """The operators whose branches an operator is in: those of its inputs and control inputs, without back edges of loops."""
        if op in self._taken:
            return []
        inputs = [t.op for t in op.inputs if kind(t.op) != "NextIteration"]
        return inputs + [o for o in op.control_inputs if kind(o) != "NextIteration"]

    def _taken_by(self, op: Any) -> Taken:
        found: dict[str, int] = {}
        if kind(op) == "Merge" and not _is_loop_merge(op):
            try:
                predicate, _ = self._selected(op)
            except Unsupported:
                return found
            for t in op.inputs:
                found |= self._known(t)
            found.pop(predicate.name, None)
            return found
        for t in op.inputs:
            if kind(t.op) != "NextIteration":
                found |= self._known(t)
        for other in op.control_inputs:
            found |= self._taken.get(other, {})
        return found

    def _known(self, tensor: Any) -> Taken:
        own = self._taken.get(tensor.op, {})
        return {**own, _root(tensor.op.inputs[1]).name: tensor.value_index} if self.is_branch(tensor.op) else own

    def _selected(self, merge: Any) -> tuple[Any, dict[int, Any]]:
        """The predicate that selects an input of a Merge, and the input of each branch.

        Raises:
            Unsupported: if the graph does not say which.
        """
        tensors = list(merge.inputs)
        states = [self._known(t) if t.op in self._taken else self.taken(t) for t in tensors]
        for name in dict.fromkeys(n for s in reversed(states) for n in reversed(list(s))):
            chosen = [s.get(name) for s in states]
            known = [c for c in chosen if c is not None]
            if len(set(known)) != len(known) or not known or len(known) < len(chosen) - 1:
                continue
            if len(known) < len(chosen):  # a constant that does not depend on the predicate
                if any(name in s for s, c in zip(states, chosen, strict=True) if c is None):
                    continue
                chosen = [next(b for b in range(len(chosen)) if b not in known) if c is None else c for c in chosen]
            predicate = self.graph.get_tensor_by_name(name)
            return predicate, {int(b): t for b, t in zip(chosen, tensors, strict=True) if b is not None}
        raise Unsupported("a Merge whose predicate cannot be found", "build the graph with tf.compat.v1.enable_control_flow_v2()")

    # loops

    def _loop(self, condition: Any) -> Loop:
        states, frame = [], ""
        for switch in condition.outputs[0].consumers():
            merge = switch.inputs[0].op
            if kind(switch) != "Switch" or not _is_loop_merge(merge):
                continue
            enter = next(t.op for t in merge.inputs if kind(t.op) == "Enter")
            following = next(t.op for t in merge.inputs if kind(t.op) == "NextIteration")
            exit = next((c for c in switch.outputs[0].consumers() if kind(c) == "Exit"), None)
            frame = enter.get_attr("frame_name").decode()
            states.append(State(enter, merge, switch, following, exit))
        return Loop(frame, condition.inputs[0], states)

    # the order in which units are lowered

    def unit(self, op: Any) -> Any:
        """What is lowered together with an operator: a loop, a branching, or the operator itself."""
        if kind(op) == "Exit":
            return self.loop_of(op)
        if kind(op) == "Merge" and not _is_loop_merge(op):
            return self.branching_of(op)
        return op

    def inputs_of(self, unit: Any) -> list[Any]:
        """The tensors that a unit takes from outside."""
        if unit not in self._inputs:
            if isinstance(unit, Loop):
                found = [e.inputs[0] for e in self.needed(unit)[1]]
            elif isinstance(unit, Branching):
                found = [unit.predicate, *(outer for branch in unit.branches for _, outer in self.taken_in(unit, branch))]
            else:
                found = list(unit.inputs)
            self._inputs[unit] = found
        return self._inputs[unit]

    def needed(self, loop: Loop) -> tuple[list[State], list[Any]]:
        """The states that the results and the condition of a loop need, and the Enter operators of all values that it takes."""
        by_merge = {s.merge: s for s in loop.states}
        by_switch = {s.switch: s for s in loop.states}
        states: dict[State, None] = {}
        enters: dict[Any, None] = {}
        todo = [loop.condition, *(s.switch.inputs[0] for s in loop.states if s.exit is not None)]
        seen: set[str] = set()
        while todo:
            tensor = todo.pop()
            if tensor.name in seen:
                continue
            seen.add(tensor.name)
            op = tensor.op
            state = by_merge.get(op) or by_switch.get(op)
            if state is not None:
                if state not in states:
                    states[state] = None
                    enters[state.enter] = None
                    todo.append(state.next.inputs[0])
            elif kind(op) == "Enter":
                enters[op] = None
            else:
                todo += self.inputs_of(self.unit(op))
        return [s for s in loop.states if s in states], list(enters)

    def taken_in(self, branching: Branching, branch: int) -> Iterator[tuple[str, Any]]:
        """What a branch takes from outside: the name of a tensor inside, and the tensor outside that it is."""
        todo, seen = list(branching.branches[branch]), set()
        while todo:
            tensor = todo.pop()
            if tensor.name in seen:
                continue
            seen.add(tensor.name)
            if not self.inside(branching, branch, tensor):
                yield tensor.name, tensor
            elif self.is_branch(tensor.op) and _root(tensor.op.inputs[1]).name == branching.predicate.name:
                yield tensor.name, tensor.op.inputs[0]
            else:
                todo += self.inputs_of(self.unit(tensor.op))

    def ordered(self, outputs: Iterable[Any], bound: Mapping[str, Any]) -> list[Any]:
        """The units that the outputs need, each after those that it takes values from."""
        outputs = list(outputs)

        def before(unit: Any) -> list[Any]:
            return [self.unit(t.op) for t in self.inputs_of(unit) if t.name not in bound]

        roots = [self.unit(t.op) for t in outputs if t.name not in bound]
        units = list(_post_order(roots, before))
        self._join(units, before)
        return list(_post_order([self.unit(t.op) for t in outputs if t.name not in bound], before))

    def _join(self, units: list[Any], before: Callable[[Any], list[Any]]) -> None:
        """Join independent branchings of the same predicate, so that all results of one tf.cond are one If."""
        levels: dict[Any, dict[str, int]] = {}
        groups: dict[tuple[str, int, frozenset[Any]], list[Branching]] = {}
        for unit in units:
            own: dict[str, int] = {}
            for other in before(unit):
                for name, level in levels.get(other, {}).items():
                    own[name] = max(own.get(name, 0), level)
            if isinstance(unit, Branching):
                name = unit.predicate.name
                own[name] = own.get(name, 0) + 1
                outer = frozenset(self.taken(unit.merges[0].outputs[0]).items())
                groups.setdefault((name, own[name], outer), []).append(unit)
            levels[unit] = own
        for group in groups.values():
            if len(group) > 1 and all(set(g.branches) == set(group[0].branches) for g in group):
                merges = [m for g in group for m in g.merges]
                branches = {b: [t for g in group for t in g.branches[b]] for b in group[0].branches}
                joined = Branching(group[0].predicate, merges, branches)
                for merge in merges:
                    self._branchings[merge] = joined


def _is_loop_merge(op: Any) -> bool:
    return any(kind(t.op) == "NextIteration" for t in op.inputs)


def _root(tensor: Any) -> Any:
    """The predicate that a chain of Identity operators passes on."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _post_order(roots: Iterable[Any], before: Callable[[Any], list[Any]]) -> Iterator[Any]:
    """Everything that the roots need, each after what it needs, once."""
    done: set[Any] = set()
    for root in roots:
        stack: list[tuple[Any, Iterator[Any]]] = []
        if root not in done:
            done.add(root)
            stack.append((root, iter(before(root))))
        while stack:
            item, rest = stack[-1]
            following = next((o for o in rest if o not in done), None)
            if following is None:
                stack.pop()
                yield item
            else:
                done.add(following)
                stack.append((following, iter(before(following))))
