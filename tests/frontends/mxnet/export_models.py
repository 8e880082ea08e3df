"""Runs in the interpreter that has MXNet: exports networks with random weights to the folder in its first argument."""

import sys

import mxnet as mx
from mxnet import gluon, nd
from mxnet.gluon import nn, rnn


def export(name, net, *inputs):
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(*inputs)
    net.export(f"{sys.argv[1]}/{name}", epoch=0)


class Recurrent(gluon.HybridBlock):
    """A layer whose initial state MXNet creates, with an inferred batch size."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layer = layer
            self.out = nn.Dense(3, flatten=False)

    def hybrid_forward(self, F, x):
        return self.out(self.layer(x))


class Unrolled(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = rnn.LSTMCell(4)

    def hybrid_forward(self, F, x):
        outputs, _ = self.cell.unroll(3, x, layout="NTC", merge_outputs=True)
        return outputs


class Control(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        sums, last = F.contrib.foreach(lambda row, state: (row + state, row + state), x, F.zeros((4,)))
        totals, _ = F.contrib.foreach(  # an item has shape (1,)
            lambda item, total: (F.concat(item, total, dim=0), item + total), F.sum(x, axis=1), F.ones((1,))
        )
        _, state = F.contrib.while_loop(
            lambda i, total: i < 3,
            lambda i, total: (total, (i + 1, total * 2)),
            (F.zeros((1,)), F.sum(x, axis=0)),
            max_iterations=5,
        )
        chosen = F.contrib.cond(F.sum(x) > 0, lambda: x * 2, lambda: x - 1)
        return sums, last, totals, state[0], state[1], chosen


def main():
    mx.random.seed(3)
    export("resnet18", gluon.model_zoo.vision.resnet18_v1(classes=10), nd.random.uniform(shape=(1, 3, 64, 64)))
    export("mobilenet", gluon.model_zoo.vision.mobilenet_v2_0_25(classes=10), nd.random.uniform(shape=(1, 3, 64, 64)))
    export("lstm", Recurrent(rnn.LSTM(5, num_layers=2, bidirectional=True)), nd.random.uniform(shape=(4, 2, 3)))
    export("gru", Recurrent(rnn.GRU(5, layout="NTC")), nd.random.uniform(shape=(2, 4, 3)))
    export("unrolled", Unrolled(), nd.random.uniform(shape=(2, 3, 5)))
    export("control", Control(), nd.random.uniform(shape=(5, 4)))


main()
