"""Ensembles of decision trees: all trees are walked at once, one level a step."""

from dataclasses import dataclass

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import shares, transformed, vector

COMPARE = {
    0: "less_equal", 1: "less", 2: "greater_equal", 3: "greater", 4: "equal", 5: "not_equal",
}  # fmt: skip
LEAF = 6
LEVELS = 24  # steps that are written one after the other; deeper trees are walked in a loop


@dataclass
class Forest:
    """The nodes of all trees in one list; `yes` and `no` are places in it, and a leaf's are its own."""

    roots: np.ndarray
    behaviour: np.ndarray
    feature: np.ndarray
    split: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    values: np.ndarray
    depth: int


def _forest(stored):
    nodes, width = list(stored.nodes), int(stored.numPredictionDimensions) or 1
    place = {(n.treeId, n.nodeId): i for i, n in enumerate(nodes)}
    if not nodes or len(place) < len(nodes):
        raise UnsafeFileError("the tree ensemble has no nodes, or two of one number")
    own = np.arange(len(nodes))
    leaf = np.array([n.nodeBehavior == LEAF for n in nodes])
    try:
        yes, no = (
            np.array([i if leaf[i] else place[n.treeId, getattr(n, f"{way}ChildNodeId")] for i, n in enumerate(nodes)])
            for way in ("true", "false")
        )
    except KeyError as error:
        raise UnsafeFileError(f"a node of a tree has a child that is not there: (tree, node) {error}") from error
    roots = np.setdiff1d(own, np.concatenate([yes[~leaf], no[~leaf]]))
    values = np.zeros((len(nodes), width))
    for i, node in enumerate(nodes):
        for entry in node.evaluationInfo:
            if entry.evaluationIndex >= width:
                raise UnsafeFileError(f"a leaf has a value number {entry.evaluationIndex} of {width}")
            values[i, entry.evaluationIndex] += entry.evaluationValue
    feature, split, missing = zip(*((n.branchFeatureIndex, n.branchFeatureValue, n.missingValueTracksTrueChild) for n in nodes),
                                  strict=True)  # fmt: skip
    return Forest(roots, np.array([n.nodeBehavior for n in nodes]), np.where(leaf, 0, feature), np.array(split), yes, no,
                  np.array(missing), values, _depth(roots, yes, no, len(nodes)))  # fmt: skip


def _depth(roots, yes, no, count):
    """The most steps from a root to a leaf."""
    at, steps = roots, 0
    while True:
        below = np.unique(np.concatenate([yes[at], no[at]]))
        if np.array_equal(below, np.unique(at)) and (yes[at] == at).all():
            if roots.size and at.size:
                return steps
            raise UnsafeFileError("the nodes of a tree form a circle")
        at, steps = below, steps + 1
        if steps > count:
            raise UnsafeFileError("the nodes of a tree form a circle")


def _scores(mil, features, ensemble):
    """The sum of what the leaves give that the features reach, (numPredictionDimensions,)."""
    forest = _forest(ensemble)
    known = sum(v.type.shape[0] if v.type is not None and v.type.shape else 1 for v in features)
    if all(v.type is not None and None not in (v.type.shape or ()) for v in features) and forest.feature.max() >= known:
        raise UnsafeFileError(f"the trees look at feature {forest.feature.max()} of {known}")
    x = vector(mil, features)
    tables = {
        name: mil.weight(getattr(forest, name).astype(kind), name)
        for name, kind in (("feature", np.int32), ("split", np.float64), ("yes", np.int32), ("no", np.int32))
    }
    kinds = [int(k) for k in np.unique(forest.behaviour) if k != LEAF]
    behaviour = mil.weight(forest.behaviour.astype(np.int32), "behaviour") if len(kinds) > 1 else None
    strays = mil.weight(forest.missing, "missing") if forest.missing.any() else None

    def level(at):
        def look(table):
            return mil.gather(x=table, indices=at, axis=0)

        value, split = mil.gather(x=x, indices=look(tables["feature"]), axis=0), look(tables["split"])
        holds = None
        for kind in kinds:
            one = mil.emit(COMPARE[kind], x=value, y=split)
            if behaviour is not None:
                one = mil.logical_and(x=one, y=mil.equal(x=look(behaviour), y=np.int32(kind)))
            holds = one if holds is None else mil.logical_or(x=holds, y=one)
        if strays is not None or 5 in kinds:  # what is missing is NaN, which no comparison but the last holds for
            absent = mil.not_equal(x=value, y=value)
            along = absent if strays is None else mil.logical_and(x=absent, y=look(strays))
            holds = mil.logical_and(x=holds, y=mil.logical_not(x=absent))
            holds = holds if strays is None else mil.logical_or(x=holds, y=along)
        return mil.select(cond=holds, a=look(tables["yes"]), b=look(tables["no"]))

    at = mil.weight(forest.roots.astype(np.int32), "roots")
    at = _walked(mil, level, at, forest.depth) if kinds else at
    reached = mil.gather(x=mil.weight(forest.values, "values"), indices=at, axis=0)
    total = mil.reduce_sum(x=reached, axes=np.array([0]), keep_dims=False)
    base = np.array(ensemble.basePredictionValue)
    if base.size not in (0, forest.values.shape[1]):
        raise Unsupported(f"{base.size} base predictions of {forest.values.shape[1]}")
    return (mil.add(x=total, y=mil.weight(base, "base")) if base.any() else total), forest.values.shape[1]


def _walked(mil, level, at, depth):
    if depth <= LEVELS:
        for _ in range(depth):
            at = level(at)
        return at
    with mil.inner() as cond:
        turn, place = cond.inputs = (mil.new("turn"), mil.new("at"))
        cond.outputs = (mil.less(x=turn, y=np.int32(depth)),)
    with mil.inner() as body:
        turn, place = body.inputs = (mil.new("turn"), mil.new("at"))
        body.outputs = (mil.add(x=turn, y=np.int32(1)), level(place))
    return mil.while_loop(loop_vars=[mil.weight(np.int32(0), "turn"), at], blocks=(cond, body), outputs=2)[1]


@rule("treeEnsembleRegressor")
def tree_ensemble_regressor(mil, *features, treeEnsemble, postEvaluationTransform="NoTransform"):
    scores, _ = _scores(mil, features, treeEnsemble)
    return transformed(mil, scores, postEvaluationTransform)


@rule("treeEnsembleClassifier")
def tree_ensemble_classifier(mil, *features, treeEnsemble, postEvaluationTransform="NoTransform", classes):
    scores, count = _scores(mil, features, treeEnsemble)
    count += postEvaluationTransform == "Classification_SoftMaxWithZeroClassReference"
    return shares(mil, transformed(mil, scores, postEvaluationTransform), count, len(classes))
