"""Numbers of few bits, which runtimes have fewer operators for: bytes, integers that wrap, and floating point of 16 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onnxbridge.runtime import Executor
from tests.frontends.pytorch.compare import agrees, converted

HALF = 2.0**-9
"""Of float16 the last of 11 bits; PyTorch rounds after every sum, which has 4 terms at most here."""


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def drawn(low, high, shape, dtype, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options",
    [{"size": (7, 11)}, {"size": (19, 3), "align_corners": True}, {"scale_factor": (1.5, 0.7)},
     {"size": (5, 4), "antialias": True}, {"size": (9, 11)}],
)  # fmt: skip
def test_images_of_bytes(mode, options):
    """To the last bit: PyTorch has kernels in whole numbers for them, other than for floating point."""
    agrees(Function(lambda x: F.interpolate(x, mode=mode, **options)), (drawn(0, 256, (2, 3, 9, 8), torch.uint8),))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_powers_wrap(dtype):
    low = 0 if dtype is torch.uint8 else -9
    a, b = drawn(low, 10, (6, 20), dtype), drawn(low, 40, (20,), dtype, seed=1)
    agrees(Function(lambda a, b: (a**b, a**3, a**0, a**25, 3**b)), (a, b))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_shifts(dtype):
    """By more bits than there are, too."""
    if dtype is torch.uint8:
        inputs = drawn(0, 256, (6, 20), dtype), drawn(0, 66, (20,), dtype, seed=1)
    else:
        inputs = drawn(-99, 100, (6, 20), dtype), drawn(-9, 66, (20,), dtype, seed=1)
    agrees(Function(lambda a, b: (a << b, a >> b, a << 3, a >> 2)), inputs)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_what_runtimes_have_for_wider_integers(dtype):
    x = drawn(0, 100, (3, 4, 4), dtype)
    agrees(Function(lambda x: (-x, *x.max(1), *x.min(2), x.argmax(0), x.amax(), torch.addbmm(x[0], x, x))), (x,))


@pytest.mark.parametrize("how", ["sum", "prod", "mean", "amax", "amin"])
def test_halves_scattered(how):
    x, source = torch.rand(5, 4).half() + 1, torch.rand(3, 4).half() + 1
    index = drawn(0, 5, (3, 4), torch.int64)
    for own in (True, False):
        agrees(Function(lambda x, i, s: x.scatter_reduce(0, i, s, how, include_self=own)), (x, index, source), rtol=HALF)  # noqa: B023


def test_halves_counted():
    x = torch.linspace(0, 9, 10).half()
    agrees(Function(lambda x: torch.histc(x, bins=3)), (x,), rtol=HALF)
    agrees(Function(lambda x, v: x.index_put((torch.tensor([1, 1, 3]),), v, accumulate=True)), (x, x[:3]), rtol=HALF)


def test_brain_floats():
    """ONNX Runtime's Python takes none: our executor runs the model."""
    x, index = torch.arange(12.0).reshape(3, 4).bfloat16(), torch.tensor([[1, 1, 0, 2]])
    function = Function(lambda x: (x[x > 4] * 1.0, x.scatter_reduce(0, index, x, "amin")))
    model, proto = converted(function, (x,))
    given = model.graph.inputs[0]
    got = Executor(proto).run(None, {given.name: x.float().numpy().astype(given.dtype.numpy())})
    for one, wanted in zip(got, function(x), strict=True):
        assert one.dtype == given.dtype.numpy() and np.array_equal(one.astype(np.float32), wanted.float().numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_halves(dtype):
    """They are computed in float32, and left in the tensors that they were in."""
    given = tuple(t.to(dtype) for t in (torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3)))
    function = Function(lambda x, m, v: torch.ops.aten._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5))
    model, _ = converted(function, given)
    half = "FLOAT16" if dtype is torch.float16 else "BFLOAT16"
    assert [v.dtype.name for v in model.graph.outputs] == [half] * 5
    if dtype is torch.float16:
        agrees(function, given, rtol=2 * HALF)
