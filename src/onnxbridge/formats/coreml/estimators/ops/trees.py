"""Tree ensembles: all trees are traversed in parallel, one level per step."""

from dataclasses import dataclass

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import apply_transform, class_probabilities, vector

COMPARE = {
    0: "less_equal", 1: "less", 2: "greater_equal", 3: "greater", 4: "equal", 5: "not_equal",
}  # fmt: skip
LEAF = 6
MAX_UNROLLED = 24  # levels that are unrolled; deeper trees are traversed in a loop


@dataclass
class Forest:
    """The nodes of all trees as parallel arrays. `yes` and `no` are the indices of the children; a leaf is its own child."""

    roots: np.ndarray
    behavior: np.ndarray
    feature: np.ndarray
    split: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    values: np.ndarray
    depth: int


def _forest(stored):
    nodes, width = list(stored.nodes), int(stored.numPredictionDimensions) or 1
    index_of = {(n.treeId, n.nodeId): i for i, n in enumerate(nodes)}
    if not nodes or len(index_of) < len(nodes):
        raise UnsafeFileError("the tree ensemble has no nodes, or two with the same id")
    node_ids = np.arange(len(nodes))
    leaf = np.array([n.nodeBehavior == LEAF for n in nodes])
    try:
        yes, no = (
            np.array([i if leaf[i] else index_of[n.treeId, getattr(n, f"{way}ChildNodeId")] for i, n in enumerate(nodes)])
            for way in ("true", "false")
        )
    except KeyError as error:
        raise UnsafeFileError(f"a node of a tree has a child that does not exist: (tree, node) {error}") from error
    roots = np.setdiff1d(node_ids, np.concatenate([yes[~leaf], no[~leaf]]))
    values = np.zeros((len(nodes), width))
    for i, node in enumerate(nodes):
        for entry in node.evaluationInfo:
            if entry.evaluationIndex >= width:
                raise UnsafeFileError(f"a leaf has a value with index {entry.evaluationIndex}, but there are {width}")
            values[i, entry.evaluationIndex] += entry.evaluationValue
    feature, split, missing = zip(*((n.branchFeatureIndex, n.branchFeatureValue, n.missingValueTracksTrueChild) for n in nodes),
                                  strict=True)  # fmt: skip
    return Forest(roots, np.array([n.nodeBehavior for n in nodes]), np.where(leaf, 0, feature), np.array(split), yes, no,
                  np.array(missing), values, _depth(roots, yes, no, len(nodes)))  # fmt: skip


def _depth(roots, yes, no, count):
    """The largest number of edges from a root to a leaf."""
    nodes, steps = roots, 0
    while True:
        children = np.unique(np.concatenate([yes[nodes], no[nodes]]))
        if np.array_equal(children, np.unique(nodes)) and (yes[nodes] == nodes).all():
            if roots.size and nodes.size:
                return steps
            raise UnsafeFileError("the nodes of a tree form a cycle")
        nodes, steps = children, steps + 1
        if steps > count:
            raise UnsafeFileError("the nodes of a tree form a cycle")


def _scores(mil, features, ensemble):
    """The sum of the values of the reached leaves, (numPredictionDimensions,)."""
    forest = _forest(ensemble)
    feature_count = sum(v.type.shape[0] if v.type is not None and v.type.shape else 1 for v in features)
    if all(v.type is not None and None not in (v.type.shape or ()) for v in features) and forest.feature.max() >= feature_count:
        raise UnsafeFileError(f"the trees read feature {forest.feature.max()}, but there are {feature_count}")
    x = vector(mil, features)
    tables = {
        name: mil.weight(getattr(forest, name).astype(kind), name)
        for name, kind in (("feature", np.int32), ("split", np.float64), ("yes", np.int32), ("no", np.int32))
    }
    kinds = [int(k) for k in np.unique(forest.behavior) if k != LEAF]
    behavior = mil.weight(forest.behavior.astype(np.int32), "behavior") if len(kinds) > 1 else None
    missing_to_true = mil.weight(forest.missing, "missing") if forest.missing.any() else None

    def level(nodes):
        def lookup(table):
            return mil.gather(x=table, indices=nodes, axis=0)

        value, split = mil.gather(x=x, indices=lookup(tables["feature"]), axis=0), lookup(tables["split"])
        condition = None
        for kind in kinds:
            compared = mil.emit(COMPARE[kind], x=value, y=split)
            if behavior is not None:
                compared = mil.logical_and(x=compared, y=mil.equal(x=lookup(behavior), y=np.int32(kind)))
            condition = compared if condition is None else mil.logical_or(x=condition, y=compared)
        if missing_to_true is not None or 5 in kinds:  # missing values are NaN, for which only != is true
            is_missing = mil.not_equal(x=value, y=value)
            goes_true = is_missing if missing_to_true is None else mil.logical_and(x=is_missing, y=lookup(missing_to_true))
            condition = mil.logical_and(x=condition, y=mil.logical_not(x=is_missing))
            condition = condition if missing_to_true is None else mil.logical_or(x=condition, y=goes_true)
        return mil.select(cond=condition, a=lookup(tables["yes"]), b=lookup(tables["no"]))

    nodes = mil.weight(forest.roots.astype(np.int32), "roots")
    nodes = _traverse(mil, level, nodes, forest.depth) if kinds else nodes
    reached = mil.gather(x=mil.weight(forest.values, "values"), indices=nodes, axis=0)
    total = mil.reduce_sum(x=reached, axes=np.array([0]), keep_dims=False)
    base = np.array(ensemble.basePredictionValue)
    if base.size not in (0, forest.values.shape[1]):
        raise Unsupported(f"{base.size} base predictions for {forest.values.shape[1]} values")
    return (mil.add(x=total, y=mil.weight(base, "base")) if base.any() else total), forest.values.shape[1]


def _traverse(mil, level, nodes, depth):
    if depth <= MAX_UNROLLED:
        for _ in range(depth):
            nodes = level(nodes)
        return nodes
    with mil.inner() as cond:
        step, current = cond.inputs = (mil.new("step"), mil.new("nodes"))
        cond.outputs = (mil.less(x=step, y=np.int32(depth)),)
    with mil.inner() as body:
        step, current = body.inputs = (mil.new("step"), mil.new("nodes"))
        body.outputs = (mil.add(x=step, y=np.int32(1)), level(current))
    return mil.while_loop(loop_vars=[mil.weight(np.int32(0), "step"), nodes], blocks=(cond, body), outputs=2)[1]


@rule("treeEnsembleRegressor")
def tree_ensemble_regressor(mil, *features, treeEnsemble, postEvaluationTransform="NoTransform"):
    scores, _ = _scores(mil, features, treeEnsemble)
    return apply_transform(mil, scores, postEvaluationTransform)


@rule("treeEnsembleClassifier")
def tree_ensemble_classifier(mil, *features, treeEnsemble, postEvaluationTransform="NoTransform", classes):
    scores, count = _scores(mil, features, treeEnsemble)
    count += postEvaluationTransform == "Classification_SoftMaxWithZeroClassReference"
    return class_probabilities(mil, apply_transform(mil, scores, postEvaluationTransform), count, len(classes))
