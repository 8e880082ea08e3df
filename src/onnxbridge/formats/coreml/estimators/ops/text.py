"""Categories as strings or integers, and dictionaries."""

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule


def category_index(mil, x, keys, default):
    """The index of `x` among the keys, `default` if it is unknown."""
    if not isinstance(keys[0], str):
        x = mil.cast(x=x, dtype="int64")
    return mil.category(x=x, keys=mil.strings(list(keys), "keys"), default=np.int64(default))


@rule("categoricalMapping")
def categorical_mapping(mil, x, *, stringToInt64Map=None, int64ToStringMap=None, strValue=None, int64Value=None):
    """Maps a category. Unknown ones get the default value or, without one, raise an exception at run time."""
    stored = int64ToStringMap if stringToInt64Map is None else stringToInt64Map
    if stored is None or not stored.map:
        raise UnsafeFileError("a categorical mapping is empty")
    keys = sorted(stored.map)
    default = strValue if stringToInt64Map is None else int64Value
    values = [stored.map[k] for k in keys] + ([] if default is None else [default])
    indices = category_index(mil, x, keys, len(keys))
    if stringToInt64Map is None:
        return mil.name_of(indices=indices, names=mil.strings(values, "values"))
    return mil.gather(x=mil.weight(np.array(values, np.int64), "values"), indices=indices, axis=0, validate_indices=True)


@rule("dictVectorizer")
def dict_vectorizer(mil, x, *, stringToIndex=None, int64ToIndex=None):
    """The input is a vector already: the values of the dictionary in the order of the feature's keys."""
    return mil.identity(x=x)
