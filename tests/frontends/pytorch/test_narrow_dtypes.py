"""Narrow dtypes, for which runtimes have fewer kernels: uint8, wrapping integers, 16-bit floating point."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onnxbridge.runtime import Executor
from tests.frontends.pytorch.compare import check_against_pytorch, convert_to_onnx

HALF = 2.0**-9
"""float16 has 11 significant bits; PyTorch rounds after every addition, of at most 4 terms here."""


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def random_integers(low, high, shape, dtype, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options",
    [{"size": (7, 11)}, {"size": (19, 3), "align_corners": True}, {"scale_factor": (1.5, 0.7)},
     {"size": (5, 4), "antialias": True}, {"size": (9, 11)}],
)  # fmt: skip
def test_uint8_images(mode, options):
    """Bit-exact: PyTorch has integer kernels for uint8, with other results than in floating point."""
    check_against_pytorch(
        Function(lambda x: F.interpolate(x, mode=mode, **options)), (random_integers(0, 256, (2, 3, 9, 8), torch.uint8),)
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_powers_wrap(dtype):
    low = 0 if dtype is torch.uint8 else -9
    a, b = random_integers(low, 10, (6, 20), dtype), random_integers(low, 40, (20,), dtype, seed=1)
    check_against_pytorch(Function(lambda a, b: (a**b, a**3, a**0, a**25, 3**b)), (a, b))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_shifts(dtype):
    """Also by more bits than the dtype has."""
    if dtype is torch.uint8:
        inputs = random_integers(0, 256, (6, 20), dtype), random_integers(0, 66, (20,), dtype, seed=1)
    else:
        inputs = random_integers(-99, 100, (6, 20), dtype), random_integers(-9, 66, (20,), dtype, seed=1)
    check_against_pytorch(Function(lambda a, b: (a << b, a >> b, a << 3, a >> 2)), inputs)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_operators_with_wider_kernels_only(dtype):
    x = random_integers(0, 100, (3, 4, 4), dtype)
    check_against_pytorch(Function(lambda x: (-x, *x.max(1), *x.min(2), x.argmax(0), x.amax(), torch.addbmm(x[0], x, x))), (x,))


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_of_float16(how):
    x, source = torch.rand(5, 4).half() + 1, torch.rand(3, 4).half() + 1
    index = random_integers(0, 5, (3, 4), torch.int64)
    for own in (True, False):
        reduce = Function(lambda x, i, s, own=own: x.scatter_reduce(0, i, s, how, include_self=own))
        check_against_pytorch(reduce, (x, index, source), rtol=HALF)


def test_histogram_of_float16():
    x = torch.linspace(0, 9, 10).half()
    check_against_pytorch(Function(lambda x: torch.histc(x, bins=3)), (x,), rtol=HALF)
    check_against_pytorch(
        Function(lambda x, v: x.index_put((torch.tensor([1, 1, 3]),), v, accumulate=True)), (x, x[:3]), rtol=HALF
    )


def test_bfloat16():
    """ONNX Runtime's Python interface has no bfloat16: our executor runs the model."""
    x, index = torch.arange(12.0).reshape(3, 4).bfloat16(), torch.tensor([[1, 1, 0, 2]])
    function = Function(lambda x: (x[x > 4] * 1.0, x.scatter_reduce(0, index, x, "amin")))
    model, proto = convert_to_onnx(function, (x,))
    given = model.graph.inputs[0]
    got = Executor(proto).run(None, {given.name: x.float().numpy().astype(given.dtype.numpy())})
    for one, expected in zip(got, function(x), strict=True):
        assert one.dtype == given.dtype.numpy() and np.array_equal(one.astype(np.float32), expected.float().numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_16_bit_floats(dtype):
    """Computed in float32, and stored in the dtype of the input tensors."""
    given = tuple(t.to(dtype) for t in (torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3)))
    function = Function(lambda x, m, v: torch.ops.aten._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5))
    model, _ = convert_to_onnx(function, given)
    half = "FLOAT16" if dtype is torch.float16 else "BFLOAT16"
    assert [v.dtype.name for v in model.graph.outputs] == [half] * 5
    if dtype is torch.float16:
        check_against_pytorch(function, given, rtol=2 * HALF)
