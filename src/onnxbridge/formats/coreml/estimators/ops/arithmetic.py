"""Features made ready: scaled, normalised, filled in."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule


def _double(mil, x):
    return mil.cast(x=x, dtype="fp64")


@rule("scaler")
def scaler(mil, x, *, shiftValue=(), scaleValue=()):
    """(x + shift) * scale, with one number for all features or one for each."""
    x = _double(mil, x)
    shift, scale = np.array(shiftValue), np.array(scaleValue)
    x = mil.add(x=x, y=mil.weight(shift, "shift")) if shift.size else x
    return mil.mul(x=x, y=mil.weight(scale, "scale")) if scale.size else x


@rule("normalizer")
def normalizer(mil, x, *, normType="LMax"):
    """Divided by a length; a vector of zeros stays."""
    x = _double(mil, x)
    axes, size = np.array([-1]), mil.abs(x=x)
    if normType == "LMax":
        length = mil.reduce_max(x=size, axes=axes, keep_dims=True)
    elif normType == "L1":
        length = mil.reduce_sum(x=size, axes=axes, keep_dims=True)
    else:
        length = mil.sqrt(x=mil.reduce_sum(x=mil.square(x=x), axes=axes, keep_dims=True))
    none = mil.equal(x=length, y=np.float64(0))
    return mil.real_div(x=x, y=mil.select(cond=none, a=mil.weight(np.ones(1), "one"), b=length))


@rule("imputer", limits="numbers")
def imputer(mil, x, *, replaceDoubleValue=None, replaceInt64Value=None, **imputed):
    """Every element that is `replace...` gets the imputed value, one for all or one for each element."""
    ((kind, value),) = imputed.items() if len(imputed) == 1 else [("", None)]
    if kind not in ("imputedDoubleValue", "imputedInt64Value", "imputedDoubleArray", "imputedInt64Array"):
        raise Unsupported(f"{kind or 'no imputed value'}, where numbers are known")
    whole = kind.startswith("imputedInt64")
    filled = np.array(list(value.vector) if kind.endswith("Array") else value, np.int64 if whole else np.float64)
    missing = replaceInt64Value if whole else replaceDoubleValue
    x = mil.cast(x=x, dtype="int64" if whole else "fp64")
    missing = (0 if whole else np.nan) if missing is None else missing
    gone = mil.not_equal(x=x, y=x) if missing != missing else mil.equal(x=x, y=filled.dtype.type(missing))
    return mil.select(cond=gone, a=mil.weight(filled, "imputed"), b=x)


@rule("identity")
def identity(mil, *xs):
    return tuple(mil.identity(x=x) for x in xs)
