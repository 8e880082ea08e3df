"""Common network architectures, compared with PyTorch at the example's sizes and at others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    onnxruntime_session,
    run_session,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def with_random_statistics(module):
    """Give batch normalizations non-trivial statistics."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.uniform_(-1, 1)
            m.running_var.uniform_(0.5, 2)
    return module.eval()


class Basic(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else None

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Basic(8, 8, 1), Basic(8, 16, 2), Basic(16, 32, 2))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 5)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.layers(self.stem(x))), 1))


class Inverted(nn.Module):
    """MobileNet block: hard swish, depthwise convolution, squeeze-and-excitation with hard sigmoid."""

    def __init__(self):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 16, 1), nn.BatchNorm2d(16, eps=1e-3), nn.Hardswish(inplace=True))
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 5, 2, 2, groups=16), nn.BatchNorm2d(16), nn.ReLU6(inplace=True))
        self.se = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1), nn.Hardsigmoid())
        self.project = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        y = self.depth(self.expand(x))
        return self.project(y * self.se(y)) + F.avg_pool2d(x, 2, ceil_mode=True)


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 4, 3, padding=1)) for c in (4, 8, 12))

    def forward(self, x):
        for part in self.parts:
            x = torch.cat([x, part(x)], 1)
        return F.adaptive_avg_pool2d(x, (3, 2))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.norms = nn.Sequential(nn.GroupNorm(4, 16), nn.InstanceNorm2d(16, affine=True), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.up2 = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1)
        self.out = nn.Conv2d(24, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.down(x))
        b = self.norms(self.deep(a))
        y = self.out(torch.cat([a, self.up(b), self.up2(b)], 1))
        return {"logits": y, "larger": F.interpolate(b, size=x.shape[-2:], mode="bilinear", align_corners=False)}


@pytest.mark.parametrize("net", [ResNet, Inverted, Dense])
def test_convolutional(net):
    channels = 3 if net is ResNet else 4
    x, y = torch.randn(2, channels, 32, 32), torch.randn(5, channels, 32, 32)
    check_against_pytorch(with_random_statistics(net()), (x,), {"x": {0: "n"}}, [(y,), (y[:1],)])


def test_unet_with_dynamic_sizes():
    model = check_against_pytorch(
        UNet().eval(), (torch.randn(2, 3, 16, 24),), {"x": {0: "n", 2: "h", 3: "w"}}, [(torch.randn(1, 3, 32, 20),)]
    )
    assert list(model.graph.inputs[0].shape) == ["n", 3, "h", "w"]
    assert [v.name for v in model.graph.outputs] == ["logits", "larger"]


class Attention(nn.Module):
    """BERT block: scaled_dot_product_attention with a key mask of 0 and 1, layer norm, GELU."""

    def __init__(self, heads=4, width=16):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width), nn.Dropout(0.1))

    def forward(self, x, mask):
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :].expand(batch, 1, time, time))
        x = self.ln1(x + self.out(y.transpose(1, 2).reshape(batch, time, width)))
        return self.ln2(x + self.mlp(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(50, 16, padding_idx=0), nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids) + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x, attention_mask.bool())
        return x, (x * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)


def tokens(batch, time):
    mask = torch.ones(batch, time, dtype=torch.long)
    mask[0, time // 2 :] = 0
    return {"input_ids": torch.randint(0, 50, (batch, time)), "attention_mask": mask}


def test_transformer_with_masks():
    axes = {0: "batch", 1: "time"}
    model = check_against_pytorch(
        Encoder().eval(), tokens(2, 6), {"input_ids": axes, "attention_mask": axes}, [tokens(3, 9), tokens(1, 1)]
    )
    assert list(model.graph.outputs[0].shape) == ["batch", "time", 16]
    assert sum(node.op_type == "Attention" for node in model.graph) == 2


def test_fully_masked_query():
    class Masked(nn.Module):
        def forward(self, q, mask):
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    mask = torch.rand(2, 1, 4, 4) > 0.5
    mask[0, 0, 1] = False
    q = torch.randn(2, 3, 4, 8)
    check_against_pytorch(Masked(), (q, mask))
    check_against_pytorch(Masked(), (q, torch.zeros(2, 1, 4, 4).masked_fill(~mask, float("-inf"))))


def test_torch_nn_transformer():
    net = nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    check_against_pytorch(net, (torch.randn(2, 5, 16), torch.randn(2, 6, 16)))
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=True).eval()
    check_against_pytorch(layer, (torch.randn(2, 5, 16),), {"src": {0: "n", 1: "t"}}, [(torch.randn(4, 3, 16),)])


class Causal(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True, scale=0.3)


def test_grouped_and_causal_attention():
    check_against_pytorch(Causal(), (torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layer = getattr(nn, kind)(6, 5, **options)

    def forward(self, x, start=None):
        return self.layer(x) if start is None else self.layer(x, start)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False, "num_layers": 3}]
)
def test_recurrent(kind, options):
    net = Recurrent(kind, **options).eval()
    check_against_pytorch(net, (torch.randn(3, 4, 6),), {"x": {0: "a", 1: "b"}}, [(torch.randn(2, 7, 6),)])


def test_recurrent_with_initial_state_or_without_batch():
    h, c = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    check_against_pytorch(Recurrent("GRU", num_layers=2).eval(), (torch.randn(4, 3, 6), h))
    check_against_pytorch(Recurrent("LSTM", num_layers=2).eval(), (torch.randn(4, 3, 6), (h, c)))
    check_against_pytorch(Recurrent("LSTM", proj_size=2).eval(), (torch.randn(4, 3, 6),))
    check_against_pytorch(nn.RNN(6, 5, nonlinearity="relu", bidirectional=True).eval(), (torch.randn(4, 6),))
    check_against_pytorch(nn.LSTMCell(6, 5), (torch.randn(3, 6),))


class InPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        view = y[:, 1:]
        view.add_(1)
        y[0] = 0
        z = y.clone()
        z.relu_()
        return y, z, view


def test_in_place_writes_are_visible_through_views():
    check_against_pytorch(InPlace(), (torch.randn(3, 4),), {"x": {0: "n"}}, [(torch.randn(5, 4),)])


def test_branches_and_loops():
    from torch._higher_order_ops.while_loop import while_loop

    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda a: (a + 1, a.sum()), lambda a: (a * 2, a.mean()), (x,))

    class Loop(nn.Module):
        def forward(self, x):
            return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))

    check_against_pytorch(Branch(), (torch.ones(3, 4),), None, [(-torch.ones(3, 4),)])
    check_against_pytorch(Loop(), (torch.randn(3, 4),))


def test_size_arithmetic():
    class Sizes(nn.Module):
        def forward(self, x):
            n, t = x.shape
            half = t // 2
            positions = torch.arange(t, dtype=x.dtype) / (t - 1)
            return x[:, :half], x.reshape(n * t), (x + positions).view(-1, t, 1), torch.full((n, half), 3), x.new_zeros(n + t)

    check_against_pytorch(Sizes(), (torch.randn(2, 6),), {"x": {0: "n", 1: "t"}}, [(torch.randn(5, 9),), (torch.randn(1, 4),)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_point(dtype):
    """Float64 to double precision; ONNX Runtime has few kernels for narrow dtypes, so those are only converted and checked."""
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype).eval()
    x = torch.randn(3, 6, dtype=dtype)
    if dtype is torch.float64:
        check_against_pytorch(net, (x,), rtol=2.0**-45)
    else:
        model, _ = convert_to_onnx(net, (x,))
        assert {v.dtype.name for v in [*model.graph.inputs, *model.graph.outputs]} == {str(dtype)[6:].upper()}


def test_input_specification_instead_of_example():
    net = Encoder().eval()
    spec = dict.fromkeys(("input_ids", "attention_mask"), (("batch", "time"), "int64"))
    model, proto = convert_to_onnx(net, {**spec, "input_ids": (("batch", 8), "int64"), "attention_mask": (("batch", 8), "int64")})
    feeds = {k: v.numpy() for k, v in tokens(3, 8).items()}
    assert_equal_outputs(run_session(onnxruntime_session(proto), feeds), frontend.runner(net)(feeds))
    assert list(model.graph.inputs[0].shape) == ["batch", 8]


def test_relative_precision():
    """erfc at large arguments and logarithms near 0, to a relative error of a few units in the last place."""

    class Tails(nn.Module):
        def forward(self, x):
            return torch.special.erfc(x), torch.log1p(x * 1e-6), torch.expm1(x * 1e-6), torch.lgamma(x)

    x = torch.tensor([0.25, -0.75, 1.0, 2.5, 4.0, 7.0, 9.0, -3.5])
    model, proto = convert_to_onnx(Tails(), (x,))
    for (name, value), expected in zip(
        run_session(onnxruntime_session(proto), {"x": x.numpy()}).items(), Tails()(x), strict=True
    ):
        np.testing.assert_allclose(value, expected.numpy(), rtol=2.0**-18, atol=1e-7 if name == "output_3" else 0)


class Writes(nn.Module):
    """In-place writes through the views that PyTorch programs commonly use."""

    def forward(self, x):
        table = torch.zeros(4, 4)
        for i in range(4):
            table[i, : i + 1] = float(i)
        y = x * 2
        first, column = y[1:3], y[:, 0]
        first[0] = 5.0
        column += 1
        first.mul_(3)
        transposed = y.permute(1, 0)
        transposed[1:, 2] = x[0, :3]
        lifted = y.unsqueeze(0)
        lifted.add_(table)
        halves = torch.empty_like(x)
        halves[0::2] = x[0::2].sin()
        halves[1::2] = lifted[0, :2].cos()
        return y, first, column, transposed, lifted, halves


def test_writes_through_views():
    model = check_against_pytorch(Writes(), (torch.randn(4, 4),), None, [(torch.randn(4, 4),)])
    assert not any(n.op_type in ("If", "Loop") for n in model.graph)


def test_functionalization_by_pytorch():
    class Flat(nn.Module):
        def forward(self, x):
            y = x.clone()
            flat = y.view(-1)
            y[0] = 7.0
            x[0] = 3.0
            return y, flat, x * 2

    check_against_pytorch(Flat(), (torch.randn(4, 4),))


def test_pad_before_convolution():
    """Pad is fused into Conv, which has separate pads per side; a Pad with other consumers is not."""

    class Pads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 2), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x):
            y = F.pad(self.first(F.pad(x, (0, 1, 2, 1))), (1, 0, 0, 2))
            return self.second(y), F.max_pool2d(y, 2)

    model = check_against_pytorch(Pads().eval(), (torch.randn(2, 3, 6, 5),), {"x": {0: "n"}}, [(torch.randn(1, 3, 6, 5),)])
    assert [n.op_type for n in model.graph] == ["Conv", "Pad", "Conv", "MaxPool"]


@pytest.mark.parametrize("shape", [(3, 5, 6), (2, 3, 4, 5)])
def test_attention_over_heads_of_dynamic_size(shape):
    class Attend(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    sizes = {axis: f"size_{axis}" for axis in range(len(shape))}
    check_against_pytorch(Attend(), (torch.randn(shape),), {"q": sizes}, [(torch.randn([n + 1 for n in shape]),)])


def test_isin():
    class IsIn(nn.Module):
        def forward(self, x, y):
            among = torch.isin(x, torch.tensor([0, 1, 7])), torch.isin(x, y, invert=True), torch.isin(y, x.long())
            return *among, torch.isin(x, 1), torch.isin(2, y), torch.isin(x, y[:0])

    check_against_pytorch(IsIn(), (torch.randint(0, 9, (3, 4)).float(), torch.randint(0, 9, (5,))))
