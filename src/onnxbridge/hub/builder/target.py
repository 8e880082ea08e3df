"""The hub as a lowering target, used by every frontend."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex
from onnxbridge.hub.ir import fold
from onnxbridge.lowering import Call, Target

Declared = Callable[[Hashable], tuple[str, ir.DataType | None, list[int | str | None] | None]]


class HubTarget(Target):
    """Writes ONNX through a `Builder`.

    `declared` returns what the source declares for one of its values: its name, and its dtype and shape if known. A result
    with another dtype or static shape is an error of the rule.
    """

    writer: Builder

    def __init__(self, direction: str, declared: Declared) -> None:
        self.direction = direction
        self.writer = Builder()
        self._declared = declared

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        return fold.constant_array(value) if isinstance(value, ir.Value) else np.asarray(value)

    def scope(self, call: Call) -> AbstractContextManager[None]:
        key = next((k for k in call.outputs if k is not None), None)
        return self.writer.scope("" if key is None else self._declared(key)[0], call.location)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        for key, r in zip(call.outputs, results, strict=False):
            if key is not None and isinstance(r, Complex):
                self._adopt_parts(key, r)
        return tuple(
            r if key is None or not isinstance(r, (ir.Value, int, float, bool, np.ndarray)) else self._adopt(key, r)
            for key, r in zip(call.outputs, results, strict=False)
        )

    def _adopt_parts(self, key: Hashable, result: Complex) -> None:
        name, _, shape = self._declared(key)
        for part, suffix in ((result.real, "real"), (result.imag, "imag")):
            self.writer.rename(part, f"{name}.{suffix}")
            if part.const_value is None and shape is not None:
                part.shape = merge_shapes(part.shape, shape)

    def _adopt(self, key: Hashable, result: Any) -> Any:
        if not isinstance(result, ir.Value):
            return result  # a Python number or array: becomes a constant where it is used
        name, dtype, shape = self._declared(key)
        self.writer.rename(result, name)
        if dtype is not None and result.dtype is not None and result.dtype != dtype:
            raise TypeError(f"the result is {result.dtype.name}, but the source declares {dtype.name}")
        if dtype is not None and result.dtype is None:
            result.dtype = dtype
        if shape is not None and result.const_value is None:
            result.shape = merge_shapes(result.shape, shape)
        return result


def merge_shapes(inferred: ir.Shape | None, declared: list[int | str | None]) -> ir.Shape:
    """The declared shape, completed with inferred static sizes.

    Raises:
        TypeError: if the two are inconsistent.
    """
    if inferred is None:
        return ir.Shape(declared)
    if len(inferred) != len(declared):
        raise TypeError(f"the result has rank {len(inferred)}, but the source declares {len(declared)}")
    dims: list[int | str | None] = []
    for i, d in zip(inferred, declared, strict=True):
        if isinstance(i, int) and isinstance(d, int) and i != d:
            raise TypeError(f"the result has shape {list(inferred)}, but the source declares {declared}")
        dims.append(d if d is not None else i if isinstance(i, int) else i.value)
        if isinstance(i, int):
            dims[-1] = i
    return ir.Shape(dims)
