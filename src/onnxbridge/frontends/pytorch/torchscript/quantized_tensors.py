"""Quantized tensors of TorchScript and torch.ao.quantization: integers with a scale and a zero point.

An operator on quantized tensors is decomposed: dequantize the arguments, compute in floating point, quantize the result. This
is the form of quantized ONNX models, which runtimes fuse into integer operators.
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
    """PyTorch's quantize and dequantize operators, which torch.export preserves."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  # registers the operators

    return frameworks.torch().ops.quantized_decomposed


def _range(dtype: Any) -> tuple[int, int, Any]:
    name = str(dtype).removeprefix("torch.")
    if name not in _RANGES:
        raise NotTraceable(f"quantization to {name}")
    int_dtype, low, high = _RANGES[name]
    return low, high, getattr(frameworks.torch(), int_dtype)


@dataclass(eq=False)
class Quantized:
    """A quantized tensor; `scale` and `zero_point` are numbers, or tensors along `axis`."""

    ints: Any
    scale: Any
    zero_point: Any
    dtype: Any
    axis: int | None = None

    def dequantize(self) -> Any:
        """The dequantized tensor."""
        low, high, int_dtype = _range(self.dtype)
        if self.axis is not None:
            return _decomposed().dequantize_per_channel(self.ints, self.scale, self.zero_point, self.axis, low, high, int_dtype)
        if all(isinstance(v, (int, float)) for v in (self.scale, self.zero_point)):
            return _decomposed().dequantize_per_tensor(self.ints, self.scale, self.zero_point, low, high, int_dtype)
        return _decomposed().dequantize_per_tensor.tensor(
            self.ints, *_as_tensors(self.scale, self.zero_point), low, high, int_dtype
        )

    def requantize(self, x: Any) -> Quantized:
        """Quantize x with the scale and zero point of this tensor."""
        return quantize(x, self.scale, self.zero_point, self.dtype)


def _as_tensors(scale: Any, zero_point: Any) -> tuple[Any, Any]:
    """Scale and zero point as tensors, where the code reads them from buffers."""
    torch = frameworks.torch()
    given = ((scale, torch.float32), (zero_point, torch.int64))
    return tuple(v if isinstance(v, torch.Tensor) else torch.scalar_tensor(v, dtype=dtype) for v, dtype in given)


def quantize(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Quantized:
    """Quantize a floating point tensor."""
    low, high, int_dtype = _range(dtype)
    if all(isinstance(v, (int, float)) for v in (scale, zero_point)):
        ints = _decomposed().quantize_per_tensor(x, scale, zero_point, low, high, int_dtype)
    else:
        ints = _decomposed().quantize_per_tensor.tensor(x, *_as_tensors(scale, zero_point), low, high, int_dtype)
    return Quantized(ints, scale, zero_point, dtype)


# packed weights


@dataclass(frozen=True, eq=False)
class UnpackedWeights:
    """Unpacked weights: the names of buffers in the module that owns them, and the settings of the layer."""

    owner: Any
    names: dict[str, str]
    dtype: Any
    scale: float = 1.0
    zero_point: int = 0
    axis: int | None = None
    settings: tuple[Any, ...] = ()

    def buffer(self, what: str) -> Any:
        return self.owner._buffers[self.names[what]] if what in self.names else None

    def weight(self) -> Any:
        scale = self.scale if self.axis is None else self.buffer("scales")
        zero_point = self.zero_point if self.axis is None else self.buffer("zero_points")
        return Quantized(self.buffer("weight"), scale, zero_point, self.dtype, self.axis)


def packed_attributes(nodes: Iterable[Any]) -> Iterator[str]:
    """The names of attributes with packed weights, in any module."""
    for node in nodes:
        if node.kind() == "prim::GetAttr" and "torch.classes.quantized." in str(node.output().type()):
            yield node.s("name")


_QUANTIZED_MODULE = re.compile(r"torch\.ao\.nn\.(intrinsic\.)?quantized\.(?!reference)")


def has_quantized_modules(module: Any) -> bool:
    """Whether a module contains quantized modules of torch.ao.quantization, which torch.export cannot trace."""
    return any(_QUANTIZED_MODULE.match(type(m).__module__) for m in module.modules())


def unpack(owner: Any, name: str, packed: Any) -> UnpackedWeights | None:
    """Register packed weights as buffers of their module; None for an unsupported kind."""
    torch = frameworks.torch()
    kind = packed._type().name()
    ops = torch.ops.quantized
    settings: tuple[Any, ...] = ()
    if kind == "LinearPackedParamsBase":
        weight, bias = ops.linear_unpack(packed)
    elif kind in ("Conv2dPackedParamsBase", "Conv3dPackedParamsBase"):
        rank = kind[4:6]
        weight, bias = getattr(ops, f"conv{rank}_unpack")(packed)
        setting_names = ("stride", "padding", "output_padding", "dilation", "groups")
        settings = tuple(getattr(ops, f"conv{rank}_{word}")(packed) for word in setting_names)
    elif kind == "EmbeddingPackedParamsBase":
        weight, bias = ops.embedding_bag_unpack(packed), None
    else:
        return None
    if not weight.is_quantized or weight.dtype not in (torch.qint8, torch.quint8):
        return None
    tensors = {"weight": weight.int_repr(), "bias": bias}
    quantization: dict[str, Any] = {}
    if weight.qscheme() == torch.per_tensor_affine:
        quantization = {"scale": weight.q_scale(), "zero_point": weight.q_zero_point()}
    else:
        tensors |= {"scales": weight.q_per_channel_scales().float(), "zero_points": weight.q_per_channel_zero_points()}
        quantization = {"axis": weight.q_per_channel_axis()}
    names = {}
    for what, tensor in tensors.items():
        if tensor is not None:
            buffer_name = what if what not in owner._buffers and not hasattr(owner, what) else f"{name}_{what}"
            owner.register_buffer(buffer_name, tensor.detach(), persistent=False)
            names[what] = buffer_name
    return UnpackedWeights(owner, names, weight.dtype, settings=settings, **quantization)


# operators


def is_quantized_operator(kind: str, args: list[Any]) -> bool:
    """Whether an operator works on quantized tensors."""
    if kind.startswith("quantized::") or kind in _CONVERSIONS:
        return True
    if not args or kind in ("aten::__is__", "aten::__isnot__"):
        return False
    if kind in ("prim::dtype", "prim::is_quantized") or kind.startswith("aten::"):
        listed = kind in ("aten::cat", "aten::stack") and any(isinstance(a, Quantized) for a in args[0])
        return isinstance(args[0], Quantized) or listed
    return False


def call_operator(kind: str, args: list[Any], run: Callable[[list[Any]], Any]) -> Any:
    """The results of an operator; `run` computes it on dequantized arguments."""
    namespace, _, name = kind.partition("::")
    if namespace == "quantized":
        base = name if name in _OPERATORS else name.removesuffix("_relu").replace("_relu_dynamic", "_dynamic")
        if base not in _OPERATORS:
            raise NotTraceable(f"{kind} has no equivalent in a traced program")
        return _OPERATORS[base](*args, relu=base != name)
    if kind in _CONVERSIONS:
        return _CONVERSIONS[kind](*args)
    if name in _PROPERTIES and isinstance(args[0], Quantized):
        return _PROPERTIES[name](args[0])
    first = next(a for a in (args[0] if isinstance(args[0], list) else args) if isinstance(a, Quantized))
    result = run([_dequantize(a) for a in args])
    torch = frameworks.torch()
    if name in _FIXED_OUTPUT_PARAMETERS:
        return quantize(result, *_FIXED_OUTPUT_PARAMETERS[name], first.dtype)

    def requantized(r: Any) -> Any:
        return first.requantize(r) if isinstance(r, torch.Tensor) and r.is_floating_point() else r

    return [requantized(r) for r in result] if isinstance(result, (tuple, list)) else requantized(result)


def _dequantize(x: Any) -> Any:
    if isinstance(x, Quantized):
        return x.dequantize()
    return [_dequantize(i) for i in x] if isinstance(x, list) else x


def _quantize_result(x: Any, scale: Any, zero_point: Any, dtype: Any, relu: bool) -> Quantized:
    return quantize(x.relu() if relu else x, scale, zero_point, dtype)


def _linear(x: Any, packed: UnpackedWeights, scale: Any, zero_point: Any, *rest: Any, relu: bool, after: Any = None) -> Quantized:
    y = frameworks.torch().nn.functional.linear(x.dequantize(), packed.weight().dequantize(), packed.buffer("bias"))
    return _quantize_result(y if after is None else after(y, *rest), scale, zero_point, x.dtype, relu)


def _fake_quantize(x: Any, reduce_range: bool) -> Any:
    """A tensor quantized and dequantized with the scale and zero point of its own range (dynamic quantization)."""
    quant_max = 127 if reduce_range else 255
    torch = frameworks.torch()
    grid = _decomposed().choose_qparams.tensor(x, 0, quant_max, torch.finfo(torch.float32).eps, torch.uint8)
    ints = _decomposed().quantize_per_tensor.tensor(x, *grid, 0, quant_max, torch.uint8)
    return _decomposed().dequantize_per_tensor.tensor(ints, *grid, 0, quant_max, torch.uint8)


def _linear_dynamic(x: Any, packed: UnpackedWeights, reduce_range: bool = False, *, relu: bool) -> Any:
    y = frameworks.torch().nn.functional.linear(
        _fake_quantize(x, reduce_range), packed.weight().dequantize(), packed.buffer("bias")
    )
    return y.relu() if relu else y


def _convolve(rank: int, transposed: bool, x: Any, packed: UnpackedWeights) -> Any:
    torch = frameworks.torch()
    stride, padding, output_padding, dilation, groups = packed.settings
    weight = packed.weight()
    if rank == 1:  # packed as 2D with height 1
        axis = weight.axis
        weight = Quantized(weight.ints.squeeze(2), weight.scale, weight.zero_point, weight.dtype, axis)
        stride, padding, output_padding, dilation = ([v[-1]] for v in (stride, padding, output_padding, dilation))
    stride, padding, output_padding, dilation = (list(v) for v in (stride, padding, output_padding, dilation))
    output_padding = output_padding if transposed else [0] * rank
    return torch.ops.aten.convolution(
        x, weight.dequantize(), packed.buffer("bias"), stride, padding, dilation, transposed, output_padding, groups
    )  # fmt: skip


def _conv(rank: int, transposed: bool) -> Callable[..., Quantized]:
    def lower(x: Any, packed: UnpackedWeights, *rest: Any, relu: bool) -> Quantized:
        scale, zero_point = rest[-2:]
        return _quantize_result(_convolve(rank, transposed, x.dequantize(), packed), scale, zero_point, x.dtype, relu)

    return lower


def _conv_dynamic(rank: int, transposed: bool) -> Callable[..., Any]:
    def lower(x: Any, packed: UnpackedWeights, reduce_range: bool = False, *, relu: bool) -> Any:
        y = _convolve(rank, transposed, _fake_quantize(x, reduce_range), packed)
        return y.relu() if relu else y

    return lower


def _conv_add(x: Any, other: Any, packed: UnpackedWeights, scale: Any, zero_point: Any, *, relu: bool) -> Quantized:
    return _quantize_result(_convolve(2, False, x.dequantize(), packed) + other.dequantize(), scale, zero_point, x.dtype, relu)


def _embedding(packed: UnpackedWeights, indices: Any, pruned_weights: bool = False, *, relu: bool) -> Any:
    ints, scales, zero_points = packed.buffer("weight"), packed.buffer("scales"), packed.buffer("zero_points")
    return (ints[indices].float() - zero_points.float()[indices][..., None]) * scales[indices][..., None]


def _binary(function: Callable[..., Any]) -> Callable[..., Quantized]:
    def lower(a: Any, b: Any, *grid: Any, relu: bool) -> Quantized:
        if isinstance(a, Quantized) and isinstance(b, Quantized):
            scale, zero_point = grid
            return _quantize_result(function(a.dequantize(), b.dequantize()), scale, zero_point, a.dtype, relu)
        x, number = (a, b) if isinstance(a, Quantized) else (b, a)
        number = number.item() if isinstance(number, frameworks.torch().Tensor) else number
        if not isinstance(number, (int, float)) or not isinstance(x.scale, (int, float)):
            raise NotTraceable("a quantized tensor and a data-dependent number")
        result = _WITH_NUMBER[function](x, float(number))
        return result.requantize(result.dequantize().relu()) if relu else result

    return lower


def _add_number(x: Quantized, number: float) -> Quantized:
    """Add a number by shifting the zero point, as PyTorch does while it stays in range."""
    low, high, _ = _range(x.dtype)
    moved = x.zero_point - round(number / x.scale)
    if not low <= moved <= high:
        raise NotTraceable(f"adding {number} moves the zero point of a quantized tensor out of range")
    return Quantized(x.ints, x.scale, moved, x.dtype)


def _multiply_by_number(x: Quantized, number: float) -> Quantized:
    """Multiply the scale by a number; a negative one also mirrors the integers."""
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


_WITH_NUMBER = {_add: _add_number, _mul: _multiply_by_number}


def _cat(xs: list[Any], dim: int, scale: Any, zero_point: Any, *, relu: bool) -> Quantized:
    y = frameworks.torch().cat([x.dequantize() for x in xs], dim)
    scale = xs[0].scale if scale is None else scale
    return _quantize_result(y, scale, xs[0].zero_point if zero_point is None else zero_point, xs[0].dtype, relu)


def _output_grid(function: Callable[..., Any], after: int = 0) -> Callable[..., Quantized]:
    """An operator whose last arguments, before the `after` last ones, are the result's scale and zero point."""

    def lower(x: Any, *args: Any, relu: bool) -> Quantized:
        end = len(args) - after
        scale, zero_point = args[end - 2 : end]
        return _quantize_result(function(x.dequantize(), *args[: end - 2], *args[end:]), scale, zero_point, x.dtype, relu)

    return lower


def _input_grid(function: Callable[..., Any]) -> Callable[..., Quantized]:
    def lower(x: Quantized, *args: Any, relu: bool) -> Quantized:
        return x.requantize(function(x.dequantize(), *args))

    return lower


def _functional(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(frameworks.torch().nn.functional, name)(*args)


def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    return frameworks.torch().nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


def _instance_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    return frameworks.torch().nn.functional.instance_norm(x, None, None, weight, bias, True, 0.0, eps)


def _elu(x: Any, *quantization: Any) -> Any:
    return frameworks.torch().ops.aten.elu(x, *quantization)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "linear": _linear, "linear_dynamic": _linear_dynamic,
    "linear_leaky_relu": functools.partial(_linear, after=_functional("leaky_relu")),
    "linear_tanh": functools.partial(_linear, after=lambda y: y.tanh()),
    **{f"conv{r}d": _conv(r, False) for r in (1, 2, 3)}, **{f"conv_transpose{r}d": _conv(r, True) for r in (1, 2, 3)},
    **{f"conv{r}d_dynamic": _conv_dynamic(r, False) for r in (1, 2, 3)},
    **{f"conv_transpose{r}d_dynamic": _conv_dynamic(r, True) for r in (1, 2, 3)}, "conv2d_add": _conv_add,
    "embedding_byte": _embedding, "add": _binary(_add), "add_scalar": _binary(_add), "mul": _binary(_mul),
    "mul_scalar": _binary(_mul), "matmul": _binary(_matmul), "cat": _cat, "hardswish": _output_grid(_functional("hardswish")),
    "sigmoid": _output_grid(lambda x: x.sigmoid()), "prelu": _output_grid(_functional("prelu")),
    "leaky_relu": _output_grid(lambda x, slope, inplace: _functional("leaky_relu")(x, slope)),
    "softmax": _output_grid(lambda x, dim: x.softmax(dim)),
    "celu": _output_grid(_functional("celu"), 1), "elu": _output_grid(_elu, 3),
    "dropout": _output_grid(lambda x, p, training: x, 2),
    **dict.fromkeys(("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d"), _output_grid(_batch_norm)),
    "layer_norm": _output_grid(_functional("layer_norm")), "group_norm": _output_grid(_functional("group_norm")),
    "instance_norm": _output_grid(_instance_norm), "relu6": _input_grid(lambda x, *inplace: x.clamp(0, 6)),
    "max_pool1d": _input_grid(_functional("max_pool1d")), "max_pool2d": _input_grid(_functional("max_pool2d")),
    "clamp": _input_grid(lambda x, low=None, high=None: x.clamp(low, high)), "threshold": _input_grid(_functional("threshold")),
}  # fmt: skip


def _from_floats(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Quantized:
    from onnxbridge.frontends.pytorch.torchscript.python_values import dtype as dtype_of

    return quantize(x, scale, zero_point, dtype_of(dtype))


# conversions between quantized and floating point tensors
_CONVERSIONS: dict[str, Callable[..., Any]] = {"aten::quantize_per_tensor": _from_floats, "aten::dequantize": _dequantize}


def _dtype_number(x: Quantized) -> int:
    from onnxbridge.frontends.pytorch.torchscript.python_values import dtype_number

    return dtype_number(x.dtype)


# properties of a quantized tensor
_PROPERTIES: dict[str, Callable[[Quantized], Any]] = {
    "q_scale": lambda x: x.scale, "q_zero_point": lambda x: x.zero_point, "int_repr": lambda x: x.ints,
    "is_quantized": lambda x: True, "dtype": _dtype_number, "detach": lambda x: x, "clone": lambda x: x,
    "contiguous": lambda x: replace(x, ints=x.ints.contiguous()),
}  # fmt: skip

# operators with a fixed output scale and zero point
_FIXED_OUTPUT_PARAMETERS = {"sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128), "softmax": (1 / 256, 0)}
