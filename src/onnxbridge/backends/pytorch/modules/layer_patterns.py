"""Matches single calls to torch.nn layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.modules.lift_modules import Finder, Layer, finder, rank, shape


@finder(torch.conv1d, torch.conv2d, torch.conv3d)
def convolution(
    node: fx.Node, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Layer | None:  # fmt: skip
    if not _numbers(stride, padding, dilation) or not isinstance(weight, fx.Node):
        return None
    out, inner, *kernel = shape(weight)
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(kernel) - 1]
    return Layer(kind, _arguments(inner * groups, out, kernel, stride, padding, dilation, groups, bias), (input,), _named(
        weight=weight, bias=bias
    ))  # fmt: skip


def _arguments(
    inside: int, outside: int, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int, bias: Any
) -> dict[str, Any]:
    return {
        "in_channels": inside, "out_channels": outside, "kernel_size": _one(kernel), "stride": _one(stride),
        "padding": _one(padding), "dilation": _one(dilation), "groups": groups, "bias": bias is not None,
    }  # fmt: skip


@finder(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
def transposed_convolution(
    node: fx.Node, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Layer | None:  # fmt: skip
    if not _numbers(stride, padding, output_padding, dilation) or not isinstance(weight, fx.Node):
        return None
    inside, out, *kernel = shape(weight)
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[len(kernel) - 1]
    arguments = _arguments(inside, out * groups, kernel, stride, padding, dilation, groups, bias)
    return Layer(kind, {**arguments, "output_padding": _one(output_padding)}, (input,), _named(weight=weight, bias=bias))


@finder(torch._C._nn.linear)
def linear(node: fx.Node, input: Any, weight: Any, bias: Any = None) -> Layer | None:
    if not isinstance(weight, fx.Node):
        return None
    out, inside = shape(weight)
    arguments = {"in_features": inside, "out_features": out, "bias": bias is not None}
    return Layer(nn.Linear, arguments, (input,), _named(weight=weight, bias=bias))


@finder(torch.matmul)
def product(node: fx.Node, input: Any, other: Any) -> Layer | None:
    """A product with a weight matrix, and the addition of a bias to it."""
    if not isinstance(other, fx.Node) or rank(other) != 2 or not rank(input):
        return None
    transposed = other.target == "t" and isinstance(other.args[0], fx.Node)
    weight = other.args[0] if transposed else other
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    inside, out = shape(other)
    total, bias = _sum(node, out)
    arguments = {"in_features": inside, "out_features": out, "bias": bias is not None}
    return Layer(
        nn.Linear, arguments, (input,), _named(weight=weight, bias=bias), transposed="" if transposed else "weight",
        replaced=total, function=nn.functional.linear if transposed else None,
    )  # fmt: skip


@finder(torch.addmm)
def product_and_sum(node: fx.Node, input: Any, mat1: Any, mat2: Any) -> Layer | None:
    if not isinstance(mat2, fx.Node) or mat2.op != "get_attr" or input.op != "get_attr" or len(input.meta["val"].shape) != 1:
        return None
    inside, out = shape(mat2)
    arguments = {"in_features": inside, "out_features": out, "bias": True}
    return (
        Layer(nn.Linear, arguments, (mat1,), {"weight": mat2, "bias": input}, transposed="weight")
        if shape(input) == (out,)
        else None
    )


def _sum(node: fx.Node, size: int) -> tuple[fx.Node | None, fx.Node | None]:
    """The addition of a bias of `size` that is the only use of a product, and the bias."""
    if len(node.users) != 1:
        return None, None
    (user,) = node.users
    if user.op != "call_function" or user.target is not torch.add or len(user.args) != 2 or user.kwargs:
        return None, None
    (other,) = [a for a in user.args if a is not node] or [None]
    matches = isinstance(other, fx.Node) and other.op == "get_attr" and tuple(other.meta["val"].shape) == (size,)
    return (user, other) if matches and isinstance(other, fx.Node) else (None, None)


@finder(nn.functional.embedding)
def embedding(node: fx.Node, input: Any, weight: Any, **rest: Any) -> Layer | None:
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    count, width = shape(weight)
    return Layer(nn.Embedding, {"num_embeddings": count, "embedding_dim": width}, (input,), {"weight": weight})


@finder(nn.functional.batch_norm)
def batch_norm(
    node: fx.Node, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Layer | None:  # fmt: skip
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}.get(rank(input) or 0)
    if kind is None or training:
        return None
    weights = _named(weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    return Layer(kind, {"num_features": shape(weight)[0], "eps": eps, "momentum": momentum}, (input,), weights)


@finder(nn.functional.layer_norm)
def layer_norm(
    node: fx.Node, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Layer | None:
    if weight is None or not _numbers(normalized_shape) or shape(weight) != tuple(normalized_shape):
        return None
    arguments = {"normalized_shape": one_size(normalized_shape), "eps": eps, "bias": bias is not None}
    return Layer(nn.LayerNorm, arguments, (input,), _named(weight=weight, bias=bias))


@finder(nn.functional.rms_norm)
def rms_norm(node: fx.Node, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Layer | None:
    if weight is None or not _numbers(normalized_shape) or shape(weight) != tuple(normalized_shape):
        return None
    return Layer(nn.RMSNorm, {"normalized_shape": one_size(normalized_shape), "eps": eps}, (input,), _named(weight=weight))


@finder(torch.group_norm)
def group_norm(
    node: fx.Node, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Layer | None:
    if weight is None or bias is None:
        return None
    arguments = {"num_groups": num_groups, "num_channels": shape(weight)[0], "eps": eps}
    return Layer(nn.GroupNorm, arguments, (input,), _named(weight=weight, bias=bias))


@finder(nn.functional.instance_norm)
def instance_norm(
    node: fx.Node, input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **rest: Any
) -> Layer | None:
    kind = {3: nn.InstanceNorm1d, 4: nn.InstanceNorm2d, 5: nn.InstanceNorm3d}.get(rank(input) or 0)
    if kind is None or weight is None or bias is None:
        return None
    arguments = {"num_features": shape(weight)[0], "eps": eps, "affine": True}
    return Layer(kind, arguments, (input,), _named(weight=weight, bias=bias))


@finder(torch.prelu)
def prelu(node: fx.Node, input: Any, weight: Any) -> Layer | None:
    if not isinstance(weight, fx.Node):
        return None
    return Layer(nn.PReLU, {"num_parameters": shape(weight)[0]}, (input,), {"weight": weight})


def _pool(kind: type[nn.Module], *names: str, **fixed: Any) -> Finder:
    """A pool whose arguments have these names; `fixed` ones must have these values."""

    def find(node: fx.Node, input: Any, *args: Any, **kwargs: Any) -> Layer | None:
        arguments = {**dict(zip((*names, *fixed), args, strict=False)), **kwargs}
        matches = all(arguments.pop(name, value) == value for name, value in fixed.items())
        if not matches or not _numbers(*arguments.values()):
            return None
        made = {name: _one(value) for name, value in arguments.items()}
        if made.get("stride") == made["kernel_size"]:
            del made["stride"]  # the default of a pool
        return Layer(kind, made, (input,))

    return find


_WINDOWS = ("kernel_size", "stride", "padding")
for _target, _find in {
    nn.functional.max_pool2d: _pool(nn.MaxPool2d, *_WINDOWS, "dilation", ceil_mode=False, return_indices=False),
    nn.functional.max_pool3d: _pool(nn.MaxPool3d, *_WINDOWS, "dilation", ceil_mode=False, return_indices=False),
    nn.functional.avg_pool1d: _pool(nn.AvgPool1d, *_WINDOWS, "ceil_mode", "count_include_pad"),
    nn.functional.avg_pool2d: _pool(nn.AvgPool2d, *_WINDOWS, "ceil_mode", "count_include_pad"),
    nn.functional.avg_pool3d: _pool(nn.AvgPool3d, *_WINDOWS, "ceil_mode", "count_include_pad"),
}.items():
    finder(_target)(_find)


def _activation(kind: type[nn.Module], *names: str, **fixed: Any) -> Finder:
    def find(node: fx.Node, input: Any, *args: Any, **kwargs: Any) -> Layer | None:
        arguments = {**fixed, **dict(zip(names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in names}}
        known = set(kwargs) <= {*names, "inplace"} and not kwargs.get("inplace")
        arguments = {k: _one(v) if isinstance(v, (list, tuple)) else v for k, v in arguments.items()}
        literal = all(isinstance(i, (int, float, str)) for v in arguments.values() for i in (v if isinstance(v, tuple) else (v,)))
        return Layer(kind, arguments, (input,)) if known and literal else None

    return find


for _target, _find in {
    torch.relu: _activation(nn.ReLU), torch.sigmoid: _activation(nn.Sigmoid), torch.tanh: _activation(nn.Tanh),
    nn.functional.silu: _activation(nn.SiLU), nn.functional.mish: _activation(nn.Mish),
    nn.functional.hardswish: _activation(nn.Hardswish), nn.functional.hardsigmoid: _activation(nn.Hardsigmoid),
    nn.functional.softsign: _activation(nn.Softsign),
    torch._C._nn.gelu: _activation(nn.GELU, "approximate"), nn.functional.elu: _activation(nn.ELU, "alpha"),
    nn.functional.leaky_relu: _activation(nn.LeakyReLU, "negative_slope"), nn.functional.celu: _activation(nn.CELU, "alpha"),
    torch.softmax: _activation(nn.Softmax, "dim"), torch.log_softmax: _activation(nn.LogSoftmax, "dim"),
    torch._C._nn.softplus: _activation(nn.Softplus, "beta", "threshold"),
    torch.selu: _activation(nn.SELU), nn.functional.selu: _activation(nn.SELU),
}.items():  # fmt: skip
    finder(_target)(_find)


@finder(torch.flatten)
def flatten(node: fx.Node, input: Any, start_dim: int = 0, end_dim: int = -1) -> Layer | None:
    return Layer(nn.Flatten, {"start_dim": start_dim, "end_dim": end_dim}, (input,))


@finder(nn.functional.interpolate)
def upsample(
    node: fx.Node, input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Layer | None:  # fmt: skip
    if size is not None or recompute_scale_factor or antialias:
        return None
    arguments = {"scale_factor": _one(scale_factor), "mode": mode}
    return Layer(nn.Upsample, arguments if align_corners is None else {**arguments, "align_corners": align_corners}, (input,))


def _numbers(*values: Any) -> bool:
    return all(isinstance(v, int) for value in values for v in (value if isinstance(value, (list, tuple)) else (value,)))


def one_size(shape: Sequence[int]) -> Any:
    """A one-dimensional shape as an int, as users write it."""
    return shape[0] if len(shape) == 1 else tuple(shape)


def _one(values: Any) -> Any:
    """A single number if all values are equal, as users write it."""
    values = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    return values[0] if len(set(values)) == 1 else values


def _named(**weights: Any) -> dict[str, fx.Node]:
    return {name: node for name, node in weights.items() if node is not None}
