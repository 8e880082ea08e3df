"""One-sided Fourier transforms of real signals."""

from __future__ import annotations

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of


def _check_supported(normalized, onesided, signal_ndim):
    if normalized or not onesided or signal_ndim != 1:
        raise Unsupported("normalized, two-sided or multi-dimensional transforms")


@contrib(MICROSOFT + "Rfft")
def rfft(op, X, *, normalized=0, onesided=1, signal_ndim=1):
    """The one-sided spectrum of the last axis; a new last axis holds the real and imaginary parts."""
    _check_supported(normalized, onesided, signal_ndim)
    rank = rank_of(X)
    return op.DFT(op.Unsqueeze(X, [-1]), None, rank - 1, onesided=1)


@contrib(MICROSOFT + "Irfft")
def irfft(op, X, *, normalized=0, onesided=1, signal_ndim):
    """The inverse transform to an even number of elements; the other half of the spectrum is mirrored and conjugated."""
    _check_supported(normalized, onesided, signal_ndim)
    axis = rank_of(X) - 2
    inner = op.Slice(X, [1], [-1], [axis])
    mirrored = op.Mul(op.Slice(inner, [-1], [-(2**62)], [axis], [-1]), op.CastLike([1.0, -1.0], X))
    spectrum = op.Concat(_real_ends(op, X, axis), mirrored, axis=axis)
    real = op.Slice(op.DFT(spectrum, None, axis, inverse=1), [0], [1], [axis + 1])
    return op.Squeeze(real, [axis + 1])


def _real_ends(op, X, axis):
    """Drops the imaginary parts of the first and last frequency, which are real for a real signal."""
    first, last = op.Slice(X, [0], [1], [axis]), op.Slice(X, [-1], [2**62], [axis])
    keep = op.CastLike([1.0, 0.0], X)
    return op.Concat(op.Mul(first, keep), op.Slice(X, [1], [-1], [axis]), op.Mul(last, keep), axis=axis)
