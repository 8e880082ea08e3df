"""Support vector machines, as libsvm stores them."""

import itertools

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule
from onnxbridge.formats.coreml.estimators.ops.scores import vector


def _vectors(sparse, dense, width):
    """The support vectors (n, features); sparse ones count their features from 1."""
    if dense is not None:
        rows = [list(v.values) for v in dense.vectors]
        if len({len(r) for r in rows}) > 1:
            raise UnsafeFileError("support vectors of unlike lengths")
        return np.array(rows)
    entries = [[(n.index, n.value) for n in v.nodes] for v in sparse.vectors]
    most = max((i for row in entries for i, _ in row), default=0)
    if most > width or any(i < 1 for row in entries for i, _ in row):
        raise UnsafeFileError(f"a support vector has feature {most} of {width}")
    found = np.zeros((len(entries), width))
    for row, entry in zip(found, entries, strict=True):
        for i, value in entry:
            row[i - 1] = value
    return found


def _kernel(mil, features, kernel, sparse, dense):
    """How near the features are to each support vector, (vectors, 1)."""
    x = vector(mil, features)
    width = sum(v.type.shape[0] if v.type is not None and v.type.shape else 1 for v in features) if sparse is not None else 0
    vectors = mil.weight(_vectors(sparse, dense, width or 0), "vectors")
    kind = kernel.WhichOneof("kernel") or "linearKernel"
    if kind == "rbfKernel":
        squares = mil.square(x=mil.sub(x=vectors, y=x))
        apart = mil.reduce_sum(x=squares, axes=np.array([1]), keep_dims=True)
        return mil.exp(x=mil.mul(x=apart, y=np.float64(-kernel.rbfKernel.gamma)))
    product = mil.matmul(x=vectors, y=mil.reshape(x=x, shape=np.array([-1, 1])))
    if kind == "linearKernel":
        return product
    given = getattr(kernel, kind)
    moved = mil.add(x=mil.mul(x=product, y=np.float64(given.gamma)), y=np.float64(given.c))
    return mil.tanh(x=moved) if kind == "sigmoidKernel" else mil.pow(x=moved, y=np.float64(given.degree))


@rule("supportVectorRegressor")
def support_vector_regressor(
    mil, *features, kernel, sparseSupportVectors=None, denseSupportVectors=None, coefficients, rho=0.0
):  # fmt: skip
    near = _kernel(mil, features, kernel, sparseSupportVectors, denseSupportVectors)
    weights = mil.weight(np.array(coefficients.alpha)[:, None], "coefficients")
    total = mil.reduce_sum(x=mil.mul(x=near, y=weights), axes=np.array([0]), keep_dims=False)
    return mil.sub(x=total, y=np.float64(rho))


@rule("supportVectorClassifier")
def support_vector_classifier(
    mil, *features, kernel, numberOfSupportVectorsPerClass, sparseSupportVectors=None, denseSupportVectors=None, coefficients,
    rho, probA=(), probB=(), classes,
):  # fmt: skip
    """Each pair of classes has a score. With probA and probB these become probabilities, else the shares of the votes."""
    counts, number = [int(n) for n in numberOfSupportVectorsPerClass], len(classes)
    near = _kernel(mil, features, kernel, sparseSupportVectors, denseSupportVectors)
    pairs = list(itertools.combinations(range(number), 2))
    rows = np.array([list(c.alpha) for c in coefficients])
    if rows.shape != (number - 1, sum(counts)) or len(counts) != number or len(rho) != len(pairs):
        raise UnsafeFileError(f"a support vector machine of {number} classes with {len(counts)} groups and {len(rho)} pairs")
    weights = mil.weight(_weights(rows, counts, pairs), "coefficients")
    scores = mil.reshape(x=mil.matmul(x=weights, y=near), shape=np.array([-1]))
    scores = mil.sub(x=scores, y=mil.weight(np.array(rho), "rho"))
    if not len(probA):
        return _votes(mil, scores, pairs, number)
    if len(probA) != len(pairs) or len(probB) != len(pairs):
        raise Unsupported("probabilities for other than every pair of classes")
    moved = mil.add(x=mil.mul(x=scores, y=mil.weight(np.array(probA), "probA")), y=mil.weight(np.array(probB), "probB"))
    likely = mil.clip(x=mil.sigmoid(x=mil.mul(x=moved, y=np.float64(-1))), alpha=np.float64(1e-7), beta=np.float64(1 - 1e-7))
    if number == 2:
        return mil.concat(values=[likely, mil.sub(x=np.float64(1), y=likely)], axis=0)
    return _coupled(mil, likely, pairs, number)


def _weights(rows, counts, pairs):
    """The coefficients (classes - 1, vectors), as libsvm stores them, by pair of classes and vector."""
    ends = np.cumsum(counts)
    found = np.zeros((len(pairs), sum(counts)))
    for p, (i, j) in enumerate(pairs):
        own, other = (slice(ends[k] - counts[k], ends[k]) for k in (i, j))
        found[p, own], found[p, other] = rows[j - 1, own], rows[i, other]
    return found


def _votes(mil, scores, pairs, number):
    first, second = (np.eye(number)[[p[side] for p in pairs]] for side in (0, 1))
    won = mil.reshape(x=mil.cast(x=mil.greater(x=scores, y=np.float64(0)), dtype="fp64"), shape=np.array([-1, 1]))
    lost = mil.sub(x=np.float64(1), y=won)
    given = mil.add(x=mil.mul(x=won, y=mil.weight(first, "first")), y=mil.mul(x=lost, y=mil.weight(second, "second")))
    return mil.reduce_mean(x=given, axes=np.array([0]), keep_dims=False)


def _coupled(mil, likely, pairs, number):
    """Probabilities of the classes from those of the first of each pair: the second method of Wu, Lin and Weng (2004).

    With libsvm's order of updates and its end, which a number of its digits depends on.
    """
    first, second = np.zeros((2, len(pairs), number * number))
    for p, (i, j) in enumerate(pairs):
        first[p, i * number + j] = second[p, j * number + i] = 1
    row = mil.reshape(x=likely, shape=np.array([1, -1]))
    r = mil.add(x=mil.matmul(x=row, y=mil.weight(first, "first")),
                y=mil.matmul(x=mil.sub(x=np.float64(1), y=row), y=mil.weight(second, "second")))  # fmt: skip
    r = mil.reshape(x=r, shape=np.array([number, number]))
    sums = mil.reduce_sum(x=mil.square(x=r), axes=np.array([0]), keep_dims=True)
    apart = mil.mul(x=mil.mul(x=r, y=mil.transpose(x=r, perm=np.array([1, 0]))), y=np.float64(-1))
    same, other = mil.weight(np.eye(number), "same"), mil.weight(1 - np.eye(number), "other")
    q = mil.add(x=mil.mul(x=same, y=sums), y=mil.mul(x=other, y=apart))

    def products(p):
        qp = mil.reshape(x=mil.matmul(x=q, y=mil.reshape(x=p, shape=np.array([-1, 1]))), shape=np.array([-1]))
        return qp, mil.reduce_sum(x=mil.mul(x=p, y=qp), axes=np.array([0]), keep_dims=True)

    def turn(p):
        qp, pqp = products(p)
        for t in range(number):
            at = np.array([t], np.int32)
            column = mil.reshape(x=mil.gather(x=q, indices=at, axis=0), shape=np.array([-1]))
            own, here = (mil.gather(x=v, indices=at, axis=0) for v in (column, qp))
            moved = mil.real_div(x=mil.sub(x=pqp, y=here), y=own)
            shrunk = mil.add(x=moved, y=np.float64(1))
            p = mil.real_div(x=mil.add(x=p, y=mil.mul(x=moved, y=mil.weight(np.eye(number)[t], "unit"))), y=shrunk)
            grown = mil.mul(x=moved, y=mil.add(x=mil.mul(x=moved, y=own), y=mil.mul(x=here, y=np.float64(2))))
            pqp = mil.real_div(x=mil.add(x=pqp, y=grown), y=mil.square(x=shrunk))
            qp = mil.real_div(x=mil.add(x=qp, y=mil.mul(x=moved, y=column)), y=shrunk)
        return p

    with mil.inner() as cond:
        count, p = cond.inputs = (mil.new("turn"), mil.new("p"))
        qp, pqp = products(p)
        error = mil.reduce_max(x=mil.abs(x=mil.sub(x=qp, y=pqp)), axes=np.array([0]), keep_dims=False)
        going = mil.greater_equal(x=error, y=np.float64(0.005 / number))
        cond.outputs = (mil.logical_and(x=mil.less(x=count, y=np.int32(max(100, number))), y=going),)
    with mil.inner() as body:
        count, p = body.inputs = (mil.new("turn"), mil.new("p"))
        body.outputs = (mil.add(x=count, y=np.int32(1)), turn(p))
    start = [mil.weight(np.int32(0), "turn"), mil.weight(np.full(number, 1 / number), "p")]
    return mil.while_loop(loop_vars=start, blocks=(cond, body), outputs=2)[1]
