"""Categories that are texts, to numbers and back; dictionaries."""

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.estimators.ops import rule


def placed(mil, x, keys, default):
    """The place of `x` among the keys."""
    if not isinstance(keys[0], str):
        x = mil.cast(x=x, dtype="int64")
    return mil.category(x=x, keys=mil.texts(list(keys), "keys"), default=np.int64(default))


@rule("categoricalMapping")
def categorical_mapping(mil, x, *, stringToInt64Map=None, int64ToStringMap=None, strValue=None, int64Value=None):
    """What an input is mapped to. One that is not in the map, and for which there is no value, ends the run."""
    stored = int64ToStringMap if stringToInt64Map is None else stringToInt64Map
    if stored is None or not stored.map:
        raise UnsafeFileError("a mapping of categories that maps nothing")
    keys = sorted(stored.map)
    default = strValue if stringToInt64Map is None else int64Value
    values = [stored.map[k] for k in keys] + ([] if default is None else [default])
    places = placed(mil, x, keys, len(keys))
    if stringToInt64Map is None:
        return mil.name_of(places=places, names=mil.texts(values, "values"))
    return mil.gather(x=mil.weight(np.array(values, np.int64), "values"), indices=places, axis=0, validate_indices=True)


@rule("dictVectorizer")
def dict_vectorizer(mil, x, *, stringToIndex=None, int64ToIndex=None):
    """The input is a vector already: the values of the dictionary by the place of their keys, which the feature tells."""
    return mil.identity(x=x)
