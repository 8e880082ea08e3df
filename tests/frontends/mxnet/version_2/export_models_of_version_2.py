"""Runs in the interpreter that has MXNet 2: exports networks to the folder in its first argument, with inputs and outputs."""

import sys

import mxnet as mx
import numpy
from mxnet import gluon, np, npx
from mxnet.gluon import nn, rnn


class Attention(nn.HybridBlock):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Dense(24, flatten=False), nn.Dense(8, flatten=False)
        self.norm = nn.LayerNorm()

    def forward(self, x, mask):
        query, key, value = np.split(self.project(x), 3, axis=-1)
        scores = npx.batch_dot(query, key, transpose_b=True) / numpy.sqrt(8)
        mixed = npx.batch_dot(npx.masked_softmax(scores, mask, axis=-1), value)
        hidden = npx.leaky_relu(self.out(mixed), act_type="gelu")
        return self.norm(x + hidden), np.sum(mixed, axis=1), np.max(mixed)


class Arrays(nn.HybridBlock):
    """Functions of `mx.np` that layers use."""

    def forward(self, x):
        y = np.concatenate([x[:, :1], np.flip(x, axis=1)], axis=1)
        y = np.where(y > 0, np.fmax(y, 0.5), np.floor_divide(y, 0.25))
        y = np.einsum("ij,kj->ik", y, y) + np.tri(3, 3) * np.logaddexp(y[:3, :3], 0.0)
        return np.cumsum(np.roll(np.transpose(y), 1, axis=0), axis=1), np.mean(y), np.argmax(y, axis=1)


class Control(nn.HybridBlock):
    def forward(self, x):
        return npx.foreach(lambda row, state: (row + state, row + state), x, np.zeros((4,)))[1]


def layers():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2), nn.GroupNorm(2))
    net.add(nn.InstanceNorm(), nn.Dropout(0.5), nn.Conv2DTranspose(4, 2, strides=2), nn.BatchNormReLU(), nn.PReLU())
    net.add(nn.AvgPool2D(2), nn.Dense(10), nn.Swish(), nn.GELU(), nn.SELU(), nn.ELU(), nn.SiLU(), nn.LayerNorm())
    return net


def recurrent():
    net = nn.HybridSequential()
    net.add(nn.Embedding(20, 6), rnn.LSTM(5, layout="NTC", bidirectional=True), rnn.GRU(4, layout="NTC"))
    net.add(nn.Dense(3, flatten=False))
    return net


def uniform(*shape):
    return np.random.uniform(-1, 1, size=shape)


def main():
    mx.np.random.seed(3)
    networks = {
        "layers": (layers(), uniform(2, 3, 8, 8)),
        "resnet": (gluon.model_zoo.vision.resnet18_v2(classes=10), uniform(1, 3, 32, 32)),
        "mobilenet": (gluon.model_zoo.vision.mobilenet_v2_0_25(classes=10), uniform(1, 3, 32, 32)),
        "recurrent": (recurrent(), np.array([[1, 2, 3], [4, 5, 6]])),
        "attention": (Attention(), uniform(2, 5, 8), uniform(2, 5, 5) > -0.5),
        "arrays": (Arrays(), uniform(3, 3)),
        "control": (Control(), uniform(3, 4)),
    }
    for name, (net, *inputs) in networks.items():
        net.initialize(mx.init.Normal(0.3))
        net.hybridize()
        found = net(*inputs)
        prefix = f"{sys.argv[1]}/{name}"
        net.export(prefix, epoch=0)
        found = found if isinstance(found, (list, tuple)) else [found]
        arrays = {f"input{i}": x for i, x in enumerate(inputs)} | {f"output{i}": y for i, y in enumerate(found)}
        numpy.savez(f"{prefix}.npz", **{k: v.asnumpy() for k, v in arrays.items()})


if __name__ == "__main__":
    main()
