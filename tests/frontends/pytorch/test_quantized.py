"""Quantized programs: PT2E's operators, torchao's affine ones, and weights of four bits."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  declares quantized_decomposed
from torch import nn

from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import agrees

decomposed = torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Static(nn.Module):
    """As convert_pt2e leaves a linear layer: quantized input, weights quantized by output channel."""

    def __init__(self, low=-128, high=127):
        super().__init__()
        weight = torch.randn(48, 48)
        self.register_buffer("scales", weight.abs().amax(1) / 127)
        self.register_buffer("zeros", torch.zeros(48, dtype=torch.int64))
        self.register_buffer("weight", (weight / self.scales[:, None]).round().to(torch.int8))
        self.low, self.high = low, high

    def forward(self, x):
        x = decomposed.quantize_per_tensor(x, 0.03125, 3, self.low, self.high, torch.int8)
        x = decomposed.dequantize_per_tensor(x, 0.03125, 3, self.low, self.high, torch.int8)
        w = decomposed.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return nn.functional.linear(x, w)


@pytest.mark.parametrize("ends", [(-128, 127), (-64, 63)])
def test_static(ends):
    model = agrees(Static(*ends).eval(), (torch.randn(2, 48),), {"x": {0: "n"}}, [(torch.randn(5, 48) * 9,)])
    kinds = [n.op_type for n in model.graph]
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("DequantizeLinear") == 2
    assert ("Clip" in kinds) == (ends != (-128, 127))
    assert model.graph.initializers["weight"].dtype == ir.DataType.INT8


def test_dynamic():
    class Dynamic(nn.Module):
        def forward(self, x):
            scale, zero = decomposed.choose_qparams(x, 0, 255, 1e-7, torch.uint8)
            q = decomposed.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            return decomposed.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)

    agrees(Dynamic(), (torch.randn(3, 4),), {"x": {0: "n"}}, [(torch.rand(5, 4) + 1,), (torch.zeros(2, 4),)])


def _declared():
    """torchao's operators by the schemas that it gives them, with the arithmetic that it documents."""
    if hasattr(torch.ops.torchao, "dequantize_affine"):
        return
    front = "Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point"
    ends = "Scalar? quant_min=None, Scalar? quant_max=None"
    torch.library.define("torchao::quantize_affine", f"({front}, ScalarType output_dtype, {ends}) -> Tensor")
    back = f"({front}, ScalarType input_dtype, {ends}, ScalarType output_dtype=6) -> Tensor"
    torch.library.define("torchao::dequantize_affine", back)

    def parts(x, block, *others):
        shape = [s for d, b in zip(x.shape, block, strict=True) for s in (d // b, b)]
        few = [s if i % 2 == 0 else 1 for i, s in enumerate(shape)]
        return x.view(shape), *(None if o is None else o.reshape(few) for o in others)

    def quantize(x, block, scale, zero, dtype, low=None, high=None):
        y, s, z = parts(x, block, scale, zero)
        return (torch.round(y * (1.0 / s)) + (0 if z is None else z)).clamp(low, high).to(dtype).view(x.shape)

    def dequantize(x, block, scale, zero, dtype, low=None, high=None, output_dtype=torch.float32):
        y, s, z = parts(x, block, scale, zero)
        return ((y.to(torch.float32) - (0 if z is None else z.to(torch.float32))) * s).view(x.shape).to(output_dtype)

    torch.library.impl("torchao::quantize_affine", "CompositeExplicitAutograd")(quantize)
    torch.library.impl("torchao::dequantize_affine", "CompositeExplicitAutograd")(dequantize)


class Affine(nn.Module):
    def __init__(self, block, low=-8, high=7, scale_shape=None):
        super().__init__()
        scale_shape = scale_shape or [48 // block[0], 48 // block[1]]
        self.block, self.low, self.high = block, low, high
        self.weight = nn.Parameter(torch.randint(low, high + 1, (48, 48), dtype=torch.int8), requires_grad=False)
        self.register_buffer("scale", torch.rand(scale_shape) + 0.5)
        self.register_buffer("zero", torch.randint(-2, 3, scale_shape, dtype=torch.int8))

    def forward(self, x):
        w = torch.ops.torchao.dequantize_affine(self.weight, self.block, self.scale, self.zero, torch.int8, self.low, self.high)
        return nn.functional.linear(x, w)


@pytest.mark.parametrize("block", [[1, 4], [1, 48], [48, 48], [2, 1]], ids=["groups", "rows", "whole", "pairs"])
def test_weights_of_four_bits(block):
    _declared()
    model = agrees(Affine(block).eval(), (torch.randn(2, 48),))
    assert [v.dtype for v in model.graph.initializers.values() if v.name == "weight"] == [ir.DataType.INT4]
    assert [n.op_type for n in model.graph] == ["DequantizeLinear", "Gemm"]


def test_weights_of_eight_bits_stay_as_they_are():
    _declared()
    model = agrees(Affine([1, 48], -128, 127).eval(), (torch.randn(2, 48),))
    assert model.graph.initializers["weight"].dtype == ir.DataType.INT8


def test_blocks_that_onnx_does_not_have_are_refused():
    _declared()
    with pytest.raises(ConversionError, match=r"quantization in blocks of \[2, 4\]"):
        frontend.to_hub(Affine([2, 4]).eval(), (torch.randn(2, 48),))


def test_tokens_of_their_own_scale():
    _declared()

    class Tokens(nn.Module):
        def forward(self, x):
            scale = x.abs().amax(-1, keepdim=True) / 127 + 1e-6
            q = torch.ops.torchao.quantize_affine(x, [1, 1, 8], scale, None, torch.int8, -128, 127)
            return torch.ops.torchao.dequantize_affine(q, [1, 1, 8], scale, None, torch.int8, -128, 127)

    agrees(Tokens(), (torch.randn(2, 3, 8),), {"x": {0: "n", 1: "t"}}, [(torch.randn(4, 5, 8),)])


@pytest.mark.parametrize("kept", [True, False])
def test_the_largest_lies_between_two_integers(kept):
    """A symmetric scale puts it at 127.5: torchao multiplies by the inverse there, and a division gives another integer."""
    _declared()

    class Tokens(nn.Module):
        def forward(self, x, zero):
            scale = x.abs().amax(-1, keepdim=kept) / 127.5
            plain = torch.ops.torchao.quantize_affine(x, [1, 64], scale, None, torch.int8, -128, 127)
            return plain, torch.ops.torchao.quantize_affine(x, [1, 64], scale, zero.expand_as(scale), torch.int8, -100, 127)

    def given(rows):
        return -torch.randn(rows, 64).abs(), torch.tensor(3, dtype=torch.int8)

    torch.manual_seed(0)
    agrees(Tokens(), given(50), {"x": {0: "n"}}, [given(300)])
