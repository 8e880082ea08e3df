"""Feature preprocessing: scalers, normalizers and imputers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.estimators.ops import rule


def _to_float64(mil, x):
    return mil.cast(x=x, dtype="fp64")


@rule("scaler")
def scaler(mil, x, *, shiftValue=(), scaleValue=()):
    """(x + shift) * scale, with one number for all features or one per feature."""
    x = _to_float64(mil, x)
    shift, scale = np.array(shiftValue), np.array(scaleValue)
    x = mil.add(x=x, y=mil.weight(shift, "shift")) if shift.size else x
    return mil.mul(x=x, y=mil.weight(scale, "scale")) if scale.size else x


@rule("normalizer")
def normalizer(mil, x, *, normType="LMax"):
    """x / norm(x); a vector of zeros is unchanged."""
    x = _to_float64(mil, x)
    axes, size = np.array([-1]), mil.abs(x=x)
    if normType == "LMax":
        length = mil.reduce_max(x=size, axes=axes, keep_dims=True)
    elif normType == "L1":
        length = mil.reduce_sum(x=size, axes=axes, keep_dims=True)
    else:
        length = mil.sqrt(x=mil.reduce_sum(x=mil.square(x=x), axes=axes, keep_dims=True))
    is_zero = mil.equal(x=length, y=np.float64(0))
    return mil.real_div(x=x, y=mil.select(cond=is_zero, a=mil.weight(np.ones(1), "one"), b=length))


@rule("imputer", limits="numeric values")
def imputer(mil, x, *, replaceDoubleValue=None, replaceInt64Value=None, **imputed):
    """Replaces elements equal to `replace...` by the imputed value, one for all or one per element."""
    ((kind, value),) = imputed.items() if len(imputed) == 1 else [("", None)]
    if kind not in ("imputedDoubleValue", "imputedInt64Value", "imputedDoubleArray", "imputedInt64Array"):
        raise Unsupported(f"{kind or 'no imputed value'}; only numeric values are supported")
    is_integer = kind.startswith("imputedInt64")
    imputed_values = np.array(list(value.vector) if kind.endswith("Array") else value, np.int64 if is_integer else np.float64)
    missing = replaceInt64Value if is_integer else replaceDoubleValue
    x = mil.cast(x=x, dtype="int64" if is_integer else "fp64")
    missing = (0 if is_integer else np.nan) if missing is None else missing
    is_missing = mil.not_equal(x=x, y=x) if missing != missing else mil.equal(x=x, y=imputed_values.dtype.type(missing))
    return mil.select(cond=is_missing, a=mil.weight(imputed_values, "imputed"), b=x)


@rule("identity")
def identity(mil, *xs):
    return tuple(mil.identity(x=x) for x in xs)
