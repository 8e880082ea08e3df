"""Quantized tensors of TorchScript and of what torch.ao.quantization converts: integers with a scale and a zero point.

An operator on them is what PyTorch's kernel stands for: its arguments dequantized, the operator in floating point, the result
quantized. ONNX writes quantized models in that form, and runtimes join it into operators on integers again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable

_RANGES = {"qint8": ("int8", -128, 127), "quint8": ("uint8", 0, 255), "qint32": ("int32", -(2**31), 2**31 - 1)}


@functools.cache
def _decomposed() -> Any:
    """PyTorch's operators from floating point to integers and back, which torch.export keeps."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  # registers them

    return frameworks.torch().ops.quantized_decomposed


def _range(dtype: Any) -> tuple[int, int, Any]:
    name = str(dtype).removeprefix("torch.")
    if name not in _RANGES:
        raise NotTraceable(f"quantization to {name}")
    held, low, high = _RANGES[name]
    return low, high, getattr(frameworks.torch(), held)


@dataclass(eq=False)
class Quantized:
    """A quantized tensor: `scale` and `zero_point` are numbers, or tensors along `axis`."""

    ints: Any
    scale: Any
    zero_point: Any
    dtype: Any
    axis: int | None = None

    def real(self) -> Any:
        """The numbers that the integers stand for."""
        low, high, held = _range(self.dtype)
        if self.axis is not None:
            return _decomposed().dequantize_per_channel(self.ints, self.scale, self.zero_point, self.axis, low, high, held)
        if all(isinstance(v, (int, float)) for v in (self.scale, self.zero_point)):
            return _decomposed().dequantize_per_tensor(self.ints, self.scale, self.zero_point, low, high, held)
        return _decomposed().dequantize_per_tensor.tensor(self.ints, *_scalars(self.scale, self.zero_point), low, high, held)

    def like(self, x: Any) -> Quantized:
        """Other numbers on this tensor's grid."""
        return quantized(x, self.scale, self.zero_point, self.dtype)


def _scalars(scale: Any, zero_point: Any) -> tuple[Any, Any]:
    """Both as tensors, where the code reads them from buffers."""
    torch = frameworks.torch()
    given = ((scale, torch.float32), (zero_point, torch.int64))
    return tuple(v if isinstance(v, torch.Tensor) else torch.scalar_tensor(v, dtype=dtype) for v, dtype in given)


def quantized(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Quantized:
    """Floating point on a grid of its own."""
    low, high, held = _range(dtype)
    if all(isinstance(v, (int, float)) for v in (scale, zero_point)):
        ints = _decomposed().quantize_per_tensor(x, scale, zero_point, low, high, held)
    else:
        ints = _decomposed().quantize_per_tensor.tensor(x, *_scalars(scale, zero_point), low, high, held)
    return Quantized(ints, scale, zero_point, dtype)


# weights that PyTorch packs for its kernels


@dataclass(frozen=True, eq=False)
class Packed:
    """Unpacked weights: buffers of the module that holds them, by name, and what their layer is set to."""

    holder: Any
    names: dict[str, str]
    dtype: Any
    scale: float = 1.0
    zero_point: int = 0
    axis: int | None = None
    numbers: tuple[Any, ...] = ()

    def of(self, what: str) -> Any:
        return self.holder._buffers[self.names[what]] if what in self.names else None

    def weight(self) -> Any:
        scale = self.scale if self.axis is None else self.of("scales")
        zero_point = self.zero_point if self.axis is None else self.of("zero_points")
        return Quantized(self.of("weight"), scale, zero_point, self.dtype, self.axis)


def packed_attributes(nodes: Iterable[Any]) -> Iterator[str]:
    """The names under which code reads packed weights, from any module."""
    for node in nodes:
        if node.kind() == "prim::GetAttr" and "torch.classes.quantized." in str(node.output().type()):
            yield node.s("name")


_CONVERTED = re.compile(r"torch\.ao\.nn\.(intrinsic\.)?quantized\.(?!reference)")


def is_converted(module: Any) -> bool:
    """Whether torch.ao.quantization has put modules on quantized tensors into it, which torch.export does not trace."""
    return any(_CONVERTED.match(type(m).__module__) for m in module.modules())


def unpacked(holder: Any, name: str, packed: Any) -> Packed | None:
    """Packed weights as buffers of their holder; None for a kind that has no rules."""
    torch = frameworks.torch()
    kind = packed._type().name()
    ops = torch.ops.quantized
    settings: tuple[Any, ...] = ()
    if kind == "LinearPackedParamsBase":
        weight, bias = ops.linear_unpack(packed)
    elif kind in ("Conv2dPackedParamsBase", "Conv3dPackedParamsBase"):
        rank = kind[4:6]
        weight, bias = getattr(ops, f"conv{rank}_unpack")(packed)
        words = ("stride", "padding", "output_padding", "dilation", "groups")
        settings = tuple(getattr(ops, f"conv{rank}_{word}")(packed) for word in words)
    elif kind == "EmbeddingPackedParamsBase":
        weight, bias = ops.embedding_bag_unpack(packed), None
    else:
        return None
    if not weight.is_quantized or weight.dtype not in (torch.qint8, torch.quint8):
        return None
    tensors = {"weight": weight.int_repr(), "bias": bias}
    more: dict[str, Any] = {}
    if weight.qscheme() == torch.per_tensor_affine:
        more = {"scale": weight.q_scale(), "zero_point": weight.q_zero_point()}
    else:
        tensors |= {"scales": weight.q_per_channel_scales().float(), "zero_points": weight.q_per_channel_zero_points()}
        more = {"axis": weight.q_per_channel_axis()}
    names = {}
    for what, tensor in tensors.items():
        if tensor is not None:
            free = what if what not in holder._buffers and not hasattr(holder, what) else f"{name}_{what}"
            holder.register_buffer(free, tensor.detach(), persistent=False)
            names[what] = free
    return Packed(holder, names, weight.dtype, numbers=settings, **more)


# operators


def takes(kind: str, args: list[Any]) -> bool:
    """Whether an operator is one on quantized tensors."""
    if kind.startswith("quantized::") or kind in _OF_TENSORS:
        return True
    if not args or kind in ("aten::__is__", "aten::__isnot__"):
        return False
    if kind in ("prim::dtype", "prim::is_quantized") or kind.startswith("aten::"):
        listed = kind in ("aten::cat", "aten::stack") and any(isinstance(a, Quantized) for a in args[0])
        return isinstance(args[0], Quantized) or listed
    return False


def call(kind: str, args: list[Any], run: Callable[[list[Any]], Any]) -> Any:
    """The results of an operator; `run` computes it on arguments in floating point."""
    namespace, _, name = kind.partition("::")
    if namespace == "quantized":
        base = name if name in _OPERATORS else name.removesuffix("_relu").replace("_relu_dynamic", "_dynamic")
        if base not in _OPERATORS:
            raise NotTraceable(f"{kind} has no counterpart in a traced program")
        return _OPERATORS[base](*args, relu=base != name)
    if kind in _OF_TENSORS:
        return _OF_TENSORS[kind](*args)
    if name in _ASKED and isinstance(args[0], Quantized):
        return _ASKED[name](args[0])
    first = next(a for a in (args[0] if isinstance(args[0], list) else args) if isinstance(a, Quantized))
    result = run([_real(a) for a in args])
    torch = frameworks.torch()
    if name in _FIXED:
        return quantized(result, *_FIXED[name], first.dtype)

    def back(r: Any) -> Any:
        return first.like(r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r

    return [back(r) for r in result] if isinstance(result, (tuple, list)) else back(result)


def _real(x: Any) -> Any:
    if isinstance(x, Quantized):
        return x.real()
    return [_real(i) for i in x] if isinstance(x, list) else x


def _finished(x: Any, scale: Any, zero_point: Any, dtype: Any, relu: bool) -> Quantized:
    return quantized(x.relu() if relu else x, scale, zero_point, dtype)


def _linear(x: Any, packed: Packed, scale: Any, zero_point: Any, *rest: Any, relu: bool, after: Any = None) -> Quantized:
    y = frameworks.torch().nn.functional.linear(x.real(), packed.weight().real(), packed.of("bias"))
    return _finished(y if after is None else after(y, *rest), scale, zero_point, x.dtype, relu)


def _dynamic(x: Any, reduce_range: bool) -> Any:
    """What a tensor is where its own extremes decide the grid."""
    most = 127 if reduce_range else 255
    torch = frameworks.torch()
    grid = _decomposed().choose_qparams.tensor(x, 0, most, torch.finfo(torch.float32).eps, torch.uint8)
    ints = _decomposed().quantize_per_tensor.tensor(x, *grid, 0, most, torch.uint8)
    return _decomposed().dequantize_per_tensor.tensor(ints, *grid, 0, most, torch.uint8)


def _linear_dynamic(x: Any, packed: Packed, reduce_range: bool = False, *, relu: bool) -> Any:
    y = frameworks.torch().nn.functional.linear(_dynamic(x, reduce_range), packed.weight().real(), packed.of("bias"))
    return y.relu() if relu else y


def _convolved(rank: int, transposed: bool, x: Any, packed: Packed) -> Any:
    torch = frameworks.torch()
    stride, padding, output_padding, dilation, groups = packed.numbers
    weight = packed.weight()
    if rank == 1:  # packed as pictures of one row
        axis = weight.axis
        weight = Quantized(weight.ints.squeeze(2), weight.scale, weight.zero_point, weight.dtype, axis)
        stride, padding, output_padding, dilation = ([v[-1]] for v in (stride, padding, output_padding, dilation))
    stride, padding, output_padding, dilation = (list(v) for v in (stride, padding, output_padding, dilation))
    output_padding = output_padding if transposed else [0] * rank
    return torch.ops.aten.convolution(
        x, weight.real(), packed.of("bias"), stride, padding, dilation, transposed, output_padding, groups
    )  # fmt: skip


def _conv(rank: int, transposed: bool) -> Callable[..., Quantized]:
    def lower(x: Any, packed: Packed, *rest: Any, relu: bool) -> Quantized:
        scale, zero_point = rest[-2:]
        return _finished(_convolved(rank, transposed, x.real(), packed), scale, zero_point, x.dtype, relu)

    return lower


def _conv_dynamic(rank: int, transposed: bool) -> Callable[..., Any]:
    def lower(x: Any, packed: Packed, reduce_range: bool = False, *, relu: bool) -> Any:
        y = _convolved(rank, transposed, _dynamic(x, reduce_range), packed)
        return y.relu() if relu else y

    return lower


def _conv_add(x: Any, other: Any, packed: Packed, scale: Any, zero_point: Any, *, relu: bool) -> Quantized:
    return _finished(_convolved(2, False, x.real(), packed) + other.real(), scale, zero_point, x.dtype, relu)


def _embedding(packed: Packed, indices: Any, pruned_weights: bool = False, *, relu: bool) -> Any:
    ints, scales, zero_points = packed.of("weight"), packed.of("scales"), packed.of("zero_points")
    return (ints[indices].float() - zero_points.float()[indices][..., None]) * scales[indices][..., None]


def _binary(function: Callable[..., Any]) -> Callable[..., Quantized]:
    def lower(a: Any, b: Any, *grid: Any, relu: bool) -> Quantized:
        if isinstance(a, Quantized) and isinstance(b, Quantized):
            scale, zero_point = grid
            return _finished(function(a.real(), b.real()), scale, zero_point, a.dtype, relu)
        x, number = (a, b) if isinstance(a, Quantized) else (b, a)
        number = number.item() if isinstance(number, frameworks.torch().Tensor) else number
        if not isinstance(number, (int, float)) or not isinstance(x.scale, (int, float)):
            raise NotTraceable("a quantized tensor and a number that only data decides")
        made = _WITH_NUMBER[function](x, float(number))
        return made.like(made.real().relu()) if relu else made

    return lower


def _plus(x: Quantized, number: float) -> Quantized:
    """A number added by moving the zero point, as PyTorch does while it stays in range."""
    low, high, _ = _range(x.dtype)
    moved = x.zero_point - round(number / x.scale)
    if not low <= moved <= high:
        raise NotTraceable(f"adds {number} to a quantized tensor whose range ends before it")
    return Quantized(x.ints, x.scale, moved, x.dtype)


def _times(x: Quantized, number: float) -> Quantized:
    """A number multiplied into the scale, the integers turned around where it is negative."""
    low, high, _ = _range(x.dtype)
    if number > 0:
        return Quantized(x.ints, x.scale * number, x.zero_point, x.dtype)
    if number == 0:
        return Quantized(x.ints * 0, 1.0, 0, x.dtype)
    return Quantized(high + low - x.ints, x.scale * -number, high + low - x.zero_point, x.dtype)


def _add(a: Any, b: Any) -> Any:
    return a + b


def _mul(a: Any, b: Any) -> Any:
    return a * b


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


_WITH_NUMBER = {_add: _plus, _mul: _times}


def _cat(xs: list[Any], dim: int, scale: Any, zero_point: Any, *, relu: bool) -> Quantized:
    y = frameworks.torch().cat([x.real() for x in xs], dim)
    scale = xs[0].scale if scale is None else scale
    return _finished(y, scale, xs[0].zero_point if zero_point is None else zero_point, xs[0].dtype, relu)


def _on_grid(function: Callable[..., Any], after: int = 0) -> Callable[..., Quantized]:
    """An operator whose last arguments, but for `after` more, are the result's scale and zero point."""

    def lower(x: Any, *args: Any, relu: bool) -> Quantized:
        end = len(args) - after
        scale, zero_point = args[end - 2 : end]
        return _finished(function(x.real(), *args[: end - 2], *args[end:]), scale, zero_point, x.dtype, relu)

    return lower


def _same(function: Callable[..., Any]) -> Callable[..., Quantized]:
    def lower(x: Quantized, *args: Any, relu: bool) -> Quantized:
        return x.like(function(x.real(), *args))

    return lower


def _functional(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(frameworks.torch().nn.functional, name)(*args)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return frameworks.torch().nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return frameworks.torch().nn.functional.instance_norm(x, None, None, weight, bias, True, 0.0, eps)


def _elu(x: Any, *more: Any) -> Any:
    return frameworks.torch().ops.aten.elu(x, *more)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "linear": _linear, "linear_dynamic": _linear_dynamic,
    "linear_leaky_relu": functools.partial(_linear, after=_functional("leaky_relu")),
    "linear_tanh": functools.partial(_linear, after=lambda y: y.tanh()),
    **{f"conv{r}d": _conv(r, False) for r in (1, 2, 3)}, **{f"conv_transpose{r}d": _conv(r, True) for r in (1, 2, 3)},
    **{f"conv{r}d_dynamic": _conv_dynamic(r, False) for r in (1, 2, 3)},
    **{f"conv_transpose{r}d_dynamic": _conv_dynamic(r, True) for r in (1, 2, 3)}, "conv2d_add": _conv_add,
    "embedding_byte": _embedding, "add": _binary(_add), "add_scalar": _binary(_add), "mul": _binary(_mul),
    "mul_scalar": _binary(_mul), "matmul": _binary(_matmul), "cat": _cat, "hardswish": _on_grid(_functional("hardswish")),
    "sigmoid": _on_grid(lambda x: x.sigmoid()), "prelu": _on_grid(_functional("prelu")),
    "leaky_relu": _on_grid(lambda x, slope, inplace: _functional("leaky_relu")(x, slope)),
    "softmax": _on_grid(lambda x, dim: x.softmax(dim)),
    "celu": _on_grid(_functional("celu"), 1), "elu": _on_grid(_elu, 3), "dropout": _on_grid(lambda x, p, training: x, 2),
    **dict.fromkeys(("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d"), _on_grid(_batch_norm)),
    "layer_norm": _on_grid(_functional("layer_norm")), "group_norm": _on_grid(_functional("group_norm")),
    "instance_norm": _on_grid(_instance_norm), "relu6": _same(lambda x, *inplace: x.clamp(0, 6)),
    "max_pool1d": _same(_functional("max_pool1d")), "max_pool2d": _same(_functional("max_pool2d")),
    "clamp": _same(lambda x, low=None, high=None: x.clamp(low, high)), "threshold": _same(_functional("threshold")),
}  # fmt: skip


def _from_floats(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Quantized:
    from onnxbridge.frontends.pytorch.torchscript.python_values import dtype as dtype_of

    return quantized(x, scale, zero_point, dtype_of(dtype))


# operators that make quantized tensors, or floating point of them
_OF_TENSORS: dict[str, Callable[..., Any]] = {"aten::quantize_per_tensor": _from_floats, "aten::dequantize": _real}


def _number_of(x: Quantized) -> int:
    from onnxbridge.frontends.pytorch.torchscript.python_values import dtype_number

    return dtype_number(x.dtype)


# what code asks of a quantized tensor
_ASKED: dict[str, Callable[[Quantized], Any]] = {
    "q_scale": lambda x: x.scale, "q_zero_point": lambda x: x.zero_point, "int_repr": lambda x: x.ints,
    "is_quantized": lambda x: True, "dtype": _number_of, "detach": lambda x: x, "clone": lambda x: x,
    "contiguous": lambda x: replace(x, ints=x.ints.contiguous()),
}  # fmt: skip

# results whose grid PyTorch fixes: scale and zero point
_FIXED = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128), "softmax": (1 / 256, 0)}
