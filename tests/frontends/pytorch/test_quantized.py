"""Quantized programs: PT2E operators, torchao's affine ones, and 4-bit weights."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  declares quantized_decomposed
from torch import nn

from onnxbridge.errors import ConversionError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch

decomposed = torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Static(nn.Module):
    """The result of convert_pt2e for a linear layer: quantized input, weights quantized per output channel."""

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


@pytest.mark.parametrize("limits", [(-128, 127), (-64, 63)])
def test_static(limits):
    model = check_against_pytorch(Static(*limits).eval(), (torch.randn(2, 48),), {"x": {0: "n"}}, [(torch.randn(5, 48) * 9,)])
    kinds = [n.op_type for n in model.graph]
    assert kinds.count("QuantizeLinear") == 1 and kinds.count("DequantizeLinear") == 2
    assert ("Clip" in kinds) == (limits != (-128, 127))
    assert model.graph.initializers["weight"].dtype == ir.DataType.INT8


def test_dynamic():
    class Dynamic(nn.Module):
        def forward(self, x):
            scale, zero = decomposed.choose_qparams(x, 0, 255, 1e-7, torch.uint8)
            q = decomposed.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            return decomposed.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)

    check_against_pytorch(Dynamic(), (torch.randn(3, 4),), {"x": {0: "n"}}, [(torch.rand(5, 4) + 1,), (torch.zeros(2, 4),)])

    """Define torchao's operators with its schemas and documented arithmetic, if it is not installed."""


def _define_torchao_operators():
    """torchao's operators by the schemas that it gives them, with the arithmetic that it documents."""
    if hasattr(torch.ops.torchao, "dequantize_affine"):
        return
    front = "Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point"
    limits = "Scalar? quant_min=None, Scalar? quant_max=None"
    torch.library.define("torchao::quantize_affine", f"({front}, ScalarType output_dtype, {limits}) -> Tensor")
    back = f"({front}, ScalarType input_dtype, {limits}, ScalarType output_dtype=6) -> Tensor"
    torch.library.define("torchao::dequantize_affine", back)

    def blocks(x, block, *others):
        shape = [s for d, b in zip(x.shape, block, strict=True) for s in (d // b, b)]
        block_shape = [s if i % 2 == 0 else 1 for i, s in enumerate(shape)]
        return x.view(shape), *(None if o is None else o.reshape(block_shape) for o in others)

    def quantize(x, block, scale, zero, dtype, low=None, high=None):
        y, s, z = blocks(x, block, scale, zero)
        return (torch.round(y * (1.0 / s)) + (0 if z is None else z)).clamp(low, high).to(dtype).view(x.shape)

    def dequantize(x, block, scale, zero, dtype, low=None, high=None, output_dtype=torch.float32):
        y, s, z = blocks(x, block, scale, zero)
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
def test_4_bit_weights(block):
    _define_torchao_operators()
    model = check_against_pytorch(Affine(block).eval(), (torch.randn(2, 48),))
    assert [v.dtype for v in model.graph.initializers.values() if v.name == "weight"] == [ir.DataType.INT4]
    assert [n.op_type for n in model.graph] == ["DequantizeLinear", "Gemm"]


def test_8_bit_weights():
    _define_torchao_operators()
    model = check_against_pytorch(Affine([1, 48], -128, 127).eval(), (torch.randn(2, 48),))
    assert model.graph.initializers["weight"].dtype == ir.DataType.INT8


def test_unsupported_block_shapes():
    _define_torchao_operators()
    with pytest.raises(ConversionError, match=r"quantization in blocks of \[2, 4\]"):
        frontend.to_hub(Affine([2, 4]).eval(), (torch.randn(2, 48),))


def test_per_token_scales():
    _define_torchao_operators()

    class Tokens(nn.Module):
        def forward(self, x):
            scale = x.abs().amax(-1, keepdim=True) / 127 + 1e-6
            q = torch.ops.torchao.quantize_affine(x, [1, 1, 8], scale, None, torch.int8, -128, 127)
            return torch.ops.torchao.dequantize_affine(q, [1, 1, 8], scale, None, torch.int8, -128, 127)

    check_against_pytorch(Tokens(), (torch.randn(2, 3, 8),), {"x": {0: "n", 1: "t"}}, [(torch.randn(4, 5, 8),)])


@pytest.mark.parametrize("keepdim", [True, False])
def test_rounding_of_the_extreme(keepdim):
    """A symmetric scale maps the extreme to 127.5: torchao multiplies by the reciprocal; a division rounds differently."""
    _define_torchao_operators()

    class Tokens(nn.Module):
        def forward(self, x, zero):
            scale = x.abs().amax(-1, keepdim=keepdim) / 127.5
            symmetric = torch.ops.torchao.quantize_affine(x, [1, 64], scale, None, torch.int8, -128, 127)
            return symmetric, torch.ops.torchao.quantize_affine(x, [1, 64], scale, zero.expand_as(scale), torch.int8, -100, 127)

    def given(rows):
        return -torch.randn(rows, 64).abs(), torch.tensor(3, dtype=torch.int8)

    torch.manual_seed(0)
    check_against_pytorch(Tokens(), given(50), {"x": {0: "n"}}, [given(300)])
