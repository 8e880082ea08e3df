"""Strings: Python's own `str` in arrays of objects, UTF-8 bytes in a model; frameworks give either."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported


def is_strings(array: np.ndarray[Any, Any]) -> bool:
    """Whether the elements are strings: `str` or `bytes`, of fixed width or as objects."""
    return array.dtype.kind in "OSU"


def decoded(value: Any) -> np.ndarray[Any, Any]:
    """Strings, as `str` or as UTF-8 bytes, as an array of `str`. Bytes that are not UTF-8 become surrogates (PEP 383)."""
    # NumPy's own type for bytes would cut zeros off their end, so that a single one goes in as an object
    array = np.asarray(value, dtype=object if isinstance(value, (str, bytes)) else None)
    made = np.empty(array.size, object)
    made[:] = [i.decode("utf-8", "surrogateescape") if isinstance(i, bytes) else i for i in array.reshape(-1).tolist()]
    return made.reshape(array.shape)


def text(item: Any) -> str:
    """One string of an attribute.

    Raises:
        Unsupported: for bytes that are not UTF-8.
    """
    return _utf8(item).decode()


def tensor(array: np.ndarray[Any, Any]) -> ir.StringTensor:
    """Strings as a model stores them.

    Raises:
        Unsupported: for bytes that are not UTF-8.
    """
    return ir.StringTensor([_utf8(item) for item in array.reshape(-1).tolist()], shape=ir.Shape(array.shape))


def _utf8(item: Any) -> bytes:
    if not isinstance(item, (str, bytes)):
        raise TypeError(f"{item!r} is a {type(item).__name__}, not a string")
    try:
        encoded = item if isinstance(item, bytes) else item.encode()
        encoded.decode()
    except UnicodeError:
        raise Unsupported("a string constant that is not UTF-8, which strings of ONNX are") from None
    return encoded
