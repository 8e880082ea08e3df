"""PyTorch models as MXNet symbols that MXNet's APIs load and train, under the names of their parameters."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from onnx import parser
from torch import nn

import onnxbridge
from tests.backends.mxnet.test_training import mxnet

TOKENS, WIDTH, LENGTH = 50, 16, 12


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, bias=False),
            nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.features(x), 1))


class BiLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(24, 10)

    def forward(self, x):
        return self.fc(self.lstm(self.embed(x))[0].mean(1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(WIDTH, 10)

    def forward(self, x):
        return self.fc(self.encoder(self.embed(x)).mean(1))


class Causal(nn.Module):
    """A small GPT of one block, with a mask of bools as a buffer."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.qkv, self.proj = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(LENGTH, LENGTH)).bool())

    def forward(self, x):
        y = self.tokens(x) + self.positions(torch.arange(LENGTH))
        q, k, v = (a.view(*a.shape[:2], 4, 4).transpose(1, 2) for a in self.qkv(self.norm(y)).split(WIDTH, 2))
        scores = (q @ k.transpose(-2, -1) * 0.5).masked_fill(~self.mask, float("-inf"))
        return self.head(y + self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(y.shape)))


TRAIN = """
import json, sys, mxnet as mx, numpy as np
prefix, shape, floats = sys.argv[1], tuple(json.loads(sys.argv[2])), sys.argv[3] == "float"
mx.random.seed(0); np.random.seed(0)
x = mx.nd.random.normal(shape=shape) if floats else mx.nd.array(np.random.randint(0, 50, shape), dtype="int64")
symbol, arguments, states = mx.model.load_checkpoint(prefix, 0)
module = mx.mod.Module(symbol, data_names=["x"], label_names=None)
module.bind([mx.io.DataDesc("x", shape, dtype=x.dtype)], for_training=True)
module.init_params(arg_params=arguments, aux_params=states)
module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "wd": 0.01})
module.forward(mx.io.DataBatch([x]), is_train=True)
module.backward([mx.nd.ones(module.get_outputs()[0].shape)])
module.update()
block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["x"], prefix + "-0000.params")
y = block(x)
parameters = block.collect_params()
before = {name: p.data().asnumpy() for name, p in parameters.items()}
trainer = mx.gluon.Trainer(parameters, "adam", {"learning_rate": 0.01})
labels = mx.nd.array(np.random.randint(0, y.shape[-1], y.shape[:-1]))
loss, losses = mx.gluon.loss.SoftmaxCrossEntropyLoss(), []
for _ in range(20):
    with mx.autograd.record():
        out = loss(block(x), labels).mean()
    out.backward()
    trainer.step(1)
    losses.append(float(out.asscalar()))
moved = [n for n, p in parameters.items() if not np.array_equal(before[n], p.data().asnumpy())]
print(json.dumps({"arguments": sorted(arguments), "states": sorted(states), "moved": sorted(moved), "losses": losses}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [Convolutional, BiLSTM, Transformer, Causal])
def test_parameters_keep_their_names_and_are_trained(tmp_path, architecture):
    torch.manual_seed(0)
    source = architecture().eval()
    images = architecture is Convolutional
    x = torch.randn(4, 3, 16, 16) if images else torch.randint(0, TOKENS, (4, LENGTH))
    made = onnxbridge.convert(source, to="mxnet", inputs=(x,))
    assert made.report.agrees
    made.save(tmp_path / "net")
    found = mxnet(TRAIN, tmp_path / "net", json.dumps(list(x.shape)), "float" if images else "int")
    trained = {name for name, _ in source.named_parameters()}
    statistics = {name for name, _ in source.named_buffers() if "running" in name}
    assert set(found["states"]) == statistics
    frozen = set(found["arguments"]) - trained
    assert trained <= set(found["arguments"]) and frozen == ({"mask.not"} if architecture is Causal else set())
    assert set(found["moved"]) == trained | statistics
    assert found["losses"][-1] < 0.8 * found["losses"][0]


LOOPS = {
    "_foreach": """agraph (float[2] x) => (float[2] y, float[5,2] z)
        <bool c0 = {1}, int64 n = {5}, float[2,2] w = {1.,2.,3.,4.}> {
        y, z = Loop (n, c0, x) <body = b (int64 i, bool c, float[2] s) => (bool co, float[2] so, float[2] zo) {
            f = Cast<to=1>(i) a = Add(s, f) m = MatMul(a, w) so = Tanh(m) zo = Mul(so, so) co = Identity(c) }> }""",
    "_while_loop": """agraph (float[2] x, float[1] limit) => (float[2] y) <bool c0 = {1}> {
        c1 = Identity(c0)
        y = Loop ("", c1, x) <body = b (int64 i, bool c, float[2] s) => (bool co, float[2] so) {
            sq = Mul(s, s) one = Constant<value_floats=[1.0]>() so = Add(sq, one)
            m = ReduceMax<keepdims=1>(so) less = Less(m, limit) co = Squeeze(less) }> }""",
}  # fmt: skip


@pytest.mark.parametrize("operator", LOOPS)
def test_loops_are_subgraphs(operator):
    source = parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + LOOPS[operator])
    feeds = [{"x": np.array([0.5, 0.25], np.float32), "limit": np.array([n], np.float32)} for n in (3, 50)]
    data = [{v.name: feed[v.name] for v in source.graph.input} for feed in feeds]
    made = onnxbridge.convert(source, to="mxnet", data=data)
    assert made.report.agrees and f'"{operator}"' in made.artifact.symbol
