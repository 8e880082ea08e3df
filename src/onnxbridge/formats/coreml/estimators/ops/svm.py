"""Support vector machines, in libsvm's representation."""

import itertools

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import vector


def _vectors(sparse, dense, width):
    """The support vectors (n, features); sparse ones index features from 1."""
    if dense is not None:
        rows = [list(v.values) for v in dense.vectors]
        if len({len(r) for r in rows}) > 1:
            raise UnsafeFileError("support vectors have different lengths")
        return np.array(rows)
    entries = [[(n.index, n.value) for n in v.nodes] for v in sparse.vectors]
    max_index = max((i for row in entries for i, _ in row), default=0)
    if max_index > width or any(i < 1 for row in entries for i, _ in row):
        raise UnsafeFileError(f"a support vector has feature {max_index}, but there are {width}")
    found = np.zeros((len(entries), width))
    for row, entry in zip(found, entries, strict=True):
        for i, value in entry:
            row[i - 1] = value
    return found


def _kernel(mil, features, kernel, sparse, dense):
    """The kernel of the features with each support vector, (vectors, 1)."""
    x = vector(mil, features)
    width = sum(v.type.shape[0] if v.type is not None and v.type.shape else 1 for v in features) if sparse is not None else 0
    vectors = mil.weight(_vectors(sparse, dense, width or 0), "vectors")
    kind = kernel.WhichOneof("kernel") or "linearKernel"
    if kind == "rbfKernel":
        squares = mil.square(x=mil.sub(x=vectors, y=x))
        squared_distance = mil.reduce_sum(x=squares, axes=np.array([1]), keep_dims=True)
        return mil.exp(x=mil.mul(x=squared_distance, y=np.float64(-kernel.rbfKernel.gamma)))
    product = mil.matmul(x=vectors, y=mil.reshape(x=x, shape=np.array([-1, 1])))
    if kind == "linearKernel":
        return product
    params = getattr(kernel, kind)
    shifted = mil.add(x=mil.mul(x=product, y=np.float64(params.gamma)), y=np.float64(params.c))
    return mil.tanh(x=shifted) if kind == "sigmoidKernel" else mil.pow(x=shifted, y=np.float64(params.degree))


@rule("supportVectorRegressor")
def support_vector_regressor(
    mil, *features, kernel, sparseSupportVectors=None, denseSupportVectors=None, coefficients, rho=0.0
):  # fmt: skip
    kernel_values = _kernel(mil, features, kernel, sparseSupportVectors, denseSupportVectors)
    weights = mil.weight(np.array(coefficients.alpha)[:, None], "coefficients")
    total = mil.reduce_sum(x=mil.mul(x=kernel_values, y=weights), axes=np.array([0]), keep_dims=False)
    return mil.sub(x=total, y=np.float64(rho))


@rule("supportVectorClassifier")
def support_vector_classifier(
    mil, *features, kernel, numberOfSupportVectorsPerClass, sparseSupportVectors=None, denseSupportVectors=None, coefficients,
    rho, probA=(), probB=(), classes,
):  # fmt: skip
    """One score per pair of classes, converted to probabilities with probA and probB, or else to shares of votes."""
    counts, number = [int(n) for n in numberOfSupportVectorsPerClass], len(classes)
    kernel_values = _kernel(mil, features, kernel, sparseSupportVectors, denseSupportVectors)
    pairs = list(itertools.combinations(range(number), 2))
    rows = np.array([list(c.alpha) for c in coefficients])
    if rows.shape != (number - 1, sum(counts)) or len(counts) != number or len(rho) != len(pairs):
        raise UnsafeFileError(
            f"a support vector machine of {number} classes has {len(counts)} groups of vectors and {len(rho)} pairs"
        )
    weights = mil.weight(_pair_coefficients(rows, counts, pairs), "coefficients")
    scores = mil.reshape(x=mil.matmul(x=weights, y=kernel_values), shape=np.array([-1]))
    scores = mil.sub(x=scores, y=mil.weight(np.array(rho), "rho"))
    if not len(probA):
        return _vote_shares(mil, scores, pairs, number)
    if len(probA) != len(pairs) or len(probB) != len(pairs):
        raise Unsupported("probabilities that are not one per pair of classes")
    shifted = mil.add(x=mil.mul(x=scores, y=mil.weight(np.array(probA), "probA")), y=mil.weight(np.array(probB), "probB"))
    pairwise = mil.clip(x=mil.sigmoid(x=mil.mul(x=shifted, y=np.float64(-1))), alpha=np.float64(1e-7), beta=np.float64(1 - 1e-7))
    if number == 2:
        return mil.concat(values=[pairwise, mil.sub(x=np.float64(1), y=pairwise)], axis=0)
    return _couple_pairwise(mil, pairwise, pairs, number)


def _pair_coefficients(rows, counts, pairs):
    """Rearrange libsvm's coefficients (classes - 1, vectors) by pair of classes and vector."""
    ends = np.cumsum(counts)
    found = np.zeros((len(pairs), sum(counts)))
    for p, (i, j) in enumerate(pairs):
        first_class, second_class = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        found[p, first_class], found[p, second_class] = rows[j - 1, first_class], rows[i, second_class]
    return found


def _vote_shares(mil, scores, pairs, number):
    first, second = (np.eye(number)[[p[side] for p in pairs]] for side in (0, 1))
    won = mil.reshape(x=mil.cast(x=mil.greater(x=scores, y=np.float64(0)), dtype="fp64"), shape=np.array([-1, 1]))
    lost = mil.sub(x=np.float64(1), y=won)
    params = mil.add(x=mil.mul(x=won, y=mil.weight(first, "first")), y=mil.mul(x=lost, y=mil.weight(second, "second")))
    return mil.reduce_mean(x=params, axes=np.array([0]), keep_dims=False)


def _couple_pairwise(mil, pairwise, pairs, number):
    """Class probabilities from pairwise ones: the second method of Wu, Lin and Weng (2004).

    The order of updates and the stopping criterion are libsvm's, which affect the last digits.
    """
    first, second = np.zeros((2, len(pairs), number * number))
    for p, (i, j) in enumerate(pairs):
        first[p, i * number + j] = second[p, j * number + i] = 1
    row = mil.reshape(x=pairwise, shape=np.array([1, -1]))
    r = mil.add(x=mil.matmul(x=row, y=mil.weight(first, "first")),
                y=mil.matmul(x=mil.sub(x=np.float64(1), y=row), y=mil.weight(second, "second")))  # fmt: skip
    r = mil.reshape(x=r, shape=np.array([number, number]))
    sums = mil.reduce_sum(x=mil.square(x=r), axes=np.array([0]), keep_dims=True)
    off_diagonal = mil.mul(x=mil.mul(x=r, y=mil.transpose(x=r, perm=np.array([1, 0]))), y=np.float64(-1))
    same, other = mil.weight(np.eye(number), "same"), mil.weight(1 - np.eye(number), "other")
    q = mil.add(x=mil.mul(x=same, y=sums), y=mil.mul(x=other, y=off_diagonal))

    def products(p):
        qp = mil.reshape(x=mil.matmul(x=q, y=mil.reshape(x=p, shape=np.array([-1, 1]))), shape=np.array([-1]))
        return qp, mil.reduce_sum(x=mil.mul(x=p, y=qp), axes=np.array([0]), keep_dims=True)

    def iteration(p):
        qp, pqp = products(p)
        for t in range(number):
            at = np.array([t], np.int32)
            q_column = mil.reshape(x=mil.gather(x=q, indices=at, axis=0), shape=np.array([-1]))
            diagonal, gradient = (mil.gather(x=v, indices=at, axis=0) for v in (q_column, qp))
            shifted = mil.real_div(x=mil.sub(x=pqp, y=gradient), y=diagonal)
            shrunk = mil.add(x=shifted, y=np.float64(1))
            p = mil.real_div(x=mil.add(x=p, y=mil.mul(x=shifted, y=mil.weight(np.eye(number)[t], "unit"))), y=shrunk)
            increase = mil.mul(x=shifted, y=mil.add(x=mil.mul(x=shifted, y=diagonal), y=mil.mul(x=gradient, y=np.float64(2))))
            pqp = mil.real_div(x=mil.add(x=pqp, y=increase), y=mil.square(x=shrunk))
            qp = mil.real_div(x=mil.add(x=qp, y=mil.mul(x=shifted, y=q_column)), y=shrunk)
        return p

    with mil.inner() as cond:
        count, p = cond.inputs = (mil.new("iteration"), mil.new("p"))
        qp, pqp = products(p)
        error = mil.reduce_max(x=mil.abs(x=mil.sub(x=qp, y=pqp)), axes=np.array([0]), keep_dims=False)
        going = mil.greater_equal(x=error, y=np.float64(0.005 / number))
        cond.outputs = (mil.logical_and(x=mil.less(x=count, y=np.int32(max(100, number))), y=going),)
    with mil.inner() as body:
        count, p = body.inputs = (mil.new("iteration"), mil.new("p"))
        body.outputs = (mil.add(x=count, y=np.int32(1)), iteration(p))
    start = [mil.weight(np.int32(0), "iteration"), mil.weight(np.full(number, 1 / number), "p")]
    return mil.while_loop(loop_vars=start, blocks=(cond, body), outputs=2)[1]
