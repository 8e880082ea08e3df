"""Tree ensembles as tensor operations: every row has a current node in every tree, and all descend one level at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.classifier_scores import labels, transformed
from onnxbridge.rules import Outputs

_COMPARE = {
    "BRANCH_LEQ": "LessOrEqual", "BRANCH_LT": "Less", "BRANCH_GTE": "GreaterOrEqual", "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal", "BRANCH_NEQ": "Equal",
}  # fmt: skip
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_MAX_WEIGHTS = 1 << 26


@dataclass(frozen=True)
class _Forest:
    """The nodes of all trees in one array; `yes` and `no` are indices of the children, for a leaf its own index."""

    roots: np.ndarray
    mode: np.ndarray
    feature: np.ndarray
    split: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    members: np.ndarray | None = None  # the set of each membership node, padded with NaN

    def depth(self):
        """The number of steps from a root to the deepest leaf."""
        at, steps = np.unique(self.roots), 0
        while len(at := at[self.mode[at] != "LEAF"]):
            at, steps = np.unique(np.concatenate((self.yes[at], self.no[at]))), steps + 1
            if steps > len(self.mode):
                raise Unsupported("the nodes of a tree form a cycle")
        return steps


def _reached_leaves(op, X, forest):
    """The index of the leaf that each row reaches in each tree, (rows, trees)."""
    x = X if X.dtype.name in ("FLOAT", "DOUBLE") else op.Cast(X, to=1)
    rows = op.size(x, 0)
    at = op.Expand(forest.roots.reshape(1, -1), op.dims([rows, len(forest.roots)]))
    kinds = sorted(set(forest.mode.tolist()) - {"LEAF"})
    split = op.constant(forest.split, dtype=x.dtype)
    for _ in range(forest.depth()):
        value = op.GatherElements(x, op.Gather(forest.feature, at, axis=0), axis=1)
        limit = op.Gather(split, at, axis=0)
        condition = None
        for kind in kinds:
            if kind == "BRANCH_MEMBER":
                equal = op.Equal(op.Unsqueeze(value, [2]), op.Gather(op.constant(forest.members, dtype=x.dtype), at, axis=0))
                matches = op.Greater(op.ReduceMax(op.Cast(equal, to=1), [2], keepdims=0), 0.5)
            else:
                matches = op.call(_COMPARE[kind], value, limit)
            matches = op.Not(matches) if kind == "BRANCH_NEQ" else matches
            if len(kinds) > 1:
                matches = op.And(matches, op.Gather(forest.mode == kind, at, axis=0))
            condition = matches if condition is None else op.Or(condition, matches)
        if forest.missing.any():
            condition = op.Or(condition, op.And(op.IsNaN(value), op.Gather(forest.missing, at, axis=0)))
        at = op.Where(condition, op.Gather(forest.yes, at, axis=0), op.Gather(forest.no, at, axis=0))
    return at


def _forest(nodes):
    """Builds the forest from the attributes nodes_*; also returns the index of each (tree id, node id)."""
    trees, ids = nodes["nodes_treeids"], nodes["nodes_nodeids"]
    index_of = {key: i for i, key in enumerate(zip(trees, ids, strict=True))}
    mode = np.array(nodes["nodes_modes"], object)
    unknown = set(mode.tolist()) - {*_COMPARE, "LEAF"}
    if unknown:
        raise Unsupported(f"node mode {min(unknown)!r}")

    def children(name):
        each = enumerate(zip(mode, trees, nodes[name], strict=True))
        return np.array([i if kind == "LEAF" else index_of[tree, child] for i, (kind, tree, child) in each], np.int64)

    yes, no = children("nodes_truenodeids"), children("nodes_falsenodeids")
    inner = mode != "LEAF"
    roots = np.setdiff1d(np.arange(len(mode)), np.concatenate((yes[inner], no[inner])))
    missing = nodes.get("nodes_missing_value_tracks_true") or np.zeros(len(mode))
    split = _float_array(nodes.get("nodes_values"), nodes.get("nodes_values_as_tensor"))
    features = np.where(inner, nodes["nodes_featureids"], 0).astype(np.int64)
    return _Forest(roots, mode, features, split, yes, no, np.asarray(missing, bool)), index_of


def _float_array(numbers, tensor):
    return np.asarray(tensor if tensor is not None else () if numbers is None else numbers, np.float64)


def _aggregate(op, reached, weights, aggregate, trees):
    """Aggregates the weights (leaf, target) of the reached leaves over the trees; NaN marks targets without a weight."""
    if weights.size > _MAX_WEIGHTS:
        raise Unsupported(f"{weights.shape[0]} nodes x {weights.shape[1]} targets: too large for a dense table of weights")
    neutral = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    table = op.constant(np.where(np.isnan(weights), neutral, weights).astype(np.float32))
    each = op.Gather(table, reached, axis=0)
    if aggregate in ("SUM", "AVERAGE"):
        total = op.ReduceSum(each, [1], keepdims=0)
        return op.Div(total, float(trees)) if aggregate == "AVERAGE" else total
    total = (op.ReduceMin if aggregate == "MIN" else op.ReduceMax)(each, [1], keepdims=0)
    return op.Where(op.Equal(total, neutral), 0.0, total) if np.isnan(weights).any() else total


def _scores(op, X, nodes, leaf_trees, leaf_nodes, targets, weights, count, aggregate, base):
    forest, index_of = _forest(nodes)
    table = np.full((len(forest.mode), count), np.nan)
    for tree, node, target, weight in zip(leaf_trees, leaf_nodes, targets, weights, strict=True):
        at = index_of[tree, node], target
        table[at] = weight if np.isnan(table[at]) else table[at] + weight
    total = _aggregate(op, _reached_leaves(op, X, forest), table, aggregate, len(forest.roots))
    return op.Add(total, base.astype(np.float32)) if base.size else total


@decompose("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(
    op, X, *, aggregate_function="SUM", base_values=None, base_values_as_tensor=None, n_targets=None,
    nodes_falsenodeids=None, nodes_featureids=None, nodes_hitrates=None, nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None, nodes_modes=None, nodes_nodeids=None, nodes_treeids=None, nodes_truenodeids=None,
    nodes_values=None, nodes_values_as_tensor=None, post_transform="NONE", target_ids=None, target_nodeids=None,
    target_treeids=None, target_weights=None, target_weights_as_tensor=None,
):  # fmt: skip
    nodes = {k: v for k, v in locals().items() if k.startswith("nodes_")}
    weights, base = _float_array(target_weights, target_weights_as_tensor), _float_array(base_values, base_values_as_tensor)
    scores = _scores(op, X, nodes, target_treeids, target_nodeids, target_ids, weights, n_targets or 1, aggregate_function, base)
    return transformed(op, scores, post_transform)


@decompose("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(
    op, X, *, base_values=None, base_values_as_tensor=None, class_ids=None, class_nodeids=None, class_treeids=None,
    class_weights=None, class_weights_as_tensor=None, classlabels_int64s=None, classlabels_strings=None,
    nodes_falsenodeids=None, nodes_featureids=None, nodes_hitrates=None, nodes_hitrates_as_tensor=None,
    nodes_missing_value_tracks_true=None, nodes_modes=None, nodes_nodeids=None, nodes_treeids=None, nodes_truenodeids=None,
    nodes_values=None, nodes_values_as_tensor=None, post_transform="NONE", outputs: Outputs = (True, True),
):  # fmt: skip
    """With two classes and weights for one only, these are the scores of the second class; the first gets the complement."""
    nodes = {k: v for k, v in locals().items() if k.startswith("nodes_")}
    names = labels(op, classlabels_int64s, classlabels_strings)
    classes = len(classlabels_strings or classlabels_int64s)
    weights, base = _float_array(class_weights, class_weights_as_tensor), _float_array(base_values, base_values_as_tensor)
    binary = classes == 2 and len(set(class_ids)) == 1
    if binary and base.size == 2:
        base = base[1:]
    ids, count = ((0,) * len(class_ids), 1) if binary else (class_ids, classes)
    scores = _scores(op, X, nodes, class_treeids, class_nodeids, ids, weights, count, "SUM", base)
    if not binary:
        label = op.Gather(names, op.ArgMax(scores, axis=1, keepdims=0), axis=0) if outputs[0] else None
        return label, transformed(op, scores, post_transform)
    nonnegative = bool((weights >= 0).all())
    one = op.Squeeze(scores, [1])
    class_index = op.Cast(op.Greater(one, 0.5 if nonnegative else 0.0), to=7)
    label = op.Gather(names, class_index, axis=0) if outputs[0] else None
    if post_transform == "PROBIT":
        raise Unsupported("PROBIT of a binary classifier with weights for one class")
    if class_ids[0] == 1:  # weights for class 1: the score of class 0 is 0
        return label, transformed(op, op.Concat(op.Mul(scores, 0.0), scores, axis=1), post_transform)
    if post_transform == "LOGISTIC":
        return label, op.Sigmoid(op.Concat(op.Neg(scores), scores, axis=1))
    return label, op.Concat(op.Sub(1.0, scores) if nonnegative else op.Neg(scores), scores, axis=1)


@decompose("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(
    op, X, *, aggregate_function=1, leaf_targetids=None, leaf_weights=None, membership_values=None, n_targets=None,
    nodes_falseleafs=None, nodes_falsenodeids=None, nodes_featureids=None, nodes_hitrates=None,
    nodes_missing_value_tracks_true=None, nodes_modes=None, nodes_splits=None, nodes_trueleafs=None, nodes_truenodeids=None,
    post_transform=0, tree_roots=None,
):  # fmt: skip
    inner, leaves = len(nodes_modes), len(leaf_targetids)

    def child(ids, are_leaves):
        return np.concatenate((np.asarray(ids) + np.where(are_leaves, inner, 0), inner + np.arange(leaves)))

    forest = _Forest(
        np.asarray(tree_roots, np.int64),
        np.array([_MODES[int(m)] for m in nodes_modes] + ["LEAF"] * leaves, object),
        np.concatenate((nodes_featureids, np.zeros(leaves))).astype(np.int64),
        np.concatenate((np.asarray(nodes_splits, np.float64), np.zeros(leaves))),
        child(nodes_truenodeids, nodes_trueleafs),
        child(nodes_falsenodeids, nodes_falseleafs),
        np.concatenate((nodes_missing_value_tracks_true or np.zeros(inner), np.zeros(leaves))).astype(bool),
        _members(nodes_modes, membership_values, inner + leaves),
    )
    # A tree of a single leaf is encoded as a root whose two children are that leaf.
    weights = np.full((inner + leaves, n_targets or max(leaf_targetids) + 1), np.nan)
    weights[inner + np.arange(leaves), list(leaf_targetids)] = np.asarray(leaf_weights, np.float64)
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function]
    total = _aggregate(op, _reached_leaves(op, X, forest), weights, aggregate, len(tree_roots))
    total = transformed(op, total, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform])
    return total if X.dtype.name == "FLOAT" else op.Cast(total, to=X.dtype)


def _members(modes, values, count):
    """The set of each membership node. `values` holds the sets one after another, each terminated by NaN."""
    if values is None:
        return None
    values = np.asarray(values, np.float64)
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    table = np.full((count, max(map(len, sets))), np.nan)
    for node, each in zip(np.flatnonzero(np.asarray(modes) == 6), sets, strict=False):
        table[node, : len(each)] = each
    return table
