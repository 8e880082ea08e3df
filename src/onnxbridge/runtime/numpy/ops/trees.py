"""Tree ensembles of ai.onnx.ml: all trees are walked at once, one level a step."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.limits import claim
from onnxbridge.runtime.native.address import address
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.machine import available
from onnxbridge.runtime.native.share import chunks
from onnxbridge.runtime.numpy.ops import rule
from onnxbridge.runtime.numpy.scores import labels_of, transformed

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LEAF = 7
_WALKED = 1 << 12  # rows times features times trees beyond which machine code is worth its loading


@dataclass(frozen=True)
class _Forest:
    """All nodes of all trees in one list; `yes` and `no` are positions in it. A leaf's `mode` is 7."""

    roots: Any
    mode: Any
    feature: Any
    split: Any
    yes: Any
    no: Any
    missing: Any
    members: tuple[Any, ...] = ()

    def leaves(self, x):
        """The leaf that each row of x (rows, features) reaches in each tree."""
        claim((x.shape[0], len(self.roots)), np.int64)
        if available() and x.size * len(self.roots) > _WALKED and not self.members:
            return self._walked(x)
        at = np.broadcast_to(self.roots, (x.shape[0], len(self.roots))).copy()
        rows = np.arange(x.shape[0])[:, None]
        kinds = [int(k) for k in np.unique(self.mode) if k != _LEAF]
        for _ in range(len(self.mode)):
            mode = self.mode[at]
            if (mode == _LEAF).all():
                return at
            value, split = x[rows, self.feature[at]], self.split[at]
            holds = np.isnan(value) & self.missing[at]
            for kind in kinds:
                holds |= (mode == kind) & (self._member(value, at) if kind == 6 else _COMPARE[kind](value, split))
            at = np.where(mode == _LEAF, at, np.where(holds, self.yes[at], self.no[at]))
        raise ValueError("the nodes of a tree form a circle")

    def _walked(self, x):
        """The same in machine code."""
        x = np.ascontiguousarray(x, np.float64)
        if self.feature.size and not 0 <= self.feature.min() <= self.feature.max() < x.shape[1]:
            raise ValueError(f"the trees look at more than {x.shape[1]} features")
        reached, status = np.empty((x.shape[0], len(self.roots)), np.int64), np.zeros(1, np.int64)
        nodes = (self.roots, self.mode, self.feature, self.yes, self.no, self.missing)
        parts = [np.ascontiguousarray(v, np.int64) for v in nodes]
        roots, mode, feature, yes, no, missing = map(address, parts)
        chunk, units = chunks(x.shape[0], 16 * len(self.roots))
        loop("trees", "leaves", "piipippppppippiu")(
            address(x), *x.shape, roots, len(self.roots), mode, feature, address(self.split), yes, no, missing,
            len(self.mode), address(reached), address(status), chunk, units=units,
        )  # fmt: skip
        if status[0]:
            raise ValueError("the nodes of a tree form a circle")
        return reached

    def _member(self, value, at):
        found = np.zeros(value.shape, bool)
        for node, members in enumerate(self.members):
            if members is not None:
                found |= (at == node) & np.isin(value, members)
        return found


def _aggregated(values, targets, count, how):
    """Weights (rows, n) of the reached leaves by target (n or rows x n): (rows, count); nothing gives 0."""
    rows = np.broadcast_to(np.arange(values.shape[0])[:, None], values.shape)
    where = (rows, np.broadcast_to(targets, values.shape))
    total = np.zeros((values.shape[0], count))
    if how in ("SUM", "AVERAGE"):
        if count == 1:
            return np.sum(values, 1, keepdims=True)
        np.add.at(total, where, values)
        return total
    worst = np.inf if how == "MIN" else -np.inf
    total[:] = worst
    (np.minimum if how == "MIN" else np.maximum).at(total, where, values)
    return np.where(total == worst, 0, total)


def _held(numbers, tensor, dtype=np.float64):
    return np.asarray(tensor if tensor is not None else () if numbers is None else numbers, dtype)


def _forest(nodes):
    """The forest of the attributes nodes_*, and where each (tree, node) lies in it: nodes are numbered within each tree."""
    if any(isinstance(v, np.ndarray) for v in nodes.values()):
        return _grown(nodes)
    return _remembered(tuple(sorted(nodes.items())))


@functools.lru_cache(maxsize=8)
def _remembered(nodes):
    """Attributes are tuples, and the same ones come with every run."""
    return _grown(dict(nodes))


def _grown(nodes):
    trees, ids = (np.asarray(nodes[n], np.int64) for n in ("nodes_treeids", "nodes_nodeids"))
    place = {key: i for i, key in enumerate(zip(trees.tolist(), ids.tolist(), strict=True))}
    unknown = set(nodes["nodes_modes"]) - {*_MODES[:6], "LEAF"}
    if unknown:
        raise Unsupported(f"nodes of mode {min(unknown)!r}")
    mode = np.array([_LEAF if m == "LEAF" else _MODES.index(m) for m in nodes["nodes_modes"]])

    def positions(name):
        return np.array([
            i if leaf else place[tree, child]
            for i, (leaf, tree, child) in enumerate(zip(mode == _LEAF, trees.tolist(), nodes[name], strict=True))
        ])  # fmt: skip

    missing = nodes.get("nodes_missing_value_tracks_true")
    yes, no = positions("nodes_truenodeids"), positions("nodes_falsenodeids")
    children = np.concatenate((yes[mode != _LEAF], no[mode != _LEAF]))
    roots = np.setdiff1d(np.arange(len(mode)), children)
    forest = _Forest(
        roots, mode, np.asarray(nodes["nodes_featureids"], np.int64),
        _held(nodes.get("nodes_values"), nodes.get("nodes_values_as_tensor")), yes, no,
        np.zeros(len(mode), bool) if not missing else np.asarray(missing, bool),
    )  # fmt: skip
    return forest, place


def _totals(X, nodes, leaf_trees, leaf_nodes, targets, weights, count, how, base):
    """The aggregated weights of each row, (rows, count); a leaf may have weights for several targets."""
    forest, place = _forest(nodes)
    reached = forest.leaves(X.reshape(X.shape[0], -1))
    owner = np.array([place[key] for key in zip(leaf_trees, leaf_nodes, strict=True)], np.int64)
    counts = np.bincount(owner, minlength=len(forest.mode))
    if count == 1 and how in ("SUM", "AVERAGE") and counts.max(initial=0) == 1:
        each = np.zeros(len(forest.mode))
        each[owner] = weights
        total = np.sum(each[reached], 1, keepdims=True)
        total = total / len(forest.roots) if how == "AVERAGE" else total
        return total + base if base.size else total
    order = np.argsort(owner, kind="stable")
    first = np.cumsum(counts) - counts
    targets, weights = np.asarray(targets, np.int64)[order], weights[order]
    parts_values, parts_targets = [], []
    for k in range(int(counts.max(initial=0))):
        has = counts[reached] > k
        index = np.where(has, first[reached] + k, 0)
        neutral = {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0)
        parts_values.append(np.where(has, weights[index], neutral))
        parts_targets.append(np.where(has, targets[index], 0))
    total = _aggregated(np.concatenate(parts_values, 1), np.concatenate(parts_targets, 1), count, how)
    if how == "AVERAGE":
        total /= len(forest.roots)
    return total + base if base.size else total


@rule("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(
    X,
    *,
    aggregate_function="SUM",
    base_values=None,
    base_values_as_tensor=None,
    n_targets=None,
    post_transform="NONE",
    target_ids=None,
    target_nodeids=None,
    target_treeids=None,
    target_weights=None,
    target_weights_as_tensor=None,
    **nodes,
):
    weights = _held(target_weights, target_weights_as_tensor)
    base = _held(base_values, base_values_as_tensor)
    found = _totals(
        X, nodes, target_treeids, target_nodeids, target_ids, weights, n_targets, aggregate_function, base
    )
    return transformed(found, post_transform).astype(np.float32)


@rule("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(
    X,
    *,
    base_values=None,
    base_values_as_tensor=None,
    class_ids=None,
    class_nodeids=None,
    class_treeids=None,
    class_weights=None,
    class_weights_as_tensor=None,
    classlabels_int64s=None,
    classlabels_strings=None,
    post_transform="NONE",
    **nodes,
):
    """With two classes and weights for the first of them only, these are the second's, and the first gets what is left."""
    labels = labels_of(classlabels_int64s, classlabels_strings)
    weights = _held(class_weights, class_weights_as_tensor)
    base = _held(base_values, base_values_as_tensor)
    binary = len(labels) == 2 and len(set(class_ids)) == 1
    ids, count = ([0] * len(class_ids), 1) if binary else (class_ids, len(labels))
    if binary and base.size == 2:
        base = base[1:]
    scores = _totals(X, nodes, class_treeids, class_nodeids, ids, weights, count, "SUM", base)
    if not binary:
        return labels[np.argmax(scores, 1)], transformed(scores, post_transform).astype(np.float32)
    one = scores[:, :1]
    certain = bool((weights >= 0).all())
    label = labels[(one[:, 0] > (0.5 if certain else 0)).astype(int)]
    if post_transform == "PROBIT":
        raise Unsupported("PROBIT of two classes of which one has weights")
    if class_ids[0] == 1:  # the weights stay where they are; only the label is chosen as for the others
        return label, transformed(np.concatenate((np.zeros_like(one), one), 1), post_transform).astype(np.float32)
    if post_transform == "LOGISTIC":
        pair = transformed(np.concatenate((-one, one), 1), "LOGISTIC")
    else:
        pair = np.concatenate((1 - one if certain else -one, one), 1)
    return label, pair.astype(np.float32)


@rule("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(
    X,
    *,
    aggregate_function=1,
    leaf_targetids,
    leaf_weights,
    membership_values=None,
    n_targets=None,
    nodes_falseleafs,
    nodes_falsenodeids,
    nodes_featureids,
    nodes_hitrates=None,
    nodes_missing_value_tracks_true=None,
    nodes_modes,
    nodes_splits,
    nodes_trueleafs,
    nodes_truenodeids,
    post_transform=0,
    tree_roots,
):
    inner, leaves = len(nodes_modes), len(leaf_targetids)
    mode = np.concatenate((nodes_modes.astype(np.int64), np.full(leaves, _LEAF)))

    def child(ids, are_leaves):
        return np.concatenate((np.asarray(ids) + np.where(are_leaves, inner, 0), inner + np.arange(leaves)))

    missing = nodes_missing_value_tracks_true or (0,) * inner
    forest = _Forest(
        np.asarray(tree_roots, np.int64),
        mode,
        np.concatenate((nodes_featureids, np.zeros(leaves, np.int64))).astype(np.int64),
        np.concatenate((nodes_splits.astype(np.float64), np.zeros(leaves))),
        child(nodes_truenodeids, nodes_trueleafs),
        child(nodes_falsenodeids, nodes_falseleafs),
        np.concatenate((np.asarray(missing, bool), np.zeros(leaves, bool))),
        _members(nodes_modes, membership_values),
    )
    # A tree of one leaf is written as a root whose two children are that leaf.
    reached = forest.leaves(X) - inner
    how = _AGGREGATES[aggregate_function]
    values = leaf_weights.astype(np.float64)[reached]
    total = _aggregated(values, np.asarray(leaf_targetids)[reached], n_targets or int(np.max(leaf_targetids)) + 1, how)
    if how == "AVERAGE":
        total /= len(tree_roots)
    return transformed(total, _TRANSFORMS[post_transform]).astype(X.dtype)


def _members(modes, values):
    """The set of each membership node; the sets follow each other, each closed by a NaN."""
    if values is None:
        return ()
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    following = iter(s[~np.isnan(s)] for s in sets)
    return tuple(next(following) if m == 6 else None for m in modes)
