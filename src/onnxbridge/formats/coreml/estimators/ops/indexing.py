"""Feature extraction, one-hot encoding and nearest neighbors."""

import math

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import vector
from onnxbridge.formats.coreml.estimators.ops.text import category_index


@rule("arrayFeatureExtractor")
def array_feature_extractor(mil, x, *, extractIndex):
    indices = np.array([int(i) for i in extractIndex], np.int32)
    return mil.gather(x=mil.reshape(x=x, shape=np.array([-1])), indices=mil.weight(indices, "extractIndex"), axis=0)


@rule("featureVectorizer")
def feature_vectorizer(mil, *xs, inputList):
    """Concatenates the features, in the order of the list, which is that of the inputs."""
    expected = [int(c.inputDimensions) for c in inputList]
    known = [math.prod(v.type.shape) if None not in v.type.shape else None for v in xs]
    if len(expected) != len(xs) or any(k not in (None, w) for k, w in zip(known, expected, strict=True)):
        raise UnsafeFileError(f"a feature vectorizer expects inputs of sizes {expected}, got {known}")
    return vector(mil, xs)


@rule("oneHotEncoder", limits="a dense vector")
def one_hot_encoder(
    mil, x, *, stringCategories=None, int64Categories=None, outputSparse=False, handleUnknown="ErrorOnUnknown"
):  # fmt: skip
    """One-hot encoding. An unknown category gives zeros or, if it is an error, an exception at run time.

    A sparse output, a dictionary of nonzero indices, is dense here; `reader` rejects it as an output of the model.
    """
    if stringCategories is not None:
        x = category_index(mil, x, list(stringCategories.vector), -1)
        names = np.arange(len(stringCategories.vector))
    else:
        names = np.array(int64Categories.vector, np.int64)
    same = mil.equal(x=mil.reshape(x=mil.cast(x=x, dtype="int64"), shape=np.array([1])), y=mil.weight(names, "categories"))
    one_hot = mil.cast(x=same, dtype="fp64")
    if handleUnknown == "IgnoreUnknown":
        return one_hot
    # an unknown category gets an index out of range, which gather rejects at run time
    weighted = mil.mul(x=one_hot, y=mil.weight(np.arange(1.0, len(names) + 1), "places"))
    one_based_index = mil.reduce_sum(x=weighted, axes=np.array([0]), keep_dims=True)
    out_of_range = mil.weight(np.array([len(names) + 1.0]), "nowhere")
    index = mil.select(cond=mil.equal(x=one_based_index, y=np.float64(0)), a=out_of_range, b=one_based_index)
    rows = mil.weight(np.eye(len(names)), "rows")
    zero_based_index = mil.sub(x=mil.cast(x=index, dtype="int32"), y=np.int32(1))
    return mil.reshape(x=mil.gather(x=rows, indices=zero_based_index, axis=0, validate_indices=True), shape=np.array([-1]))


@rule("kNearestNeighborsClassifier")
def k_nearest_neighbors_classifier(
    mil, x, *, nearestNeighborsIndex, numberOfNeighbors, defaultStringLabel=None, defaultInt64Label=None,
    uniformWeighting=None, inverseDistanceWeighting=None, classes,
):  # fmt: skip
    """The shares of the classes among the k nearest samples, by squared distance. `classes` has the class of each sample.

    With distance weighting, a sample has weight 1 / squared distance, the only distance in the format. If there are samples at
    distance 0, only these count.
    """
    samples = np.array([list(v.vector) for v in nearestNeighborsIndex.floatSamples], np.float64)
    if samples.ndim != 2 or len(samples) != len(classes):
        raise UnsafeFileError(f"{len(classes)} class labels for {len(samples)} samples")
    names = list(dict.fromkeys(classes))
    member = np.eye(len(names))[[names.index(c) for c in classes]]
    differences = mil.sub(x=mil.weight(samples, "samples"), y=vector(mil, [x]))
    squared_distances = mil.reduce_sum(x=mil.square(x=differences), axes=np.array([1]), keep_dims=False)
    k = min(int(numberOfNeighbors.defaultValue), len(samples))
    distances, indices = mil.topk(x=squared_distances, k=k, axis=0, ascending=True, outputs=2)
    votes = mil.gather(x=mil.weight(member, "member"), indices=indices, axis=0)
    if inverseDistanceWeighting is None:
        return mil.reduce_mean(x=votes, axes=np.array([0]), keep_dims=False)
    is_zero = mil.equal(x=distances, y=np.float64(0))
    zero_weights = mil.cast(x=is_zero, dtype="fp64")
    any_zero = mil.greater(x=mil.reduce_max(x=zero_weights, axes=np.array([0]), keep_dims=True), y=np.float64(0))
    inverse = mil.real_div(x=np.float64(1), y=mil.select(cond=is_zero, a=mil.weight(np.ones(1), "one"), b=distances))
    weights = mil.expand_dims(x=mil.select(cond=any_zero, a=zero_weights, b=inverse), axes=np.array([1]))
    total = mil.reduce_sum(x=weights, axes=np.array([0, 1]), keep_dims=False)
    weighted_votes = mil.reduce_sum(x=mil.mul(x=votes, y=weights), axes=np.array([0]), keep_dims=False)
    return mil.real_div(x=weighted_votes, y=total)
