"""Features chosen, joined and told by categories."""

import math

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import vector
from onnxbridge.formats.coreml.estimators.ops.text import placed


@rule("arrayFeatureExtractor")
def array_feature_extractor(mil, x, *, extractIndex):
    places = np.array([int(i) for i in extractIndex], np.int32)
    return mil.gather(x=mil.reshape(x=x, shape=np.array([-1])), indices=mil.weight(places, "extractIndex"), axis=0)


@rule("featureVectorizer")
def feature_vectorizer(mil, *xs, inputList):
    """The features side by side, in the order of the list, which is that of the inputs."""
    wanted = [int(c.inputDimensions) for c in inputList]
    known = [math.prod(v.type.shape) if None not in v.type.shape else None for v in xs]
    if len(wanted) != len(xs) or any(k not in (None, w) for k, w in zip(known, wanted, strict=True)):
        raise UnsafeFileError(f"a vectorizer of {wanted} features has inputs of {known}")
    return vector(mil, xs)


@rule("oneHotEncoder", limits="a dense vector")
def one_hot_encoder(
    mil, x, *, stringCategories=None, int64Categories=None, outputSparse=False, handleUnknown="ErrorOnUnknown"
):  # fmt: skip
    """A one at the place of the category. One that is not known is nowhere or, where it is an error, ends the run.

    A sparse output, a dictionary of the places that are not 0, is dense: `reader` refuses it where it leaves the model.
    """
    if stringCategories is not None:
        x = placed(mil, x, list(stringCategories.vector), -1)
        names = np.arange(len(stringCategories.vector))
    else:
        names = np.array(int64Categories.vector, np.int64)
    same = mil.equal(x=mil.reshape(x=mil.cast(x=x, dtype="int64"), shape=np.array([1])), y=mil.weight(names, "categories"))
    found = mil.cast(x=same, dtype="fp64")
    if handleUnknown == "IgnoreUnknown":
        return found
    # of an unknown category the place is one behind the last, which no runtime gathers from
    numbered = mil.mul(x=found, y=mil.weight(np.arange(1.0, len(names) + 1), "places"))
    hits = mil.reduce_sum(x=numbered, axes=np.array([0]), keep_dims=True)
    nowhere = mil.weight(np.array([len(names) + 1.0]), "nowhere")
    place = mil.select(cond=mil.equal(x=hits, y=np.float64(0)), a=nowhere, b=hits)
    rows = mil.weight(np.eye(len(names)), "rows")
    at = mil.sub(x=mil.cast(x=place, dtype="int32"), y=np.int32(1))
    return mil.reshape(x=mil.gather(x=rows, indices=at, axis=0, validate_indices=True), shape=np.array([-1]))


@rule("kNearestNeighborsClassifier")
def k_nearest_neighbors_classifier(
    mil, x, *, nearestNeighborsIndex, numberOfNeighbors, defaultStringLabel=None, defaultInt64Label=None,
    uniformWeighting=None, inverseDistanceWeighting=None, classes,
):  # fmt: skip
    """The shares of the classes among the nearest samples, by the squares of distances. `classes` has one of each sample.

    Weighted by distance, a sample counts by 1 / distance, the square, which is the only distance that a file can name. Samples
    that are no distance away count alone.
    """
    samples = np.array([list(v.vector) for v in nearestNeighborsIndex.floatSamples], np.float64)
    if samples.ndim != 2 or len(samples) != len(classes):
        raise UnsafeFileError(f"{len(classes)} classes of {len(samples)} samples")
    names = list(dict.fromkeys(classes))
    member = np.eye(len(names))[[names.index(c) for c in classes]]
    apart = mil.sub(x=mil.weight(samples, "samples"), y=vector(mil, [x]))
    far = mil.reduce_sum(x=mil.square(x=apart), axes=np.array([1]), keep_dims=False)
    near = min(int(numberOfNeighbors.defaultValue), len(samples))
    distances, places = mil.topk(x=far, k=near, axis=0, ascending=True, outputs=2)
    votes = mil.gather(x=mil.weight(member, "member"), indices=places, axis=0)
    if inverseDistanceWeighting is None:
        return mil.reduce_mean(x=votes, axes=np.array([0]), keep_dims=False)
    here = mil.equal(x=distances, y=np.float64(0))
    count = mil.cast(x=here, dtype="fp64")
    some = mil.greater(x=mil.reduce_max(x=count, axes=np.array([0]), keep_dims=True), y=np.float64(0))
    near_by = mil.real_div(x=np.float64(1), y=mil.select(cond=here, a=mil.weight(np.ones(1), "one"), b=distances))
    weights = mil.expand_dims(x=mil.select(cond=some, a=count, b=near_by), axes=np.array([1]))
    total = mil.reduce_sum(x=weights, axes=np.array([0, 1]), keep_dims=False)
    shares = mil.reduce_sum(x=mil.mul(x=votes, y=weights), axes=np.array([0]), keep_dims=False)
    return mil.real_div(x=shares, y=total)
