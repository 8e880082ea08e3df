"""Cases of indexing, shapes, text and signals."""

from __future__ import annotations

import numpy as np

from tests.hub.decompositions.compare import Constant, StaticAxes, case

R = np.random.default_rng(2)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def integers(low, high, shape, dtype=np.int64):
    return R.integers(low, high, shape).astype(dtype)


def _grams(X, mode, skip, shortest, longest, strings=False, **attrs):
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
    pool = {"pool_strings": [str(p) for p in pool]} if strings else {"pool_int64s": pool}
    return case(
        "TfIdfVectorizer",
        X,
        mode=mode,
        max_skip_count=skip,
        min_gram_length=shortest,
        max_gram_length=longest,
        ngram_counts=[0, 4],
        ngram_indexes=[0, 1, 2, 3, 4, 5, 6],
        **pool,
        **attrs,
    )


PADS = {
    "constant": ((1, 2, 0, 3), 1.5),
    "edge": ((1, 2, 3, 0), None),
    "reflect": ((1, 2, 2, 3), None),
    "wrap": ((1, 2, 2, 9), None),
}
REPEATED = np.float32([2, 1, 1, 3, 4, 3, 2, 2])
ROWS = np.float32([[1, 0, 0], [1, 0, 0], [2, 3, 4], [0, 5, 1], [2, 3, 4]])
EDGES = np.array([1, 1, 2, 3]), np.array([[0, 0, 1], [1, 0, 0]])

CASES = [
    *(case("Trilu", f(*s), Constant(np.int64(k)), upper=u) for s in ((4, 5), (2, 3, 3)) for k in (-1, 0, 2) for u in (0, 1)),
    case("Trilu", integers(-9, 9, (3, 4)), np.int64(1)),
    case("Trilu", f(3, 4) > 0),
    *(case("EyeLike", f(3, 4), k=k, dtype=d) for k, d in ((0, None), (1, 7), (-2, 1))),
    *(
        case("OneHot", i, Constant(np.int64(4)), f(2), axis=a)
        for i in (np.array([0, 3, -1, 4, -5]), np.array([[1, 2], [3, 0]]))
        for a in (0, -1)
    ),
    case("OneHot", np.float32([1, 2]), np.array([5]), np.array([0, 1])),
    *(case("Hardmax", integers(0, 4, (2, 3, 4)).astype(np.float32), axis=a) for a in (0, 1, -1)),
    case("Compress", f(3, 4), np.array([True, False, True]), axis=0),
    case("Compress", f(3, 4), np.array([False, True]), axis=-1),
    case("Compress", f(3, 4), np.array([False, True, True, False, True])),
    *(case("GatherElements", f(3, 4), integers(-3, 3, (3, 4)), axis=a) for a in (0, 1)),
    case("GatherElements", f(3, 4, 2), integers(0, 2, (2, 3, 2), np.int32), axis=-1),
    *(case("ScatterElements", f(3, 4), np.array([[0, 2, 1]]), f(1, 3), axis=a) for a in (0, 1)),
    *(
        case("ScatterElements", f(3, 4), np.array([[0, 0], [-1, 2]]), f(2, 2), axis=1, reduction=r)
        for r in ("add", "mul", "max", "min")
    ),
    case("GatherND", f(3, 4, 5), StaticAxes(np.array([[0, 1], [-1, 2]]), (-1,))),
    case("GatherND", f(2, 3, 4), StaticAxes(np.array([[1], [2]]), (-1,)), batch_dims=1),
    case("GatherND", f(2, 2, 3, 4), StaticAxes(integers(-2, 2, (2, 2, 5, 2)), (-1,)), batch_dims=2),
    case("GatherND", f(3, 4), np.array([[0, 1], [-1, 2]]), unsupported="index tuples of dynamic length"),
    case("ReverseSequence", f(4, 3, 2), np.array([1, 4, 2]), time_axis=0, batch_axis=1),
    case("ReverseSequence", f(3, 4), np.array([1, 4, 2]), time_axis=1, batch_axis=0),
    *(
        case("TensorScatter", f(2, 3, 6, 4), f(2, 3, 2, 4), np.array([1, 4]), mode=m, reference="executor")
        for m in ("linear", "circular")
    ),
    case("TensorScatter", f(2, 6, 4), f(2, 2, 4), axis=1, reference="executor"),
    *(case("Unique", REPEATED, sorted=s, outputs=4) for s in (0, 1)),
    *(case("Unique", integers(0, 3, (3, 4)), sorted=s, outputs=4) for s in (0, 1)),
    *(case("Unique", ROWS, axis=a, sorted=s, outputs=4) for a in (0, 1, -1) for s in (0, 1)),
    case("Unique", np.zeros(0, np.float32), outputs=4, reference="executor"),
    case("Unique", np.array([True, False, True]), outputs=4, reference="executor"),
    # shapes
    case("Size", f(2, 3, 4)),
    *(case("Flatten", f(2, 3, 4), axis=a) for a in (0, 1, 2, 3, -1)),
    case("Tile", f(2, 3), Constant(np.array([2, 3]))),
    case("Tile", integers(0, 9, (2, 1, 3)), np.array([1, 4, 0])),
    *(case("DepthToSpace", f(2, 8, 3, 4), blocksize=2, mode=m) for m in ("DCR", "CRD")),
    case("SpaceToDepth", f(2, 3, 4, 6), blocksize=2),
    case("Split", f(7, 3), num_outputs=3, axis=0, outputs=3),
    case("Split", f(2, 7), Constant(np.array([2, 0, 5])), axis=1, outputs=3),
    case("Split", f(6, 2), np.array([1, 5]), axis=0, outputs=2),
    *(
        case("Pad", f(4, 5), kind(np.array(p)), *([np.float32(v)] if v else []), mode=m)
        for kind in (Constant, np.array)
        for m, (p, v) in PADS.items()
    ),
    case("Pad", f(4, 5), Constant(np.array([-1, 2, 1, -2]))),
    case("Pad", integers(0, 9, (4, 5)), Constant(np.array([1, 2])), np.int64(7), Constant(np.array([-1]))),
    case("Pad", f(4, 5), np.array([1, 2]), None, np.array([-2]), mode="edge"),
    case("Pad", f(2, 3), Constant(np.zeros(4, np.int64))),
    # text
    *(_grams(X, m, s, *g) for X in EDGES for m in ("TF", "IDF", "TFIDF") for s, g in ((0, (1, 1)), (0, (2, 2)), (5, (1, 2)))),
    _grams(np.array([2, 3, 5, 6, 7, 8]), "TFIDF", 1, 1, 2, weights=[2.0, 3.0, 1.0, 0.5, 4.0, 1.0, 5.0]),
    _grams(np.array([[5, 6, 3], [8, 6, 7]], np.int32), "TF", 0, 1, 2),
    _grams(np.array(["5", "6", "6", "7"], object), "TF", 0, 1, 2, strings=True),
    # signals
    *(
        case(
            "DFT",
            StaticAxes(f(2, 6, 3, n), (-1,)),
            Constant(np.int64(k)) if k else None,
            Constant(np.int64(a)),
            onesided=o,
            reference="executor",
            rtol=1e-4,
            atol=1e-5,
        )
        for n in (1, 2)
        for k in (0, 4, 9)
        for a in (1, -2)
        for o in (0, 1)
        if n == 1 or not o
    ),
    case("DFT", f(2, 6, 2), None, Constant(np.int64(1)), reference="executor", atol=1e-5, unsupported="the last axis must be 1"),
    *(
        case(
            "DFT",
            StaticAxes(f(2, 5, 2), (-1,)),
            *n,
            Constant(np.int64(1)),
            inverse=1,
            onesided=o,
            reference="executor",
            atol=1e-5,
        )
        for n in ([None], [Constant(np.int64(8))], [Constant(np.int64(5))], [np.int64(7)])
        for o in (0, 1)
    ),
    case("STFT", StaticAxes(f(2, 20, 1), (-1,)), Constant(np.int64(3)), f(8), reference="executor", atol=1e-5),
    case("STFT", StaticAxes(f(2, 20, 1), (-1,)), np.int64(3), None, np.int64(6), reference="executor", atol=1e-5),
    case(
        "STFT",
        StaticAxes(f(1, 20, 2), (-1,)),
        Constant(np.int64(5)),
        None,
        Constant(np.int64(7)),
        onesided=0,
        reference="executor",
        atol=1e-5,
    ),
    *(
        case(
            "MelWeightMatrix",
            *(kind(v) for v in (np.int64(8), np.int64(64), np.int64(8192), np.float32(0), np.float32(4096))),
            reference="executor",
        )
        for kind in (Constant, np.asarray)
    ),
    case(
        "MelWeightMatrix",
        *map(Constant, (np.int64(40), np.int64(400), np.int64(16000), np.float32(20), np.float32(7600))),
        reference="executor",
    ),
]
