"""TorchScript operators on Python values (numbers, lists, dictionaries, strings), and ATen operators called by schema."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.fx import transformer_layers

# the dtypes by ScalarType number, which TorchScript uses for dtypes
_DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool",
    "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip


@dataclass(eq=False)
class Instance:
    """An object of a TorchScript class."""

    fields: dict[str, Any] = field(default_factory=dict)


def dtype(number: Any) -> Any:
    """The torch.dtype with a ScalarType number; dtypes and None pass through."""
    return getattr(frameworks.torch(), _DTYPES[number]) if isinstance(number, int) else number


def dtype_number(value: Any) -> int:
    return _DTYPES.index(str(value).removeprefix("torch."))


def convert_to_declared(value: Any, declared: Any) -> Any:
    """Convert an argument to its declared type: a one-element tensor to a number where the script declares a number."""
    kind = declared.kind()
    if isinstance(value, frameworks.torch().Tensor) and kind in ("IntType", "FloatType", "BoolType", "NumberType"):
        return value.item()
    return value


def _is_tensor(x: Any) -> bool:
    return isinstance(x, frameworks.torch().Tensor)


def truth_value(x: Any) -> Any:
    """A condition as a Python bool, or as a scalar boolean tensor if it depends on data."""
    torch = frameworks.torch()
    if _is_tensor(x):
        return x.reshape(()) if x.dtype == torch.bool else x.reshape(()).ne(0)
    return x if isinstance(x, torch.SymBool) else x != 0 if isinstance(x, (torch.SymInt, torch.SymFloat)) else bool(x)


def _not(x: Any) -> Any:
    torch = frameworks.torch()
    x = truth_value(x)
    return x.logical_not() if _is_tensor(x) else torch.sym_not(x) if isinstance(x, torch.SymBool) else not x


def _to_int(x: Any) -> Any:
    torch = frameworks.torch()
    return x.item() if _is_tensor(x) and not x.is_floating_point() else torch.sym_int(x.item() if _is_tensor(x) else x)


def _to_number(x: Any) -> Any:
    return x.item() if _is_tensor(x) else x


def _to_float(x: Any) -> Any:
    torch = frameworks.torch()
    return torch.sym_float(x.item() if _is_tensor(x) else x) if not isinstance(x, str) else float(x)


def _round(x: Any, digits: int | None = None) -> Any:
    return round(x) if digits is None else round(x, digits)


def _set_item(items: list[Any], index: int, value: Any) -> list[Any]:
    items[index] = value
    return items


def _in_place(method: Callable[..., Any]) -> Callable[..., Any]:
    """An in-place list method that returns the list."""

    def run(items: Any, *args: Any) -> Any:
        method(items, *args)
        return items

    return run


def _add(a: Any, b: Any) -> Any:
    return [*a, *b] if isinstance(a, list) else a + b


def _slice(items: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[slice(start, end, step)]


def _range_length(lo: Any, hi: Any, step: Any) -> Any:
    if all(isinstance(v, int) for v in (lo, hi, step)):
        return len(range(lo, hi, step))
    if step == 1:
        return frameworks.torch().sym_max(hi - lo, 0)
    return frameworks.torch().sym_max((hi - lo + step - (1 if step > 0 else -1)) // step, 0)


def _size(x: Any, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _extreme(python: Callable[..., Any], symbolic: str) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        torch = frameworks.torch()
        values = args[0] if len(args) == 1 else args
        if any(isinstance(v, (torch.SymInt, torch.SymFloat)) for v in values):
            return functools.reduce(getattr(torch, symbolic), values)
        return python(values)

    return run


def _length(x: Any) -> Any:
    return x.shape[0] if _is_tensor(x) else len(x)


def _as_tensor(x: Any) -> Any:
    """A number as a tensor with the dtype that TorchScript gives it."""
    torch = frameworks.torch()
    real = isinstance(x, (float, torch.SymFloat))
    return torch.scalar_tensor(x, dtype=torch.bool if isinstance(x, bool) else torch.float32 if real else torch.int64)


def _make_tensor(data: Any, dtype_: Any = None, *device: Any) -> Any:
    torch = frameworks.torch()
    if _is_tensor(data):
        return data if dtype_ is None else data.to(dtype(dtype_))
    return torch.tensor(data, dtype=dtype(dtype_))


def _format(text: str, *args: Any) -> str:
    return text.format(*args)


def _pop(items: Any, *key: Any) -> Any:
    return items.pop(*key)


# operators on Python values by name without overload, used where no argument is a tensor
PYTHON_OPERATORS: dict[str, Callable[..., Any]] = {
    "aten::add": _add, "aten::sub": operator.sub, "aten::mul": operator.mul, "aten::div": operator.truediv,
    "aten::truediv": operator.truediv, "aten::floordiv": operator.floordiv, "aten::remainder": operator.mod,
    "aten::fmod": math.fmod,
    "aten::neg": operator.neg, "aten::pow": operator.pow, "aten::abs": abs, "prim::abs": abs, "aten::eq": operator.eq,
    "aten::ne": operator.ne, "aten::lt": operator.lt, "aten::le": operator.le, "aten::gt": operator.gt, "aten::ge": operator.ge,
    "aten::__and__": operator.and_, "aten::__or__": operator.or_, "aten::__xor__": operator.xor,
    "aten::__lshift__": operator.lshift, "aten::__rshift__": operator.rshift, "aten::floor": math.floor,
    "aten::ceil": math.ceil, "aten::round": _round, "aten::sqrt": math.sqrt, "aten::exp": math.exp, "aten::log": math.log,
    "aten::sin": math.sin, "aten::cos": math.cos, "aten::tanh": math.tanh, "aten::atan2": math.atan2, "aten::isnan": math.isnan,
    "aten::isinf": math.isinf, "aten::__getitem__": operator.getitem, "aten::__contains__": operator.contains,
    "aten::append": _in_place(list.append), "aten::insert": _in_place(list.insert), "aten::extend": _in_place(list.extend),
    "aten::clear": _in_place(lambda items: items.clear()), "aten::reverse": _in_place(list.reverse),
    "aten::sort": _in_place(list.sort),
    "aten::pop": _pop, "aten::_set_item": _set_item, "aten::copy": lambda x: x.copy(), "aten::list": list, "aten::slice": _slice,
    "aten::keys": lambda d: list(d.keys()), "aten::values": lambda d: list(d.values()), "aten::items": lambda d: list(d.items()),
    "aten::get": lambda d, *a: d.get(*a), "aten::Delete": _in_place(operator.delitem), "aten::index": lambda x, v: x.index(v),
    "aten::count": lambda x, v: x.count(v), "aten::lower": str.lower, "aten::upper": str.upper, "aten::ord": ord,
    "aten::chr": chr,
    "aten::startswith": str.startswith, "aten::endswith": str.endswith, "aten::split": str.split, "aten::replace": str.replace,
    "aten::join": str.join, "aten::str": str, "aten::strip": str.strip,
    "prim::max": _extreme(max, "sym_max"), "prim::min": _extreme(min, "sym_min"), "aten::sum": sum,
}  # fmt: skip

# operators by name, for any arguments
OPERATORS: dict[str, Callable[..., Any]] = {
    "aten::Bool": truth_value, "aten::Int": _to_int, "aten::Float": _to_float, "aten::__not__": _not, "aten::len": _length,
    "aten::IntImplicit": _to_int, "aten::FloatImplicit": _to_float,
    "aten::ScalarImplicit": _to_number, "prim::ImplicitTensorToNum": _to_number,
    "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not, "aten::size": _size, "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(), "aten::format": _format, "aten::warn": lambda *a: None, "prim::Print": lambda *a: None,
    "aten::__range_length": _range_length, "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::list_with_default": lambda values, default: [d if v is None else v for v, d in zip(values, default, strict=True)],
    "aten::is_floating_point": lambda x: x.is_floating_point(), "aten::is_complex": lambda x: x.is_complex(),
    "aten::is_scripting": lambda: True, "aten::get_device": lambda x: -1,
    "aten::device": lambda *a: "cpu", "prim::device": lambda x: "cpu", "prim::type": lambda device: "cpu",
    "prim::dtype": lambda x: dtype_number(x.dtype),
    "prim::layout": lambda x: 0, "prim::is_cuda": lambda x: False, "prim::is_cpu": lambda x: True,
    "prim::grad": lambda x: None, "prim::NumToTensor": _as_tensor,
    "aten::tensor": _make_tensor, "aten::as_tensor": _make_tensor,
    "prim::ListConstruct": lambda *a: list(a), "prim::TupleConstruct": lambda *a: tuple(a),
    "prim::DictConstruct": lambda *a: dict(zip(a[::2], a[1::2], strict=True)), "prim::TupleIndex": lambda t, i: t[i],
    "prim::Uninitialized": lambda: None, "aten::dict": lambda *a: dict(*a),
    "aten::grad_mode": lambda *a: None, "aten::is_grad_enabled": lambda: False, "aten::set_grad_enabled": lambda *a: None,
    "aten::get_autocast_enabled": lambda *a: False, "aten::is_autocast_enabled": lambda *a: False,
    "prim::rangelist": lambda n: list(range(n)), "aten::hash": hash,
    "aten::element_size": lambda x: x.element_size(), "aten::manual_seed": lambda *a: None,
    # before torch.export traces them, so that it records their linear layers and products
    "aten::_native_multi_head_attention": transformer_layers.multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": transformer_layers.encoder_layer,
}  # fmt: skip
_IDENTITY = ("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional", "prim::annotate", "prim::data",
         "aten::cpu", "aten::cuda")  # fmt: skip
_ALWAYS_FALSE = ("is_quantized", "is_sparse", "is_mkldnn", "is_meta", "is_mps", "is_xpu", "is_nested", "requires_grad")
OPERATORS |= dict.fromkeys(_IDENTITY, lambda x: x) | {f"prim::{name}": lambda x: False for name in _ALWAYS_FALSE}


def call_aten(schema: str, args: list[Any]) -> Any:
    """Call an ATen operator, given by the schema in the graph, on values of the script."""
    name = schema.partition("(")[0]
    if name == "aten::_convolution":  # torch.jit.trace records a convolution with extra arguments for the choice of algorithm
        name, args = "aten::convolution", args[:9]
    target = _overload(name)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument, declared in zip(args, target._schema.arguments, strict=False):
        value = _convert_argument(argument, str(declared.real_type))
        if not declared.kwarg_only:
            positional.append(value)
        elif not (declared.has_default_value() and value is None):
            named[declared.name] = value
    return target(*positional, **named)


def _convert_argument(value: Any, kind: str) -> Any:
    if "ScalarType" in kind:
        return dtype(value)
    if "Device" in kind:
        return None if value is None else "cpu"
    if "Layout" in kind:
        return None
    if "MemoryFormat" in kind:
        torch = frameworks.torch()
        formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
        return formats[value] if isinstance(value, int) else value
    return value


@functools.cache
def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(frameworks.torch().ops, namespace), base)
    return getattr(packet, overload or "default")


def to_dtype(schema: str, args: list[Any]) -> Any:
    """`aten::to` of any overload: a dtype conversion, since devices are ignored."""
    arguments = {a.name: v for a, v in zip(_overload(schema.partition("(")[0])._schema.arguments, args, strict=False)}
    target = arguments["other"].dtype if arguments.get("other") is not None else dtype(arguments.get("dtype"))
    return args[0] if target is None else args[0].to(target)
