"""Example inputs and dynamic dimensions in the form of torch.export, from what users pass."""

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
from onnxbridge.frontends.pytorch.capture.shape_guards import where_fixed


@dataclass(frozen=True)
class Example:
    """The arguments of torch.export.

    `labels` are the names of the inputs; `named` maps an input's name and axis to the name of a dynamic dimension.
    `assumption` describes how the inputs were interpreted, for the error message if the trace fails.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic: Any = None
    named: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    assumption: str = ""

    def inputs(self, program: Any) -> dict[str, str]:
        """Map the names of the program's placeholders to the names of the inputs."""
        return dict(zip(program.graph_signature.user_inputs, self.labels, strict=False))

    def symbols(self, program: Any) -> dict[Any, str]:
        """Map the program's symbols to the user's names.

        Raises:
            UsageError: if a dimension that should be dynamic is static in the program.
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
                    where = where_fixed(program, name, axis)
                    raise UsageError(
                        f"{label!r} (axis {axis} of {name}) cannot vary: the model's code specializes it to {size}"
                        f"{where and f' (at {where})'}; "
                        "make the code independent of it, or leave it out of the dynamic dimensions"
                    )
                if size.node.expr.is_Symbol:
                    found.setdefault(size.node.expr, label)
        return found


def make_example(module: Any, inputs: Any, dynamic: Any) -> Example:
    """Bind the inputs to the parameters of forward, with sizes that torch.export does not specialize."""
    pytree_containers.register()
    signature = inspect.signature(module.forward)
    args, kwargs = _without_aliases(module, *_bind(signature, inputs))
    assumption = _assumption(signature, inputs)
    for value in (*args, *kwargs.values()):
        pytree_containers.check_cache_positions(value)
        pytree_containers.register_dataclasses(value)
    names = _leaf_names(signature, args, kwargs)
    io_names.store_structure(module, names, args, kwargs)
    own = _named_axes(dynamic)
    for name, axes in _spec_axes(inputs).items():
        own = {**(own or {}), name: {**axes, **(own or {}).get(name, {})}}
    if own is None:
        return Example(args, kwargs, dynamic, _torch_names(signature, dynamic, names), tuple(names), assumption)
    unknown = set(own) - set(names)
    if unknown:
        raise UsageError(f"no input is named {', '.join(sorted(unknown))}; the inputs are {', '.join(names)}{assumption}")
    return replace(_with_dynamic(signature, args, kwargs, names, {n: a for n, a in own.items() if a}), assumption=assumption)


def _bind(signature: inspect.Signature, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch = frameworks.torch()
    if inputs is None:
        return (), {}
    _refuse_bare_sizes(signature, inputs)
    if isinstance(inputs, Mapping):
        named = {name: _tensors(v) for name, v in inputs.items()}
        has_var_keyword = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        unknown = [name for name in named if name not in signature.parameters]
        if unknown and not has_var_keyword:
            if _is_one_dictionary(signature, named):
                return (named,), {}
            parameters = ", ".join(str(p).partition(":")[0] for p in signature.parameters.values()) or "nothing"
            hint = ": pass a tuple" if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()) else ""
            raise UsageError(f"forward has no parameter {', '.join(unknown)}; it takes {parameters}{hint}")
        return _bind_to_forward(signature, (), named)
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        inputs = (inputs,)
    return _bind_to_forward(signature, tuple(_tensors(v) for v in inputs), {})


def _refuse_bare_sizes(signature: inspect.Signature, inputs: Any) -> None:
    """Reject sizes in place of tensors or of sizes with a dtype: [(2, 64)] or (2, 64).

    Raises:
        UsageError: with both accepted forms written out.
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
        f"inputs={inputs!r} has sizes where tensors are expected; pass inputs=({tensor},), or sizes with a dtype, "
        f'inputs="{name}:float32[{",".join(map(str, shape))}]"'
    )


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_one_dictionary(signature: inspect.Signature, inputs: Mapping[str, Any]) -> bool:
    """Whether forward has a single parameter and these inputs, under other names, may be one dictionary for it."""
    only = next(iter(signature.parameters.values()), None)
    if only is None or len(signature.parameters) > 1 or only.name in inputs:
        return False
    if only.kind in (only.VAR_POSITIONAL, only.VAR_KEYWORD):
        return False
    return only.annotation not in (frameworks.torch().Tensor, "torch.Tensor", "Tensor")


def _assumption(signature: inspect.Signature, inputs: Any) -> str:
    """A note for error messages where inputs were passed to forward's only parameter as one dictionary."""
    if not isinstance(inputs, Mapping) or not _is_one_dictionary(signature, inputs):
        return ""
    [only] = signature.parameters
    return (
        f" (forward has no parameter {', '.join(map(repr, inputs))}, so they were passed as one dictionary to {only!r}, its only "
        f"parameter; name the input {only!r} if it should be a tensor)"
    )


def _without_aliases(module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The inputs with a copy of every tensor that occurs twice or belongs to the module: torch.export would merge them."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    seen = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    copied: tuple[Any, Any] = pytree.tree_map(own, (args, kwargs))
    return copied


def _bind_to_forward(signature: inspect.Signature, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(f"the inputs do not match forward{signature}: {error}") from error
    return bound.args, bound.kwargs


def _is_spec(value: Any) -> bool:
    """Whether a value is (shape, dtype); a shape may hold numbers, names and None."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str) and isinstance(value[0], (tuple, list))


def _tensors(value: Any) -> Any:
    """Replace arrays and (shape, dtype) specifications by tensors."""
    torch = frameworks.torch()
    if _is_spec(value):
        shape, dtype = value
        sizes = [s if isinstance(s, int) else 2 if axis == 0 else _DYNAMIC_SIZE for axis, s in enumerate(shape)]
        return torch.zeros(sizes, dtype=dtypes.from_name(dtype))
    if isinstance(value, (np.ndarray, np.generic)):
        return dtypes.tensor(value)
    if isinstance(value, Mapping):
        return {k: _tensors(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_tensors(v) for v in value)
    return value


# The example size of a named dimension: even, and large enough for the strides of common networks.
_DYNAMIC_SIZE = 64


def _spec_axes(inputs: Any) -> dict[str, dict[int, str]]:
    found = {}
    for name, value in inputs.items() if isinstance(inputs, Mapping) else ():
        if _is_spec(value):
            axes = {i: s or f"{name}_{i}" for i, s in enumerate(value[0]) if not isinstance(s, int)}
            if axes:
                found[name] = axes
    return found


def _leaf_names(signature: inspect.Signature, args: Any, kwargs: Any) -> list[str]:
    """The names that torch.export gives the inputs, in order: parameter names, followed by keys and indices of nested values."""
    bound = signature.bind(*args, **kwargs).arguments
    names = []
    for name, value in bound.items():
        kind = signature.parameters[name].kind
        for keys in io_names.leaf_paths(value):
            names.append(io_names.leaf_name(keys if kind is inspect.Parameter.VAR_KEYWORD else [name, *keys]))
    return names


def named_sizes(inputs: Any, dynamic: Any) -> dict[str, dict[int, str]] | None:
    """The dimension names in `inputs` and `dynamic`; None where `dynamic` has the form of torch.export."""
    own = _named_axes(dynamic)
    if own is None and dynamic:
        return None
    specified = {name: value[0] for name, value in inputs.items() if _is_spec(value)} if isinstance(inputs, Mapping) else {}
    found = {name: {i: s for i, s in enumerate(shape) if isinstance(s, str)} for name, shape in specified.items()}
    return {name: {**found.get(name, {}), **(own or {}).get(name, {})} for name in found | (own or {})}


def _named_axes(dynamic: Any) -> dict[str, dict[int, str]] | None:
    """`dynamic` if it has the form {input: {axis: name}}; None if it has the form of torch.export, which passes through."""
    if not dynamic:
        return {} if dynamic is not None and not isinstance(dynamic, (tuple, list)) else None
    if not isinstance(dynamic, Mapping):
        return None
    named = {str(name): {} if axes is None else axes for name, axes in dynamic.items()}
    if not all(isinstance(axes, Mapping) for axes in named.values()):
        return None
    if not all(isinstance(k, int) and isinstance(v, str) for axes in named.values() for k, v in axes.items()):
        return None
    return {name: dict(axes) for name, axes in named.items()}


def _torch_names(signature: inspect.Signature, dynamic: Any, names: list[str]) -> dict[str, dict[int, str]]:
    """The names of the `Dim`s in dynamic_shapes of torch.export, for inputs that are plain tensors."""
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


_SUM = re.compile(r"([A-Za-z_]\w*) \+ ([0-9]{1,9})")  # a size as a sum: "past + 1"


def _with_dynamic(
    signature: inspect.Signature, args: Any, kwargs: Any, names: list[str], named: dict[str, dict[int, str]]
) -> Example:
    """Mark the named axes as dynamic for torch.export, and resize those of size 0 or 1, which it would specialize, to 2."""
    torch = frameworks.torch()
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not named:
        return Example(args, kwargs, labels=tuple(names))
    var_keyword = [p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    if extra := [k for p in var_keyword for k in signature.bind(*args, **kwargs).arguments.get(p, ())]:
        raise UsageError(
            f"torch.export cannot have dynamic sizes in inputs passed as **{var_keyword[0]}: "
            f"declare {', '.join(extra)} as parameters of forward"
        )
    sizes: dict[str, int] = {}
    for name, leaf in zip(names, leaves, strict=True):
        for axis, label in named.get(name, {}).items():
            if not isinstance(leaf, torch.Tensor) or not -leaf.ndim <= axis < leaf.ndim:
                raise UsageError(f"{name} has no axis {axis} to be named {label!r}")
            sizes[label] = max(sizes.get(label, 2), leaf.shape[axis])
    for label in sizes:
        found = _SUM.fullmatch(label)
        if found is not None:
            sizes[label] = sizes.get(found[1], 2) + int(found[2])
    shapes: list[Any] = []
    axis_names: dict[str, dict[int, str]] = {}
    for i, (name, leaf) in enumerate(zip(names, leaves, strict=True)):
        axes = {axis % leaf.ndim: label for axis, label in named.get(name, {}).items()}
        for axis, label in axes.items():
            if leaf.shape[axis] != sizes[label]:
                repeated = torch.zeros(sizes[label], dtype=torch.int64)
                leaf = (
                    leaf.index_select(axis, repeated) if leaf.shape[axis] else leaf.new_zeros(_resized(leaf, axis, sizes[label]))
                )
        leaves[i] = leaf
        if axes:
            axis_names[name] = axes
        shapes.append(dict.fromkeys(axes, torch.export.Dim.AUTO) if axes else None)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    shape_args, shape_kwargs = _dynamic_shapes(spec, iter(shapes))
    dynamic = tuple(signature.bind(*shape_args, **shape_kwargs).arguments.values())  # one entry for all of *args or **kwargs
    return Example(args, kwargs, dynamic, axis_names, tuple(names))


def _dynamic_shapes(spec: Any, leaves: Iterator[Any]) -> Any:
    """Arrange leaves as dynamic_shapes requires: the structure of the inputs, with lists for custom containers."""
    from torch.utils import _pytree as pytree

    if spec.is_leaf():
        return next(leaves)
    parts = spec.children() if hasattr(spec, "children") else spec.children_specs  # the latter in PyTorch 2.9
    children = [_dynamic_shapes(child, leaves) for child in parts]
    if spec.type not in pytree.BUILTIN_TYPES:
        return children
    return pytree.SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)


def _resized(leaf: Any, axis: int, size: int) -> list[int]:
    return [size if i == axis else s for i, s in enumerate(leaf.shape)]
