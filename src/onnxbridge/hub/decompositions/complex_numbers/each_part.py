"""Rules that move elements or are linear, applied to the real and the imaginary part."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.decompositions.complex_numbers.pairs import PART_DTYPE, Complex


def on_each_part(lower: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for real tensors as one for complex ones, with the same parameters."""

    @functools.wraps(lower)
    def on_complex(op: Any, *args: Any, **attrs: Any) -> Any:
        real, imag = (
            lower(op, *(_part(a, n) for a in args), **{k: _part(a, n) for k, a in attrs.items()}) for n in ("real", "imag")
        )
        return tuple(map(Complex, real, imag)) if isinstance(real, tuple) else Complex(real, imag)

    on_complex.__signature__ = inspect.signature(lower)  # type: ignore[attr-defined]
    return on_complex


def of_real_part(lower: Callable[..., Any]) -> Callable[..., Any]:
    """A rule about the shape alone, as one for complex tensors."""

    @functools.wraps(lower)
    def on_complex(op: Any, *args: Any, **attrs: Any) -> Any:
        return lower(op, *(_part(a, "real") for a in args), **{k: _part(a, "real") for k, a in attrs.items()})

    on_complex.__signature__ = inspect.signature(lower)  # type: ignore[attr-defined]
    return on_complex


def _part(item: Any, name: str) -> Any:
    if isinstance(item, Complex):
        return getattr(item, name)
    if isinstance(item, (tuple, list)):
        return type(item)(_part(i, name) for i in item)
    return PART_DTYPE.get(item, item) if isinstance(item, ir.DataType) else item
