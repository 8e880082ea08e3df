"""Runs in the interpreter that has MXNet: quantizes small networks into the folder in its first argument, and runs them.

Beside each network lie its input and the outputs of MXNet's own int8 run.
"""

import sys
import warnings

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from mxnet.contrib import quantization
from mxnet.gluon import nn


class Residual(gluon.HybridBlock):
    """Convolutions with BatchNorm, activations, a sum, grouped and depthwise ones, and both kinds of pooling."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = nn.HybridSequential()
            self.first.add(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
            self.left = nn.HybridSequential()
            self.left.add(nn.Conv2D(8, 3, padding=1, groups=2), nn.BatchNorm(), nn.Activation("relu"))
            self.left.add(nn.Conv2D(8, 3, padding=1, groups=8, use_bias=False), nn.BatchNorm())
            self.pool = nn.MaxPool2D(2)
            self.last = nn.HybridSequential()
            self.last.add(nn.Conv2D(12, 1), nn.LeakyReLU(0.1), nn.AvgPool2D(2), nn.Flatten())
            self.last.add(nn.Dense(16, activation="relu"), nn.Dense(5))

    def hybrid_forward(self, F, x):
        x = self.first(x)
        return self.last(self.pool(F.Activation(x + self.left(x), act_type="relu")))


class Branches(gluon.HybridBlock):
    """Concatenation, a clip, a sum without activation, and a BatchNorm that stands alone."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a, self.b, self.c = nn.Conv2D(4, 3, padding=1), nn.Conv2D(4, 1), nn.Conv2D(8, 1)
            self.norm, self.dense = nn.BatchNorm(), nn.Dense(6, use_bias=False)

    def hybrid_forward(self, F, x):
        a = F.clip(self.a(x), 0, 6)
        joined = F.concat(a, F.Activation(self.b(x), act_type="relu"), dim=1)
        y = self.c(joined) + joined
        y = self.norm(F.Pooling(y, kernel=(2, 2), stride=(2, 2), pool_type="max"))
        return self.dense(F.Pooling(y, kernel=(1, 1), global_pool=True, pool_type="avg"))


class Activations(gluon.HybridBlock):
    """Every activation that oneDNN fuses with a convolution or a fully connected layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.convolutions = [nn.Conv2D(4, 3) for _ in range(8)]
            self.layers = [nn.Dense(6) for _ in range(8)]
            self.register(self.convolutions + self.layers)

    def register(self, blocks):
        for block in blocks:
            self.register_child(block)

    def hybrid_forward(self, F, x):
        activations = [
            lambda y: F.Activation(y, act_type="sigmoid"), lambda y: F.Activation(y, act_type="tanh"),
            lambda y: F.Activation(y, act_type="softrelu"), lambda y: F.LeakyReLU(y, act_type="leaky", slope=0.2),
            lambda y: F.LeakyReLU(y, act_type="elu", slope=0.7), lambda y: F.LeakyReLU(y, act_type="gelu"),
            lambda y: F.clip(y, 0, 1), lambda y: F.Activation(y, act_type="relu"),
        ]  # fmt: skip
        images = [act(conv(x)) for act, conv in zip(activations, self.convolutions, strict=True)]
        rows = [act(layer(x)) for act, layer in zip(activations, self.layers, strict=True)]
        more = [F.square(self.layers[0](x)), F.exp(self.layers[1](x)), F.abs(self.layers[2](x)), F.sqrt(F.abs(self.layers[3](x)))]
        return F.concat(*[F.Flatten(y) for y in images + rows + more], dim=1)


class Attention(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.project, self.out = nn.Dense(48, flatten=False), nn.Dense(16, flatten=False, activation="relu")
            self.end = nn.Dense(4, flatten=False)

    def hybrid_forward(self, F, x):
        qkv = self.project(x)
        weights = F.softmax(F.contrib.interleaved_matmul_selfatt_qk(qkv, heads=4))
        return self.end(self.out(F.contrib.interleaved_matmul_selfatt_valatt(qkv, weights, heads=4)) + x)


class Plain(gluon.HybridBlock):
    """Layers that are quantized one by one; oneDNN's convolution of this kind takes uint8 only."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.net = nn.HybridSequential()
            self.net.add(nn.Conv2D(8, 3, padding=1), nn.Activation("relu"), nn.MaxPool2D(2), nn.AvgPool2D(2))
            self.net.add(nn.Flatten(), nn.Dense(6, activation="relu"), nn.Dense(3, use_bias=False))

    def hybrid_forward(self, F, x):
        return self.net(x)


NETWORKS = {
    "residual": (Residual, (2, 4, 12, 12)), "branches": (Branches, (2, 4, 8, 8)), "attention": (Attention, (5, 2, 16)),
    "activations": (Activations, (2, 4, 5, 5)),
    "plain": (Plain, (2, 4, 12, 12)),
}  # fmt: skip
FUSED = {
    "int8": {"quantized_dtype": "int8"},
    "auto": {"quantized_dtype": "auto"},
    "smart": {"quantized_dtype": "auto", "quantize_mode": "smart"},
    "channels": {"quantized_dtype": "auto", "quantize_granularity": "channel-wise"},
    "uncalibrated": {"quantized_dtype": "int8", "calib_mode": "none"},
}
UNFUSED = {"unfused": {"quantized_dtype": "auto"}}
IMPOSSIBLE = {"branches-uncalibrated", "attention-int8", "attention-uncalibrated"}
"""MXNet itself fails: a clip needs a range, and attention's weights are uint8."""


def save(prefix, symbol, args, auxs, x):
    """The files of a network, with its input and its outputs."""
    symbol.save(f"{prefix}-symbol.json")
    nd.save(f"{prefix}-0000.params", {f"arg:{k}": v for k, v in args.items()} | {f"aux:{k}": v for k, v in auxs.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    np.savez(f"{prefix}.npz", data=x.asnumpy(), expected=net(x).asnumpy())


def export(folder, name):
    kind, shape = NETWORKS[name]
    net = kind()
    net.initialize(mx.init.Normal(0.3))
    net.hybridize()
    x = nd.random.uniform(0 if name == "plain" else -1, 1, shape=shape)
    with mx.autograd.train_mode():  # moves the statistics of BatchNorm
        for _ in range(3):
            net(x)
    net(x)
    net.export(f"{folder}/{name}", epoch=0)
    symbol, args, auxs = mx.model.load_checkpoint(f"{folder}/{name}", 0)
    save(f"{folder}/{name}-float32", symbol.get_backend_symbol("MKLDNN"), args, auxs, x)
    for label, options in (UNFUSED if name == "plain" else FUSED).items():
        if f"{name}-{label}" in IMPOSSIBLE:
            continue
        options = {"calib_mode": "naive"} | options
        data = mx.io.NDArrayIter(x.asnumpy(), batch_size=x.shape[0])
        calibration = {"calib_data": data} if options["calib_mode"] == "naive" else {}
        quantize = quantization.quantize_model if name == "plain" else quantization.quantize_model_mkldnn
        made = quantize(symbol, args, auxs, ctx=mx.cpu(), **options, **calibration)
        save(f"{folder}/{name}-{label}", *made, x)


def main():
    mx.random.seed(3)
    for name in NETWORKS:
        export(sys.argv[1], name)


if __name__ == "__main__":
    main()
