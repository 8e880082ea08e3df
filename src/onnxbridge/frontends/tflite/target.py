"""The hub as a target of TensorFlow Lite's operators: fused activations and quantization are applied here, not in rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.formats.tflite.dtypes import hub_dtype
from onnxbridge.formats.tflite.model import Tensor
from onnxbridge.frontends.tflite.fused_activation import activated
from onnxbridge.frontends.tflite.quantized import Quantized, floats, stored
from onnxbridge.hub.builder.target import HubTarget, merge_shapes
from onnxbridge.lowering import Body, Call, Rules, Values
from onnxbridge.rules import Rule

DIRECTION = "TensorFlow Lite to ONNX"


class TFLiteTarget(HubTarget):
    """`tensor` returns the tensor behind a key of a value, and `activations` has the fused activations of calls by their first
    output. `flex` are names of TensorFlow operators that custom operators stand for.

    A rule gets floats in place of quantized tensors, and its result is quantized with the parameters of the tensor. Rules of the
    kind "move" only move values: where the parameters stay the same, their results are not rounded again. Those of the kind
    "bits" get and return integers.
    """

    def __init__(self, tensor: Callable[[Hashable], Tensor], rules: Rules, activations: Mapping[Hashable, str]) -> None:
        super().__init__(DIRECTION, lambda key: (tensor(key).name, None, None))
        self._tensor, self._rules, self._activations = tensor, rules, activations
        self._moved: Quantized | None = None

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        return value.array() if isinstance(value, Quantized) else super().static(key, value)

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> Any:
        bits = rule.kind == "bits"
        self._moved = next((a for a in args if isinstance(a, Quantized)), None) if rule.kind == "move" else None
        moved = self._moved
        if moved is not None and any(isinstance(a, Quantized) and not a.parameters.equals(moved.parameters) for a in args):
            self._moved = None
        results = super().apply(rule, call, stored(self.writer, args) if bits else floats(self.writer, args), attrs)
        return results

    def body(self, body: Body, rules: Rules, values: Values) -> Any:
        run = super().body(body, rules, values)
        return lambda *inputs: floats(self.writer, run(*inputs))

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        moved, self._moved = self._moved, None
        rule = self._rules.get(call.op)
        bits = rule is not None and rule.kind == "bits"
        bound = []
        for i, (key, result) in enumerate(zip(call.outputs, results, strict=False)):
            if key is None or not isinstance(result, (ir.Value, int, float, bool, np.ndarray)):
                bound.append(result)
                continue
            result = self.writer.constant(result)
            if i == 0 and key in self._activations:
                result = activated(self.writer, result, self._activations[key])
            tensor = self._tensor(key)
            if tensor.quantization is None or bits and result.dtype.is_integer():
                bound.append(self._named(result, tensor))
            else:
                bound.append(self._quantized(result, tensor, moved))
        return tuple(bound)

    def _quantized(self, result: ir.Value, tensor: Tensor, moved: Quantized | None) -> Any:
        dtype, parameters = hub_dtype(tensor.type), tensor.quantization
        assert parameters is not None and dtype is not None
        if result.dtype is not None and not result.dtype.is_floating_point():
            return self._named(result, tensor)  # integers that are counted or compared, with a scale that nothing uses
        if moved is not None and moved.dtype == dtype and moved.parameters.equals(parameters):
            result = self.writer.rename(_shaped(result, tensor), f"{tensor.name}.dequantized")
            return Quantized(parameters, dtype, floats=result)
        made = Quantized(parameters, dtype, floats=_shaped(result, tensor))
        integers = self._named(made.stored(self.writer), tensor)
        made.floats = None
        self.writer.rename(made.dequantized(self.writer), f"{tensor.name}.dequantized")
        return Quantized(parameters, dtype, integers, made.floats)

    def _named(self, result: ir.Value, tensor: Tensor) -> ir.Value:
        dtype = hub_dtype(tensor.type)
        if dtype is not None and result.dtype is not None and result.dtype != dtype:
            if tensor.quantization is None or result.const_value is None:
                raise TypeError(f"the result is {result.dtype.name}, but the file declares {dtype.name}")
        return self.writer.rename(_shaped(result, tensor), tensor.name)


def _shaped(result: ir.Value, tensor: Tensor) -> ir.Value:
    """The result with the sizes that the file declares, where they are consistent with the inferred ones: TensorFlow Lite
    computes the shapes when it runs, and files with stale ones exist."""
    if tensor.sizes is not None and result.const_value is None and tensor.sizes:
        try:
            result.shape = merge_shapes(result.shape, list(tensor.sizes))
        except TypeError:
            if result.shape is None:
                raise Unsupported("the shape of its result is unknown") from None
    return result
