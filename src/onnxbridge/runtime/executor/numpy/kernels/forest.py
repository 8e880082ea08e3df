"""Ensembles of decision trees: all trees are evaluated at once, level by level."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.numpy.kernels.windows import Array

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
LEAF = 7
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_CYCLE = "the nodes of a tree form a cycle"


@dataclass(frozen=True)
class Forest:
    """All nodes of all trees in one array; `yes` and `no` are indices in it. A leaf's `mode` is LEAF."""

    roots: Array
    mode: Array
    feature: Array
    split: Array
    yes: Array
    no: Array
    missing: Array
    members: tuple[Any, ...] = ()

    def leaves(self, x: Array) -> Array:
        """The leaf that each row of x (rows, features) reaches in each tree."""
        claim((x.shape[0], len(self.roots)), np.int64)
        at = np.broadcast_to(self.roots, (x.shape[0], len(self.roots))).copy()
        rows = np.arange(x.shape[0])[:, None]
        kinds = [int(k) for k in np.unique(self.mode) if k != LEAF]
        for _ in range(len(self.mode)):
            mode = self.mode[at]
            if (mode == LEAF).all():
                return at
            value, split = x[rows, self.feature[at]], self.split[at]
            holds = np.isnan(value) & self.missing[at]
            for kind in kinds:
                holds |= (mode == kind) & (self._member(value, at) if kind == 6 else _COMPARE[kind](value, split))
            at = np.where(mode == LEAF, at, np.where(holds, self.yes[at], self.no[at]))
        raise ValueError(_CYCLE)

    def _member(self, value: Array, at: Array) -> Array:
        found = np.zeros(value.shape, bool)
        for node, members in enumerate(self.members):
            if members is not None:
                found |= (at == node) & np.isin(value, members)
        return found

    def depth(self) -> int:
        """The maximum number of comparisons on a path."""
        at, steps = self.roots, 0
        while len(at := at[self.mode[at] != LEAF]):
            at, steps = np.unique(np.concatenate((self.yes[at], self.no[at]))), steps + 1
            if steps > len(self.mode):
                raise ValueError(_CYCLE)
        return steps


@dataclass(frozen=True)
class Ensemble:
    """A forest with weights: those of a node are at `first[node]` to `first[node + 1]`."""

    forest: Forest
    first: Array
    targets: Array
    weights: Array

    def totals(self, x: Array, count: int, how: str, base: Array) -> Array:
        """The aggregated weights of each row of x, (rows, count); 0 without weights."""
        reached = self.forest.leaves(x)
        start, each = self.first[reached], np.diff(self.first)[reached]
        neutral = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
        total = np.full((len(x), count), neutral)
        rows = np.broadcast_to(np.arange(len(x))[:, None], reached.shape)
        add = {"MIN": np.minimum, "MAX": np.maximum}.get(how, np.add)
        for k in range(int(each.max(initial=0))):
            has = each > k
            index = np.where(has, start + k, 0)
            values = np.where(has, self.weights[index], neutral)
            if count == 1 and add is np.add:
                total += values.sum(1, keepdims=True)
            else:
                add.at(total, (rows, np.where(has, self.targets[index], 0)), values)
        if neutral:
            total = np.where(total == neutral, 0, total)
        if how == "AVERAGE":
            total = total / len(self.forest.roots)
        return total + base if base.size else total


def ensemble(
    nodes: Mapping[str, Any], trees: Iterable[int], ids: Iterable[int], targets: Iterable[int], weights: Array
) -> Ensemble:
    """The ensemble of the attributes nodes_* and of the weights for (tree, node, target)."""
    if any(isinstance(v, np.ndarray) for v in nodes.values()):
        forest, index_of = _forest(nodes)
    else:
        forest, index_of = _cached_forest(tuple(sorted(nodes.items())))
    owner = np.array([index_of[key] for key in zip(trees, ids, strict=True)], np.int64)
    return weighted(forest, owner, np.asarray(targets, np.int64), weights)


def weighted(forest: Forest, owner: Array, targets: Array, weights: Array) -> Ensemble:
    """A forest with the weights of these nodes for these targets."""
    order = np.argsort(owner, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(forest.mode)))))
    return Ensemble(forest, first, targets[order], weights[order])


@functools.lru_cache(maxsize=8)
def _cached_forest(nodes: tuple[tuple[str, Any], ...]) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The forest of hashable attributes, cached since every run passes the same ones."""
    return _forest(dict(nodes))


def _forest(nodes: Mapping[str, Any]) -> tuple[Forest, dict[tuple[int, int], int]]:
    """The forest, and the index of each (tree, node) in it: nodes are numbered within each tree."""
    trees, ids = (np.asarray(nodes[n], np.int64) for n in ("nodes_treeids", "nodes_nodeids"))
    index_of = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    unknown = set(nodes["nodes_modes"]) - {*MODES[:6], "LEAF"}
    if unknown:
        raise Unsupported(f"nodes of mode {min(unknown)!r}")
    numbers = {name: k for k, name in enumerate(MODES)} | {"LEAF": LEAF}
    mode = np.array([numbers[m] for m in nodes["nodes_modes"]])

    def positions(name: str) -> Array:
        return np.array([
            i if leaf else index_of[tree, child]
            for i, (leaf, tree, child) in enumerate(zip((mode == LEAF).tolist(), trees.tolist(), nodes[name], strict=True))
        ])  # fmt: skip

    missing = nodes.get("nodes_missing_value_tracks_true")
    yes, no = positions("nodes_truenodeids"), positions("nodes_falsenodeids")
    children = np.concatenate((yes[mode != LEAF], no[mode != LEAF]))
    return Forest(
        np.setdiff1d(np.arange(len(mode)), children), mode, np.asarray(nodes["nodes_featureids"], np.int64),
        as_array(nodes.get("nodes_values"), nodes.get("nodes_values_as_tensor")), yes, no,
        np.zeros(len(mode), bool) if not missing else np.asarray(missing, bool),
    ), index_of  # fmt: skip


def as_array(numbers: Any, tensor: Any) -> Array:
    """The values of an attribute that is a list or a tensor; empty without either."""
    return np.asarray(tensor if tensor is not None else () if numbers is None else numbers, np.float64)
