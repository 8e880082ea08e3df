"""The digits network in Gluon: `python gluon_net.py DIGITS.npz PREFIX` trains it and exports it.

It writes PREFIX-symbol.json and PREFIX-0000.params, and runs in MXNet's own environment (mxnet 1.9.1, numpy 1.23.5).
"""

from __future__ import annotations

import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn


class Net(gluon.HybridBlock):
    """The same layers as in the other frameworks."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.stem = nn.HybridSequential()
            self.stem.add(nn.Conv2D(16, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
            self.depthwise = nn.HybridSequential()
            self.depthwise.add(
                nn.Conv2D(16, 3, padding=1, groups=16, in_channels=16, use_bias=False), nn.BatchNorm(), nn.Activation("relu")
            )
            self.pointwise = nn.HybridSequential()
            self.pointwise.add(nn.Conv2D(16, 1, use_bias=False), nn.BatchNorm())
            self.grow = nn.Conv2D(32, 3, padding=1, activation="relu")
            self.head = nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = self.stem(x)
        x = F.relu(x + self.pointwise(self.depthwise(x)))
        x = F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max")
        x = F.Pooling(self.grow(x), kernel=(2, 2), stride=(2, 2), pool_type="avg")
        return F.softmax(self.head(x), axis=1)


def main(digits, prefix):
    mx.random.seed(0)
    np.random.seed(0)
    net = Net()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    with np.load(digits) as data:
        x, y = mx.nd.array(data["x_train"]), mx.nd.array(data["y_train"])
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 3e-3})
    for _ in range(20):
        order = mx.nd.array(np.random.permutation(len(x)))
        for start in range(0, len(x), 64):
            batch = order[start : start + 64]
            with autograd.record():
                chosen = mx.nd.pick(net(mx.nd.take(x, batch)), mx.nd.take(y, batch), axis=1)
                loss = -mx.nd.log(chosen + 1e-9).mean()
            loss.backward()
            trainer.step(1)
    net.export(prefix)


if __name__ == "__main__":
    main(*sys.argv[1:])
