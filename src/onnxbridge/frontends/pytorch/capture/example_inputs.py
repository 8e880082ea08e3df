"""Example inputs and dynamic dimensions as torch.export takes them, from what users give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxbridge import frameworks
from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.capture import io_names, pytree_containers


@dataclass(frozen=True)
class Example:
    """What torch.export is called with; `labels` names the inputs, `named` their dimensions by the input's name and axis.

    `doubt` says what was taken for granted about the inputs, for where the code does not take them.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: Any = None
    named: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    doubt: str = ""

    def inputs(self, program: Any) -> dict[str, str]:
        """The inputs' names by those of the program's placeholders."""
        return dict(zip(program.graph_signature.user_inputs, self.labels, strict=False))

    def symbols(self, program: Any) -> dict[Any, str]:
        """The user's names for the program's symbols.

        Raises:
            UsageError: if a dimension that should be dynamic came out fixed.
        """
        torch = frameworks.torch()
        found: dict[Any, str] = {}
        labels = self.inputs(program)
        placeholders = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in labels]
        values: dict[str, Any] = {labels[n.name]: n.meta.get("val") for n in placeholders}
        for name, axes in self.named.items():
            value: Any = values.get(name)
            for axis, label in axes.items() if isinstance(value, torch.Tensor) else ():
                size = value.shape[axis]
                if isinstance(size, int) or size.node.expr.is_Integer:
                    raise UsageError(
                        f"{label!r} (axis {axis} of {name}) cannot vary: the model's code fixes it to {size}; "
                        "make the code independent of it, or leave it out of the dynamic dimensions"
                    )
                if size.node.expr.is_Symbol:
                    found.setdefault(size.node.expr, label)
        return found


def example(module: Any, inputs: Any, dynamic: Any) -> Example:
    """The inputs bound to the parameters of the module's forward, with sizes at which nothing is fixed by accident."""
    pytree_containers.register()
    signature = inspect.signature(module.forward)
    args, kwargs = _apart(module, *_bound(signature, inputs))
    doubt = _doubt(signature, inputs)
    for value in (*args, *kwargs.values()):
        pytree_containers.check(value)
        pytree_containers.adopt(value)
    names = _leaf_names(signature, args, kwargs)
    io_names.remember(module, names, args, kwargs)
    own = _named_axes(dynamic)
    for name, axes in _spec_axes(inputs).items():
        own = {**(own or {}), name: {**axes, **(own or {}).get(name, {})}}
    if own is None:
        return Example(args, kwargs, dynamic, _torch_names(signature, dynamic, names), tuple(names), doubt)
    unknown = set(own) - set(names)
    if unknown:
        raise UsageError(f"there is no input {', '.join(sorted(unknown))}; the inputs are {', '.join(names)}{doubt}")
    return replace(_with_dynamic(signature, args, kwargs, names, {n: a for n, a in own.items() if a}), doubt=doubt)


def _bound(signature: inspect.Signature, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch = frameworks.torch()
    if inputs is None:
        return (), {}
    _refuse_bare_sizes(signature, inputs)
    if isinstance(inputs, Mapping):
        given = {name: _tensors(v) for name, v in inputs.items()}
        takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        strange = [name for name in given if name not in signature.parameters]
        if strange and not takes_any:
            if _in_one(signature, given):
                return (given,), {}
            takes = ", ".join(str(p).partition(":")[0] for p in signature.parameters.values()) or "nothing"
            way = ": give a tuple" if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()) else ""
            raise UsageError(f"forward has no parameter {', '.join(strange)}; it takes {takes}{way}")
        return _by_signature(signature, (), given)
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        inputs = (inputs,)
    return _by_signature(signature, tuple(_tensors(v) for v in inputs), {})


def _refuse_bare_sizes(signature: inspect.Signature, inputs: Any) -> None:
    """Refuse sizes where tensors, or sizes with a type, are wanted: [(2, 64)] or (2, 64).

    Raises:
        UsageError: with both forms written out.
    """
    values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    if not isinstance(values, (list, tuple)) or not values:
        return
    sizes = [(v,) if _is_size(v) else v for v in values]
    if not all(isinstance(v, (list, tuple)) and v and all(map(_is_size, v)) for v in sizes):
        return
    shape = tuple(values) if all(map(_is_size, values)) and not isinstance(inputs, Mapping) else tuple(sizes[0])
    name = next(iter(inputs), "x") if isinstance(inputs, Mapping) else next(iter(signature.parameters), "x")
    tensor = f"torch.randn({', '.join(map(str, shape))})"
    raise UsageError(
        f"inputs={inputs!r} has sizes where tensors are wanted; give inputs=({tensor},), or sizes with a type, "
        f'inputs="{name}:float32[{",".join(map(str, shape))}]"'
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _in_one(signature: inspect.Signature, inputs: Mapping[str, Any]) -> bool:
    """Whether inputs of other names than forward's only parameter may be a dictionary for that one."""
    only = next(iter(signature.parameters.values()), None)
    if only is None or len(signature.parameters) > 1 or only.name in inputs:
        return False
    if only.kind in (only.VAR_POSITIONAL, only.VAR_KEYWORD):
        return False
    return only.annotation not in (frameworks.torch().Tensor, "torch.Tensor", "Tensor")


def _doubt(signature: inspect.Signature, inputs: Any) -> str:
    """What to say of names that are no parameters, where a dictionary was made of them."""
    if not isinstance(inputs, Mapping) or not _in_one(signature, inputs):
        return ""
    [only] = signature.parameters
    return (
        f" (forward has no parameter {', '.join(map(repr, inputs))}, so its only one, {only!r}, was given a dictionary of these; "
        f"call the input {only!r} if it is to be a tensor)"
    )


def _apart(module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The inputs with a copy of each tensor that was given before or is the module's: torch.export takes the two for one."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    met = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in met:
            met.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    kept: tuple[Any, Any] = pytree.tree_map(own, (args, kwargs))
    return kept


def _by_signature(signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"the inputs do not fit forward{signature}: {error}") from error
    return bound.args, bound.kwargs


def _is_spec(value: Any) -> bool:
    """(shape, dtype), the shape being a sequence of numbers, names and None."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str) and isinstance(value[0], (tuple, list))


def _tensors(value: Any) -> Any:
    """An input with tensors in place of arrays, and a tensor in place of a spec."""
    torch = frameworks.torch()
    if _is_spec(value):
        shape, dtype = value
        sizes = [s if isinstance(s, int) else 2 if axis == 0 else _VARYING for axis, s in enumerate(shape)]
        return torch.zeros(sizes, dtype=dtypes.from_name(dtype))
    if isinstance(value, (np.ndarray, np.generic)):
        return dtypes.tensor(value)
    if isinstance(value, Mapping):
        return {k: _tensors(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_tensors(v) for v in value)
    return value


# The size that stands for a named dimension while tracing: even and large enough for the strides of common networks.
_VARYING = 64


def _spec_axes(inputs: Any) -> dict[str, dict[int, str]]:
    found = {}
    for name, value in inputs.items() if isinstance(inputs, Mapping) else ():
        if _is_spec(value):
            axes = {i: s or f"{name}_{i}" for i, s in enumerate(value[0]) if not isinstance(s, int)}
            if axes:
                found[name] = axes
    return found


def _leaf_names(signature: inspect.Signature, args: Any, kwargs: Any) -> list[str]:
    """The names that torch.export gives to the inputs, in order: parameter names, with keys and indices of what is nested."""
    from torch.utils import _pytree as pytree

    bound = signature.bind(*args, **kwargs).arguments
    names = []
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            keys = io_names.keys_of(path)
            names.append(io_names.label(keys if kind is inspect.Parameter.VAR_KEYWORD else [name, *keys]))
    return names


def named_sizes(inputs: Any, dynamic: Any) -> dict[str, dict[int, str]] | None:
    """The names of sizes in descriptions of inputs and in `dynamic`; None where that is of PyTorch's own form."""
    own = _named_axes(dynamic)
    if own is None and dynamic:
        return None
    written = {name: value[0] for name, value in inputs.items() if _is_spec(value)} if isinstance(inputs, Mapping) else {}
    found = {name: {i: s for i, s in enumerate(shape) if isinstance(s, str)} for name, shape in written.items()}
    return {name: {**found.get(name, {}), **(own or {}).get(name, {})} for name in found | (own or {})}


def _named_axes(dynamic: Any) -> dict[str, dict[int, str]] | None:
    """`dynamic` where it is of our own form, {input: {axis: name}}; None where it is torch's, which passes through."""
    if not dynamic:
        return {} if dynamic is not None and not isinstance(dynamic, (tuple, list)) else None
    if not isinstance(dynamic, Mapping):
        return None
    given = {str(name): {} if axes is None else axes for name, axes in dynamic.items()}
    if not all(isinstance(axes, Mapping) for axes in given.values()):
        return None
    if not all(isinstance(k, int) and isinstance(v, str) for axes in given.values() for k, v in axes.items()):
        return None
    return {name: dict(axes) for name, axes in given.items()}


def _torch_names(signature: inspect.Signature, dynamic: Any, names: list[str]) -> dict[str, dict[int, str]]:
    """The names of the `Dim`s in torch's own form, for inputs that are plain tensors."""
    if not dynamic:
        return {}
    entries = dynamic.items() if isinstance(dynamic, Mapping) else zip(signature.parameters, dynamic, strict=False)
    found: dict[str, dict[int, str]] = {}
    for name, spec in entries:
        axes = spec.items() if isinstance(spec, Mapping) else enumerate(spec) if isinstance(spec, (tuple, list)) else ()
        for axis, dim in axes:
            label = getattr(dim, "__name__", None)
            if name in names and isinstance(axis, int) and label and label.isidentifier():
                found.setdefault(name, {})[axis] = label
    return found


_SUM = re.compile(r"([A-Za-z_]\w*) \+ ([0-9]{1,9})")  # a size by another: "past + 1"


def _with_dynamic(
    signature: inspect.Signature, args: Any, kwargs: Any, names: list[str], named: dict[str, dict[int, str]]
) -> Example:
    """Mark the named axes for torch.export, and give those of size 0 or 1, which it would fix, a size of 2."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not named:
        return Example(args, kwargs, labels=tuple(names))
    loose = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    if extra := [k for p in loose for k in signature.bind(*args, **kwargs).arguments.get(p, ())]:
        raise UsageError(
            f"torch.export lets no size vary where inputs come as **{loose[0]}: name {', '.join(extra)} in forward's signature"
        )
    sizes: dict[str, int] = {}
    for name, leaf in zip(names, leaves, strict=True):
        for axis, label in named.get(name, {}).items():
            if not isinstance(leaf, torch.Tensor) or not -leaf.ndim <= axis < leaf.ndim:
                raise UsageError(f"{name} has no axis {axis} that {label!r} could name")
            sizes[label] = max(sizes.get(label, 2), leaf.shape[axis])
    for label in sizes:
        found = _SUM.fullmatch(label)
        if found is not None:
            sizes[label] = sizes.get(found[1], 2) + int(found[2])
    shapes: list[Any] = []
    normal: dict[str, dict[int, str]] = {}
    for i, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        axes = {axis % leaf.ndim: label for axis, label in named.get(name, {}).items()}
        for axis, label in axes.items():
            if leaf.shape[axis] != sizes[label]:
                picked = torch.zeros(sizes[label], dtype=torch.int64)
                leaf = leaf.index_select(axis, picked) if leaf.shape[axis] else leaf.new_zeros(_resized(leaf, axis, sizes[label]))
        leaves[i] = leaf
        if axes:
            normal[name] = axes
        shapes.append(dict.fromkeys(axes, torch.export.Dim.AUTO) if axes else None)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    shape_args, shape_kwargs = _in_structure(spec, iter(shapes))
    dynamic = tuple(signature.bind(*shape_args, **shape_kwargs).arguments.values())  # one entry for all of *args or **kwargs
    return Example(args, kwargs, dynamic, normal, tuple(names))


def _in_structure(spec: Any, leaves: Iterator[Any]) -> Any:
    """Leaves in the structure that torch.export wants of dynamic shapes: the inputs', lists for objects that hold tensors."""
    from torch.utils import _pytree as pytree

    if spec.is_leaf():
        return next(leaves)
    children = [_in_structure(child, leaves) for child in spec.children()]
    if spec.type not in pytree.BUILTIN_TYPES:
        return children
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def _resized(leaf: Any, axis: int, size: int) -> list[int]:
    return [size if i == axis else s for i, s in enumerate(leaf.shape)]
