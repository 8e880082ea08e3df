"""Tree ensembles: TreeEnsembleRegressor and TreeEnsembleClassifier were merged into TreeEnsemble, with separate leaves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard.classifier_scores import best, labels, transformed
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import dtype_of
from onnxbridge.rules import Outputs

ML = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MAX_NODES = 1 << 20


def _as_array(floats, tensor):
    return np.asarray(tensor if tensor is not None else () if floats is None else floats, np.float64)


def _ensemble(op, X, nodes, weights, count, aggregate):
    """A TreeEnsemble from the older attributes; `weights` are (tree, node, target, weight), at most one per leaf."""
    keys = list(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], strict=True))
    leaf = {key: mode == "LEAF" for key, mode in zip(keys, nodes["nodes_modes"], strict=True)}
    inner, leaves = [k for k in keys if not leaf[k]], [k for k in keys if leaf[k]]
    position = {k: i for group in (inner, leaves) for i, k in enumerate(group)}
    split = _as_array(nodes.get("nodes_values"), nodes.get("nodes_values_as_tensor"))
    missing = nodes.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    rows = [
        (nodes["nodes_featureids"][i], _MODES.index(nodes["nodes_modes"][i]), split[i], missing[i],
         (key[0], nodes["nodes_truenodeids"][i]), (key[0], nodes["nodes_falsenodeids"][i]))
        for i, key in enumerate(keys) if not leaf[key]
    ]  # fmt: skip
    first = {key[0]: key for key in reversed(keys)}
    roots = []
    for tree in dict.fromkeys(nodes["nodes_treeids"]):
        if leaf[first[tree]]:  # a tree with a single leaf becomes a root with that leaf as both children
            rows.append((0, 0, 0.0, 0, first[tree], first[tree]))
        roots.append(len(rows) - 1 if leaf[first[tree]] else position[first[tree]])
    of_leaf = {(tree, node): (target, weight) for tree, node, target, weight in weights}
    dtype = dtype_of(X).numpy()
    features, modes, splits, tracks, yes, no = zip(*rows, strict=True)
    return op.TreeEnsemble(
        X, aggregate_function=aggregate, n_targets=count, tree_roots=roots,
        leaf_targetids=[of_leaf.get(k, (0, 0.0))[0] for k in leaves],
        leaf_weights=np.array([of_leaf.get(k, (0, 0.0))[1] for k in leaves], dtype),
        nodes_featureids=features, nodes_modes=np.array(modes, np.uint8), nodes_splits=np.array(splits, dtype),
        nodes_truenodeids=[position[k] for k in yes], nodes_trueleafs=[int(leaf[k]) for k in yes],
        nodes_falsenodeids=[position[k] for k in no], nodes_falseleafs=[int(leaf[k]) for k in no],
        nodes_missing_value_tracks_true=tracks if any(tracks) else None, domain=ML,
    )  # fmt: skip


def _scores(op, X, nodes, weights, count, how):
    """The aggregated weights of each target; leaves with several targets need one ensemble per target."""
    X = X if dtype_of(X).name in ("FLOAT", "DOUBLE") else op.Cast(X, to=ir.DataType.FLOAT)
    merged = {}
    for tree, node, target, weight in weights:
        merged[tree, node, target] = merged.get((tree, node, target), 0.0) + weight
    entries = [(*key, weight) for key, weight in merged.items()]
    if len({(tree, node) for tree, node, _, _ in entries}) == len(entries):
        return _ensemble(op, X, nodes, entries, count, _AGGREGATES.index(how))
    leaves = nodes["nodes_modes"].count("LEAF")
    parts = []
    for target in range(count):
        of_target = [(tree, node, 0, weight) for tree, node, t, weight in entries if t == target]
        if how in ("MIN", "MAX") and len(of_target) != leaves:
            raise Unsupported(f"{how} if some leaves have no weight for a target")
        parts.append(_ensemble(op, X, nodes, of_target, 1, _AGGREGATES.index(how)))
    return op.Concat(*parts, axis=1)


def _add_base_values(op, scores, base, nodes, entries):
    """Scores plus base values, if all runtimes agree: some do not add them to targets without weights."""
    leaves = {}
    for tree, node, mode in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True):
        if mode == "LEAF":
            leaves.setdefault(tree, set()).add(node)
    for target in np.flatnonzero(base):
        weighted = {}
        for tree, node, t, _ in entries:
            weighted.setdefault(tree, set()).update([node] if t == target else [])
        if not any(weighted.get(tree, set()) >= nodes for tree, nodes in leaves.items()):
            raise Unsupported(f"a base value of target {target}, for which some leaves have no weight")
    scores = op.Cast(scores, to=ir.DataType.FLOAT) if dtype_of(scores) != ir.DataType.FLOAT else scores
    return op.Add(scores, base.astype(np.float32)) if base.size else scores


@up(f"{ML}::TreeEnsembleRegressor", to=5)
def regressor(
    op, X, *, aggregate_function="SUM", base_values=None, base_values_as_tensor=None, n_targets=None,
    post_transform="NONE", target_ids=None, target_nodeids=None, target_treeids=None, target_weights=None,
    target_weights_as_tensor=None, **nodes,
):  # fmt: skip
    weights, base = _as_array(target_weights, target_weights_as_tensor), _as_array(base_values, base_values_as_tensor)
    entries = list(zip(target_treeids, target_nodeids, target_ids, weights, strict=True))
    scores = _scores(op, X, nodes, entries, n_targets or 1, aggregate_function)
    return transformed(op, _add_base_values(op, scores, base, nodes, entries), post_transform)


@up(f"{ML}::TreeEnsembleClassifier", to=5)
def classifier(
    op, X, *, base_values=None, base_values_as_tensor=None, class_ids=None, class_nodeids=None, class_treeids=None,
    class_weights=None, class_weights_as_tensor=None, classlabels_int64s=None, classlabels_strings=None,
    post_transform="NONE", outputs: Outputs = (True, True), **nodes,
):  # fmt: skip
    """The class with the largest sum; of two classes of which only the first has weights, these count for the second.

    The standard does not define that case: this follows ONNX Runtime, which other tools convert for.
    """
    names, classes = labels(op, classlabels_int64s, classlabels_strings), len(classlabels_strings or classlabels_int64s)
    weights, base = _as_array(class_weights, class_weights_as_tensor), _as_array(base_values, base_values_as_tensor)
    if classes == 2 and len(set(class_ids)) == 1:
        if base.size:
            raise Unsupported("base values of two classes of which only one has weights")
        second = class_ids[0] == 1
        entries = list(zip(class_treeids, class_nodeids, [0] * len(class_ids), weights, strict=True))
        one = _add_base_values(op, _scores(op, X, nodes, entries, 1, "SUM"), base, nodes, entries)
        certain = bool((weights >= 0).all())
        label = op.Gather(names, op.Cast(op.Greater(op.Squeeze(one, [1]), 0.5 if certain else 0.0), to=7), axis=0)
        if second:
            return label, transformed(op, op.Concat(op.Mul(one, 0.0), one, axis=1), post_transform)
        if post_transform == "LOGISTIC":
            return label, op.Sigmoid(op.Concat(op.Neg(one), one, axis=1))
        if post_transform != "NONE":
            raise Unsupported(f"{post_transform} of two classes of which only one has weights")
        return label, op.Concat(op.Sub(1.0, one) if certain else op.Neg(one), one, axis=1)
    if classes == 2 and outputs[0]:
        raise Unsupported(
            "for two classes with weights the standard selects the largest score, ONNX Runtime the second if it is positive",
            "use the scores only, or give weights to the first class alone",
        )
    entries = list(zip(class_treeids, class_nodeids, class_ids, weights, strict=True))
    scores = _add_base_values(op, _scores(op, X, nodes, entries, classes, "SUM"), base, nodes, entries)
    return best(op, names, scores), transformed(op, scores, post_transform)


@down(f"{ML}::TreeEnsemble", to=4)
def tree_ensemble(
    op, X, *, aggregate_function=1, leaf_targetids, leaf_weights, membership_values=None, n_targets=None, nodes_falseleafs,
    nodes_falsenodeids, nodes_featureids, nodes_hitrates=None, nodes_missing_value_tracks_true=None, nodes_modes, nodes_splits,
    nodes_trueleafs, nodes_truenodeids, post_transform=0, tree_roots,
):  # fmt: skip
    """Concatenates the trees with their leaves as nodes; set membership becomes a chain of equality tests."""
    sets = _sets(nodes_modes, membership_values)
    rows, targets = [], []

    def write(tree, number, is_leaf, members=None):
        own = len(rows) - starts[tree]
        if len(rows) > _MAX_NODES:
            raise Unsupported(f"more than {_MAX_NODES} nodes, since each member of a set needs one")
        row = {"tree": tree, "node": own, "feature": 0, "mode": "LEAF", "value": 0.0, "yes": 0, "no": 0, "missing": 0}
        rows.append(row)
        if is_leaf:
            targets.append((tree, own, leaf_targetids[number], leaf_weights[number]))
            return own
        mode = _MODES[int(nodes_modes[number])]
        more = ()
        if mode == "BRANCH_MEMBER":
            first, *more = sets[number] if members is None else members
            mode, row["value"] = "BRANCH_EQ", float(first)
        else:
            row["value"] = float(nodes_splits[number])
        row["mode"], row["feature"] = mode, nodes_featureids[number]
        row["missing"] = nodes_missing_value_tracks_true[number] if nodes_missing_value_tracks_true else 0
        row["yes"] = write(tree, nodes_truenodeids[number], nodes_trueleafs[number])
        other = (number, False, more) if more else (nodes_falsenodeids[number], nodes_falseleafs[number])
        row["no"] = write(tree, *other)
        return own

    starts = []
    for tree, root in enumerate(tree_roots):
        starts.append(len(rows))
        write(tree, root, False)
    dtype = dtype_of(X)
    if dtype == ir.DataType.DOUBLE:
        op.loses("scores of float64 inputs are rounded to float32")
    x = op.Cast(X, to=ir.DataType.FLOAT) if dtype == ir.DataType.FLOAT16 else X
    values, weights = [r["value"] for r in rows], [float(t[3]) for t in targets]
    exact = dtype == ir.DataType.DOUBLE
    y = op.TreeEnsembleRegressor(
        x, aggregate_function=_AGGREGATES[aggregate_function], post_transform=_TRANSFORMS[post_transform],
        n_targets=n_targets or max(leaf_targetids) + 1,
        nodes_treeids=[r["tree"] for r in rows], nodes_nodeids=[r["node"] for r in rows],
        nodes_featureids=[r["feature"] for r in rows], nodes_modes=[r["mode"] for r in rows],
        nodes_truenodeids=[r["yes"] for r in rows], nodes_falsenodeids=[r["no"] for r in rows],
        nodes_missing_value_tracks_true=[r["missing"] for r in rows],
        nodes_values=None if exact else values, nodes_values_as_tensor=np.array(values) if exact else None,
        target_treeids=[t[0] for t in targets], target_nodeids=[t[1] for t in targets], target_ids=[t[2] for t in targets],
        target_weights=None if exact else weights, target_weights_as_tensor=np.array(weights) if exact else None, domain=ML,
    )  # fmt: skip
    return y if dtype == ir.DataType.FLOAT else op.Cast(y, to=dtype)


def _sets(modes, values):
    """The members tested by each BRANCH_MEMBER node, by its index; NaN ends a set."""
    groups, current = [], []
    for v in () if values is None else np.asarray(values, np.float64):
        if np.isnan(v):
            groups.append(current)
            current = []
        else:
            current.append(v)
    groups += [current] if current else []
    member_nodes = [i for i, m in enumerate(modes) if int(m) == 6]
    if len(member_nodes) > len(groups) or not all(groups[: len(member_nodes)]):
        raise Unsupported("a set without members")
    return dict(zip(member_nodes, groups, strict=False))


def _single_precision(name, prefixes):
    def trees(op, X, *, outputs: Outputs, **attrs):
        """Values were float32 lists."""
        for prefix in prefixes:
            tensor = attrs.pop(f"{prefix}_as_tensor", None)
            if tensor is None:
                continue
            if not np.array_equal(tensor.astype(np.float32).astype(np.float64), tensor, equal_nan=True):
                op.loses(f"{prefix!r} is rounded to float32")
            attrs[prefix] = tensor.astype(np.float32).tolist()
        return op.call(name, X, outputs=len(outputs), domain=ML, **attrs)

    return trees


for _name, _of in (("TreeEnsembleRegressor", "target"), ("TreeEnsembleClassifier", "class")):
    _fields = ("base_values", "nodes_hitrates", "nodes_values", f"{_of}_weights")
    down(f"{ML}::{_name}", to=2)(_single_precision(_name, _fields))
