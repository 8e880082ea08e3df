"""Matches the nodes of two graphs: by what they compute, by name where names are kept, and by their neighbours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.fingerprints import Fingerprints
from onnxbridge.hub.analysis.graph_diff.settings import constant_of, is_constant

STRUCTURE, NAME, WEIGHTS, ORDER, NEIGHBOURS = "structure", "name", "weights", "order", "neighbours"
_KEPT = 0.9
"""Names are used if at least this fraction of the nodes that compute the same have kept theirs."""
_ALIGNED = 20_000_000
"""Nodes are aligned by order only if comparing them takes no more than about so many steps."""

_ROUNDS = 2_000_000
"""Neighbours are followed for this many steps, divided by the number of nodes."""


@dataclass
class Match:
    """Matched nodes: the candidate's by the reference's, the other way round, and how each pair was found."""

    nodes: dict[ir.Node, ir.Node] = field(default_factory=dict)
    back: dict[ir.Node, ir.Node] = field(default_factory=dict)
    how: dict[ir.Node, str] = field(default_factory=dict)

    def add(self, a: ir.Node, b: ir.Node, how: str) -> bool:
        if a in self.nodes or b in self.back or (a.op_type, a.domain) != (b.op_type, b.domain):
            return False
        self.nodes[a], self.back[b], self.how[a] = b, a, how
        return True


def match_nodes(
    first: ir.Graph, second: ir.Graph, prints: tuple[Fingerprints, Fingerprints], values: Mapping[ir.Value, ir.Value]
) -> Match:
    """Match the nodes of two graphs. Only nodes of one operator are matched. Constant nodes are left out.

    `values` are the matched inputs and values of surrounding graphs.
    """
    match = Match()
    one, two = ([n for n in g if not is_constant(n)] for g in (first, second))
    a, b = prints
    _by_key(match, one, two, _both(a.forward, a.backward), _both(b.forward, b.backward), STRUCTURE)
    _by_key(match, one, two, a.forward, b.forward, STRUCTURE)
    _by_key(match, one, two, a.backward, b.backward, STRUCTURE, unique=True)
    if _names_kept(match, one, two):
        for name_of in (_node_name, _output_name):
            _by_key(match, one, two, {n: name_of(n) for n in one}, {n: name_of(n) for n in two}, NAME, unique=True)
    _by_key(match, one, two, a.weights, b.weights, WEIGHTS, unique=True)
    _by_key(match, one, two, _both(a.loose_forward, a.loose_backward), _both(b.loose_forward, b.loose_backward), STRUCTURE)
    _by_key(match, one, two, a.loose_forward, b.loose_forward, STRUCTURE, unique=True)
    _by_key(match, one, two, a.loose_backward, b.loose_backward, STRUCTURE, unique=True)
    _by_order(match, one, two, a.around, b.around)
    _by_neighbours(match, one, two, values)
    return match


def _both(forward: Mapping[ir.Node, int], backward: Mapping[ir.Node, int]) -> dict[ir.Node, Hashable]:
    return {node: (forward[node], backward[node]) for node in forward}


def _by_key(
    match: Match, one: Sequence[ir.Node], two: Sequence[ir.Node], keys_one: Mapping[ir.Node, Hashable],
    keys_two: Mapping[ir.Node, Hashable], how: str, unique: bool = False,
) -> None:  # fmt: skip
    """Match nodes with equal keys, in order, where both graphs have as many of them; with `unique`, where both have one."""
    groups: dict[Hashable, tuple[list[ir.Node], list[ir.Node]]] = defaultdict(lambda: ([], []))
    for side, (nodes, keys, done) in enumerate(((one, keys_one, match.nodes), (two, keys_two, match.back))):
        for node in nodes:
            if node not in done and keys[node] != "":
                groups[keys[node]][side].append(node)
    for left, right in groups.values():
        if len(left) == len(right) and (len(left) == 1 or not unique):
            for x, y in zip(left, right, strict=True):
                match.add(x, y, how)


def _node_name(node: ir.Node) -> str:
    return node.name or ""


def _output_name(node: ir.Node) -> str:
    return next((v.name for v in node.outputs if v.name), "")


def _names_kept(match: Match, one: Sequence[ir.Node], two: Sequence[ir.Node]) -> bool:
    """Whether the names of nodes mean the same in both graphs. Numbers in names shift when a node is inserted."""
    same, total = 0, 0
    for x, y in match.nodes.items():
        total += 1
        same += bool(_node_name(x)) and _node_name(x) == _node_name(y)
        same += (not _node_name(x) or _node_name(x) != _node_name(y)) and _output_name(x) == _output_name(y)
    if total >= 3:
        return same >= _KEPT * total
    operators = [{(_node_name(n) or _output_name(n)): n.op_type for n in nodes} for nodes in (one, two)]
    common = [operators[0][name] == operators[1][name] for name in operators[0] if name and name in operators[1]]
    return len(common) >= _KEPT * min(len(one), len(two)) and sum(common) >= _KEPT * len(common)


def _by_order(
    match: Match, one: Sequence[ir.Node], two: Sequence[ir.Node], around: Mapping[ir.Node, int], around_two: Mapping[ir.Node, int]
) -> None:
    """Align the nodes that are left, between the matched ones, by the longest common runs of similar nodes."""
    numbers = {node: -1 - i for i, node in enumerate(match.nodes)}
    left = [numbers[n] if n in numbers else around[n] for n in one]
    right = [numbers[match.back[n]] if n in match.back else around_two[n] for n in two]
    counts: dict[int, int] = defaultdict(int)
    for key in right:
        counts[key] += 1
    work = sum(counts.get(key, 0) for key in left)
    gaps = 1 + sum(n not in match.nodes for n in one)
    if gaps == 1 or work * min(gaps, 100) > _ALIGNED:
        return
    for block in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        for i in range(block.size):
            match.add(one[block.a + i], two[block.b + i], ORDER)


def _by_neighbours(match: Match, one: Sequence[ir.Node], two: Sequence[ir.Node], values: Mapping[ir.Value, ir.Value]) -> None:
    """Match nodes that read matched values in the same way, or whose results matched nodes read, until nothing is added."""
    for _ in range(max(4, _ROUNDS // (1 + len(one) + len(two)))):
        before = len(match.nodes)
        if before in (len(one), len(two)):
            return
        numbers = _numbers(match, values)
        _by_key(match, one, two, _reads(one, match.nodes, numbers), _reads(two, match.back, numbers), NEIGHBOURS, unique=True)
        nodes = {n: i for i, pair in enumerate(match.nodes.items()) for n in pair}
        _by_key(match, one, two, _read_by(one, match.nodes, nodes), _read_by(two, match.back, nodes), NEIGHBOURS, unique=True)
        if len(match.nodes) == before:
            return


def _numbers(match: Match, values: Mapping[ir.Value, ir.Value]) -> dict[ir.Value, int]:
    """A number for each pair of matched values."""
    found: dict[ir.Value, int] = {}
    for x, y in values.items():
        found[x] = found[y] = len(found)
    for a, b in match.nodes.items():
        for x, y in zip(a.outputs, b.outputs, strict=False):
            found[x] = found[y] = len(found)
    return found


def replacements(match: Match, first: ir.Graph, second: ir.Graph, values: Mapping[ir.Value, ir.Value]) -> dict[ir.Node, ir.Node]:
    """Nodes without a match in whose stead another operator reads the same values and is read by the same nodes."""
    numbers = _numbers(match, values)
    nodes = {n: i for i, pair in enumerate(match.nodes.items()) for n in pair}
    sides: list[dict[Hashable, list[ir.Node]]] = []
    for graph, done in ((first, match.nodes), (second, match.back)):
        left = [n for n in graph if not is_constant(n) and n not in done]
        reads, read_by = _reads(left, done, numbers), _read_by(left, done, nodes)
        found: dict[Hashable, list[ir.Node]] = defaultdict(list)
        for node in left:
            read, uses = reads[node], read_by[node]
            if isinstance(read, tuple) and isinstance(uses, tuple):
                found[read[2], uses[2]].append(node)
        sides.append(found)
    keys = [key for key, group in sides[0].items() if len(group) == len(sides[1].get(key, ())) == 1]
    return {sides[0][key][0]: sides[1][key][0] for key in keys}


def _reads(nodes: Sequence[ir.Node], done: Mapping[ir.Node, ir.Node], numbers: Mapping[ir.Value, int]) -> dict[ir.Node, Hashable]:
    """The operator and the matched values that it reads, by position; "" if there are none."""
    found: dict[ir.Node, Hashable] = {}
    for node in nodes:
        read = () if node in done else tuple((i, numbers[v]) for i, v in enumerate(node.inputs) if v in numbers)  # type: ignore[index]
        found[node] = (node.op_type, node.domain, read) if read else ""
    return found


def _read_by(
    nodes: Sequence[ir.Node], done: Mapping[ir.Node, ir.Node], numbers: Mapping[ir.Node, int]
) -> dict[ir.Node, Hashable]:
    """The operator and the matched nodes that read it, by position; "" if there are none."""
    found: dict[ir.Node, Hashable] = {}
    for node in nodes:
        uses = [] if node in done else [(o, c, i) for o, v in enumerate(node.outputs) for c, i in v.uses()]
        known = tuple(sorted((o, numbers[c], i) for o, c, i in uses if c in numbers))
        found[node] = (node.op_type, node.domain, known) if known else ""
    return found


def value_matches(match: Match, first: ir.Graph, second: ir.Graph) -> dict[ir.Value, ir.Value]:
    """The results of matched nodes, matched by position."""
    found: dict[ir.Value, ir.Value] = {}
    for a, b in match.nodes.items():
        found.update((x, y) for x, y in zip(a.outputs, b.outputs, strict=False) if constant_of(x) is None)
    return found
