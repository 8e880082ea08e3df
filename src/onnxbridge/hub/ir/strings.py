"""String tensors: object arrays of `str` in memory, UTF-8 bytes in a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported


def is_strings(array: np.ndarray[Any, Any]) -> bool:
    """Whether the elements are `str` or `bytes`, of fixed width or as objects."""
    return array.dtype.kind in "OSU"


def decoded(value: Any) -> np.ndarray[Any, Any]:
    """Strings, as `str` or UTF-8 bytes, as an array of `str`. Bytes that are not UTF-8 become surrogates (PEP 383)."""
    # NumPy's bytes dtype would strip trailing zeros, so a single string is stored as an object
    array = np.asarray(value, dtype=object if isinstance(value, (str, bytes)) else None)
    strings = np.empty(array.size, object)
    strings[:] = [i.decode("utf-8", "surrogateescape") if isinstance(i, bytes) else i for i in array.reshape(-1).tolist()]
    return strings.reshape(array.shape)


def text(item: Any) -> str:
    """An attribute's string.

    Raises:
        Unsupported: for bytes that are not UTF-8.
    """
    return _utf8(item).decode()


def tensor(array: np.ndarray[Any, Any]) -> ir.StringTensor:
    """An array of strings as a tensor.

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
        raise Unsupported("a string constant that is not valid UTF-8") from None
    return encoded
