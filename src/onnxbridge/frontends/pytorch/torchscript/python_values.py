"""What TorchScript computes beside tensors: numbers, lists, dictionaries, texts, and ATen operators by their schemas."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onnxbridge import frameworks

# PyTorch's ScalarType numbers in order, as TorchScript writes dtypes
_DTYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64", "complex128", "bool",
    "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip


@dataclass(eq=False)
class Instance:
    """An object of a TorchScript class."""

    fields: dict[str, Any] = field(default_factory=dict)


def dtype(number: Any) -> Any:
    """The torch.dtype behind a ScalarType's number; dtypes and None pass."""
    return getattr(frameworks.torch(), _DTYPES[number]) if isinstance(number, int) else number


def dtype_number(value: Any) -> int:
    return _DTYPES.index(str(value).removeprefix("torch."))


def as_declared(value: Any, declared: Any) -> Any:
    """An argument as the script declares it: a tensor of one element where it takes a number."""
    kind = declared.kind()
    if isinstance(value, frameworks.torch().Tensor) and kind in ("IntType", "FloatType", "BoolType", "NumberType"):
        return value.item()
    return value


def _tensor(x: Any) -> bool:
    return isinstance(x, frameworks.torch().Tensor)


def truth(x: Any) -> Any:
    """A condition: Python's, or a scalar boolean tensor where it depends on data."""
    torch = frameworks.torch()
    if _tensor(x):
        return x.reshape(()) if x.dtype == torch.bool else x.reshape(()).ne(0)
    return x if isinstance(x, torch.SymBool) else x != 0 if isinstance(x, (torch.SymInt, torch.SymFloat)) else bool(x)


def _negated(x: Any) -> Any:
    torch = frameworks.torch()
    x = truth(x)
    return x.logical_not() if _tensor(x) else torch.sym_not(x) if isinstance(x, torch.SymBool) else not x


def _whole(x: Any) -> Any:
    torch = frameworks.torch()
    return x.item() if _tensor(x) and not x.is_floating_point() else torch.sym_int(x.item() if _tensor(x) else x)


def _number(x: Any) -> Any:
    torch = frameworks.torch()
    return torch.sym_float(x.item() if _tensor(x) else x) if not isinstance(x, str) else float(x)


def _rounded(x: Any, digits: int | None = None) -> Any:
    return round(x) if digits is None else round(x, digits)


def _put(items: list[Any], index: int, value: Any) -> list[Any]:
    items[index] = value
    return items


def _changed(change: Callable[..., Any]) -> Callable[..., Any]:
    """A list method that gives the list back."""

    def run(items: Any, *args: Any) -> Any:
        change(items, *args)
        return items

    return run


def _joined(a: Any, b: Any) -> Any:
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
    return x.shape[0] if _tensor(x) else len(x)


def _as_tensor(x: Any) -> Any:
    """A number as a tensor, in the dtype that TorchScript gives it."""
    torch = frameworks.torch()
    real = isinstance(x, (float, torch.SymFloat))
    return torch.scalar_tensor(x, dtype=torch.bool if isinstance(x, bool) else torch.float32 if real else torch.int64)


def _made_tensor(data: Any, dtype_: Any = None, *device: Any) -> Any:
    torch = frameworks.torch()
    if _tensor(data):
        return data if dtype_ is None else data.to(dtype(dtype_))
    return torch.tensor(data, dtype=dtype(dtype_))


def _format(text: str, *args: Any) -> str:
    return text.format(*args)


def _pop(items: Any, *key: Any) -> Any:
    return items.pop(*key)


# by name without overload; taken where no argument is a tensor
PLAIN: dict[str, Callable[..., Any]] = {
    "aten::add": _joined, "aten::sub": operator.sub, "aten::mul": operator.mul, "aten::div": operator.truediv,
    "aten::truediv": operator.truediv, "aten::floordiv": operator.floordiv, "aten::remainder": operator.mod,
    "aten::fmod": math.fmod,
    "aten::neg": operator.neg, "aten::pow": operator.pow, "aten::abs": abs, "prim::abs": abs, "aten::eq": operator.eq,
    "aten::ne": operator.ne, "aten::lt": operator.lt, "aten::le": operator.le, "aten::gt": operator.gt, "aten::ge": operator.ge,
    "aten::__and__": operator.and_, "aten::__or__": operator.or_, "aten::__xor__": operator.xor,
    "aten::__lshift__": operator.lshift, "aten::__rshift__": operator.rshift, "aten::floor": math.floor,
    "aten::ceil": math.ceil, "aten::round": _rounded, "aten::sqrt": math.sqrt, "aten::exp": math.exp, "aten::log": math.log,
    "aten::sin": math.sin, "aten::cos": math.cos, "aten::tanh": math.tanh, "aten::atan2": math.atan2, "aten::isnan": math.isnan,
    "aten::isinf": math.isinf, "aten::__getitem__": operator.getitem, "aten::__contains__": operator.contains,
    "aten::append": _changed(list.append), "aten::insert": _changed(list.insert), "aten::extend": _changed(list.extend),
    "aten::clear": _changed(lambda items: items.clear()), "aten::reverse": _changed(list.reverse),
    "aten::sort": _changed(list.sort),
    "aten::pop": _pop, "aten::_set_item": _put, "aten::copy": lambda x: x.copy(), "aten::list": list, "aten::slice": _slice,
    "aten::keys": lambda d: list(d.keys()), "aten::values": lambda d: list(d.values()), "aten::items": lambda d: list(d.items()),
    "aten::get": lambda d, *a: d.get(*a), "aten::Delete": _changed(operator.delitem), "aten::index": lambda x, v: x.index(v),
    "aten::count": lambda x, v: x.count(v), "aten::lower": str.lower, "aten::upper": str.upper, "aten::ord": ord,
    "aten::chr": chr,
    "aten::startswith": str.startswith, "aten::endswith": str.endswith, "aten::split": str.split, "aten::replace": str.replace,
    "aten::join": str.join, "aten::str": str, "aten::strip": str.strip,
    "prim::max": _extreme(max, "sym_max"), "prim::min": _extreme(min, "sym_min"), "aten::sum": sum,
}  # fmt: skip

# by name, whatever the arguments are
ANY: dict[str, Callable[..., Any]] = {
    "aten::Bool": truth, "aten::Int": _whole, "aten::Float": _number, "aten::__not__": _negated, "aten::len": _length,
    "aten::IntImplicit": _whole, "aten::FloatImplicit": _number, "aten::ScalarImplicit": lambda x: x.item() if _tensor(x) else x,
    "aten::__is__": operator.is_, "aten::__isnot__": operator.is_not, "aten::size": _size, "aten::dim": lambda x: x.dim(),
    "aten::numel": lambda x: x.numel(), "aten::format": _format, "aten::warn": lambda *a: None, "prim::Print": lambda *a: None,
    "aten::__range_length": _range_length, "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::list_with_default": lambda given, default: [d if g is None else g for g, d in zip(given, default, strict=True)],
    "aten::is_floating_point": lambda x: x.is_floating_point(), "aten::is_complex": lambda x: x.is_complex(),
    "aten::is_scripting": lambda: True, "aten::get_device": lambda x: -1,
    "aten::device": lambda *a: "cpu", "prim::device": lambda x: "cpu", "prim::dtype": lambda x: dtype_number(x.dtype),
    "prim::layout": lambda x: 0, "prim::is_cuda": lambda x: False, "prim::is_cpu": lambda x: True,
    "prim::grad": lambda x: None, "prim::NumToTensor": _as_tensor,
    "aten::tensor": _made_tensor, "aten::as_tensor": _made_tensor,
    "prim::ListConstruct": lambda *a: list(a), "prim::TupleConstruct": lambda *a: tuple(a),
    "prim::DictConstruct": lambda *a: dict(zip(a[::2], a[1::2], strict=True)), "prim::TupleIndex": lambda t, i: t[i],
    "prim::Uninitialized": lambda: None, "aten::dict": lambda *a: dict(*a), "prim::ImplicitTensorToNum": lambda x: x.item(),
    "aten::grad_mode": lambda *a: None, "aten::is_grad_enabled": lambda: False, "aten::set_grad_enabled": lambda *a: None,
    "aten::get_autocast_enabled": lambda *a: False, "aten::is_autocast_enabled": lambda *a: False,
    "prim::rangelist": lambda n: list(range(n)), "aten::hash": hash,
    "aten::element_size": lambda x: x.element_size(), "aten::manual_seed": lambda *a: None,
}  # fmt: skip
_SAME = ("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional", "prim::annotate", "prim::data",
         "aten::cpu", "aten::cuda")  # fmt: skip
_NEVER = ("is_quantized", "is_sparse", "is_mkldnn", "is_meta", "is_mps", "is_xpu", "is_nested", "requires_grad")
ANY |= dict.fromkeys(_SAME, lambda x: x) | {f"prim::{name}": lambda x: False for name in _NEVER}


def aten(schema: str, args: list[Any]) -> Any:
    """Call an ATen operator, told by its schema as the graph has it, on values of the script."""
    name = schema.partition("(")[0]
    if name == "aten::_convolution":  # as torch.jit.trace writes a convolution: with the choice of an algorithm behind it
        name, args = "aten::convolution", args[:9]
    target = _overload(name)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for given, declared in zip(args, target._schema.arguments, strict=False):
        value = _typed(given, str(declared.real_type))
        if not declared.kwarg_only:
            positional.append(value)
        elif not (declared.has_default_value() and value is None):
            named[declared.name] = value
    return target(*positional, **named)


def _typed(value: Any, kind: str) -> Any:
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


def moved(schema: str, args: list[Any]) -> Any:
    """`aten::to` of any overload: a change of dtype, since all devices are one here."""
    given = {a.name: v for a, v in zip(_overload(schema.partition("(")[0])._schema.arguments, args, strict=False)}
    wanted = given["other"].dtype if given.get("other") is not None else dtype(given.get("dtype"))
    return args[0] if wanted is None else args[0].to(wanted)
