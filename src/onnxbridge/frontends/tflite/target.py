"""The hub as a target of TensorFlow Lite's operators: fused activations and quantization are applied here, not in rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.formats.tflite.dtypes import hub_dtype
from onnxbridge.formats.tflite.model import Tensor
from onnxbridge.frontends.tflite import states
from onnxbridge.frontends.tflite.dynamic_range import RECURRENT, quantized_inputs, rounding_of_rows
from onnxbridge.frontends.tflite.fused_activation import activated
from onnxbridge.frontends.tflite.quantized import TYPES, Quantized, floats, stored
from onnxbridge.hub.builder.target import HubTarget, merge_shapes
from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex
from onnxbridge.lowering import Body, Call, Rules, Values
from onnxbridge.rules import Rule

DIRECTION = "TensorFlow Lite to ONNX"
_STATE = "a variable that a branch or loop uses, or that has no value at first; ONNX has no state"
_FREEZE = "pass the state in and return it, or freeze it before the conversion to TensorFlow Lite"


class TFLiteTarget(HubTarget):
    """`tensor` returns the tensor behind a key of a value, and `activations` has the fused activations of calls by their first
    output; `asymmetric` has the first outputs of calls that quantize float inputs to an asymmetric range.

    A rule gets floats in place of quantized tensors, and its results are quantized with the parameters of the tensor. Rules of
    the kind "move", which only move values, get the integers where that is what the kernels do, and those of the kind "bits"
    always.
    """

    def __init__(
        self, tensor: Callable[[Hashable], Tensor], activations: Mapping[Hashable, str], asymmetric: Container[Hashable] = ()
    ) -> None:
        super().__init__(DIRECTION, lambda key: (tensor(key).name, None, None))
        self._tensor, self._activations, self._asymmetric = tensor, activations, asymmetric

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        return value.array() if isinstance(value, Quantized) else super().static(key, value)

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> Any:
        on_integers = rule.kind == "bits" or rule.kind == "move" and self._moves_integers(call, args)
        if on_integers:
            return super().apply(rule, call, stored(self.writer, args), attrs)
        asymmetric = bool(call.outputs) and call.outputs[0] in self._asymmetric
        if rule.op in RECURRENT:
            attrs["rounded"] = rounding_of_rows(rule, args, asymmetric)
        args = quantized_inputs(self.writer, rule, args, attrs, asymmetric)
        return super().apply(rule, call, floats(self.writer, args), attrs)

    def _moves_integers(self, call: Call, args: list[Any]) -> bool:
        """Whether all quantized inputs and outputs have eight bits and the same parameters, those of a whole tensor. Those of an
        output may be others if there is one such input, whose integers TensorFlow Lite's kernels copy all the same. An activation
        is applied to floats."""
        if call.outputs and call.outputs[0] in self._activations:
            return False
        found = [(a.parameters, a.dtype) for a in args if isinstance(a, Quantized)]
        copied = len(found) == 1
        for tensor in (self._tensor(key) for key in call.outputs if key is not None):
            dtype = hub_dtype(tensor.type)
            if tensor.quantization is not None and dtype is not None:
                found.append((tensor.quantization, dtype))
        q, dtype = found[0] if found else (None, None)
        if q is None or dtype not in (ir.DataType.INT8, ir.DataType.UINT8):  # runtimes have few kernels for other integers
            return False
        return len(q.scale) == 1 and not q.block and all((copied or q.equals(o)) and t == dtype for o, t in found)

    def decompose(self, call: Call) -> Body | None:
        """None: there are no decompositions.

        Raises:
            Unsupported: with the reason for operators that ONNX cannot have.
        """
        if call.op in states.OPERATORS:
            raise Unsupported(_STATE, _FREEZE)
        if call.op.startswith("Flex"):
            raise Unsupported("an operator of TensorFlow itself", "convert the SavedModel, or use built-in operators only")
        return super().decompose(call)

    def body(self, body: Body, rules: Rules, values: Values) -> Any:
        run = super().body(body, rules, values)
        return lambda *inputs: floats(self.writer, run(*inputs))

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        bound = []
        for i, (key, result) in enumerate(zip(call.outputs, results, strict=False)):
            if key is not None and isinstance(result, Complex):
                self._adopt_parts(key, result)
            if key is None or not isinstance(result, (ir.Value, int, float, bool, np.ndarray)):
                bound.append(result)
                continue
            result = self.writer.constant(result)
            if i == 0 and key in self._activations:
                result = activated(self.writer, result, self._activations[key])
            tensor = self._tensor(key)
            bound.append(self._named(result, tensor) if tensor.quantization is None else self._quantized(result, tensor))
        return tuple(bound)

    def _quantized(self, result: ir.Value, tensor: Tensor) -> Any:
        dtype, parameters = hub_dtype(tensor.type), tensor.quantization
        assert parameters is not None and dtype is not None
        if result.dtype is not None and not result.dtype.is_floating_point():  # moved, counted or compared integers
            named = self._named(result, tensor)
            return Quantized(parameters, dtype, named) if tensor.type in TYPES else named
        made = Quantized(parameters, dtype, floats=_shaped(result, tensor))
        integers = self._named(made.stored(self.writer), tensor)
        found = Quantized(parameters, dtype, integers)
        self.writer.rename(found.dequantized(self.writer), f"{tensor.name}.dequantized")
        return found

    def _named(self, result: ir.Value, tensor: Tensor) -> ir.Value:
        dtype = hub_dtype(tensor.type)
        if dtype is not None and result.dtype is not None and result.dtype != dtype:
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
