"""Tree ensembles of ai.onnx.ml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.runtime.executor.numpy.kernels.forest import LEAF, Ensemble, Forest, as_array, ensemble, weighted
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.scores import labels_of, transformed

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class Regressor:
    """A regressor: aggregates the weights of the reached leaves, and transforms the sums."""

    trees: Ensemble
    count: int
    how: str
    base: Any
    transform: str

    def __call__(self, x: Any) -> Any:
        return transformed(self.trees.totals(x, self.count, self.how, self.base), self.transform)


@dataclass(frozen=True)
class Classifier:
    """A classifier.

    With two classes and weights for one of them only, a score above `threshold` selects the second class, and `other` is the
    score of the first class: "0", "-" (the negative score) or "1-" (the complement).
    """

    trees: Ensemble
    count: int
    base: Any
    transform: str
    labels: Any
    threshold: float | None
    other: str

    def __call__(self, x: Any) -> Any:
        scores = self.trees.totals(x, self.count, "SUM", self.base)
        if self.threshold is None:
            return self.labels[np.argmax(scores, 1)], transformed(scores, self.transform).astype(np.float32)
        one = scores[:, :1]
        first = {"0": np.zeros_like(one), "-": -one, "1-": 1 - one}[self.other]
        pair = transformed(np.concatenate((first, one), 1), self.transform)
        return self.labels[(one[:, 0] > self.threshold).astype(int)], pair.astype(np.float32)


def regressor(
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
    """The regressor of a node's attributes."""
    weights = as_array(target_weights, target_weights_as_tensor)
    trees = ensemble(nodes, target_treeids, target_nodeids, target_ids, weights)
    base = as_array(base_values, base_values_as_tensor)
    return Regressor(trees, n_targets, aggregate_function, base, post_transform)


def classifier(
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
    """The classifier of a node's attributes."""
    labels = labels_of(classlabels_int64s, classlabels_strings)
    weights = as_array(class_weights, class_weights_as_tensor)
    base = as_array(base_values, base_values_as_tensor)
    if len(labels) != 2 or len(set(class_ids)) != 1:
        trees = ensemble(nodes, class_treeids, class_nodeids, class_ids, weights)
        return Classifier(trees, len(labels), base, post_transform, labels, None, "")
    trees = ensemble(nodes, class_treeids, class_nodeids, [0] * len(class_ids), weights)
    non_negative = bool((weights >= 0).all())
    if post_transform == "PROBIT":
        raise Unsupported("PROBIT of two classes of which one has weights")
    if class_ids[0] == 1:  # the scores are those of the second class; only the label depends on the threshold
        other = "0"
    else:
        other = "-" if post_transform == "LOGISTIC" or not non_negative else "1-"
        post_transform = post_transform if post_transform == "LOGISTIC" else "NONE"
    return Classifier(trees, 1, base[1:] if base.size == 2 else base, post_transform, labels, 0.5 if non_negative else 0.0, other)


@rule("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(X, **attributes):
    return regressor(**attributes)(X.reshape(X.shape[0], -1)).astype(np.float32)


@rule("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(X, **attributes):
    return classifier(**attributes)(X.reshape(X.shape[0], -1))


def trees(
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
    """The regressor of the attributes of a TreeEnsemble."""
    inner, leaves = len(nodes_modes), len(leaf_targetids)
    mode = np.concatenate((nodes_modes.astype(np.int64), np.full(leaves, LEAF)))

    def child(ids, are_leaves):
        return np.concatenate((np.asarray(ids) + np.where(are_leaves, inner, 0), inner + np.arange(leaves)))

    missing = nodes_missing_value_tracks_true or (0,) * inner
    # A tree of one leaf is written as a root whose two children are that leaf.
    forest = Forest(
        np.asarray(tree_roots, np.int64),
        mode,
        np.concatenate((nodes_featureids, np.zeros(leaves, np.int64))).astype(np.int64),
        np.concatenate((nodes_splits.astype(np.float64), np.zeros(leaves))),
        child(nodes_truenodeids, nodes_trueleafs),
        child(nodes_falsenodeids, nodes_falseleafs),
        np.concatenate((np.asarray(missing, bool), np.zeros(leaves, bool))),
        _members(nodes_modes, membership_values),
    )
    targets = np.asarray(leaf_targetids, np.int64)
    weighted_forest = weighted(forest, inner + np.arange(leaves), targets, leaf_weights.astype(np.float64))
    count = n_targets or int(targets.max()) + 1
    return Regressor(weighted_forest, count, _AGGREGATES[aggregate_function], np.zeros(0), _TRANSFORMS[post_transform])


@rule("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(X, **attributes):
    return trees(**attributes)(X).astype(X.dtype)


def _members(modes, values):
    """The set of each membership node; the sets are concatenated, each terminated by a NaN."""
    if values is None:
        return ()
    sets = np.split(values, np.flatnonzero(np.isnan(values)) + 1)
    remaining = iter(s[~np.isnan(s)] for s in sets)
    return tuple(next(remaining) if m == 6 else None for m in modes)
