"""The classes of generated source: one for similar submodules, with parameters for the sizes in which they differ."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.codegen.statements import length
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.formats.python_source.line_breaking import WIDTH, lines, numbers, quoted
from onnxbridge.hub.ir.unique_name import free_name

_MAX_LITERAL = 16
"""Constants of up to this many elements are written as literals; larger ones are stored with the weights."""
_MAX_PARAMETERS = 5
"""The most parameters of a class; submodules that differ in more get different classes."""
_MARK = re.compile("\x01(\\w*)\x02(\\d+)\x03")
"""An integer in a constructor, marked with its role."""
_NAMES = frozenset({
    "torch", "nn", "F", "math", "np", "re", "io", "os", "json", "struct", "operator", "load", *dir(builtins),
})  # fmt: skip
Layers = Mapping[str, tuple[type[nn.Module], Mapping[str, Any]]]


@dataclass
class ClassDraft:
    """The class of one submodule: its constructor lines with marked integers, and the lines of its functions."""

    path: str
    name: str
    members: list[str]
    functions: list[str]

    @property
    def marks(self) -> list[tuple[str, int]]:
        return [(role, int(n)) for line in self.members for role, n in _MARK.findall(line)]

    @property
    def numbers(self) -> list[tuple[int, int, int]]:
        return numbers("\n".join(self.functions))

    def outline(self) -> tuple[Any, ...]:
        """What submodules of the same class have in common."""
        text, cut = "\n".join(self.functions), 0
        parts = []
        for start, end, _ in self.numbers:
            parts.append(text[cut:start])
            cut = end
        return self.name, tuple(_MARK.sub("\x01\\1\x03", line) for line in self.members), (*parts, text[cut:])


@dataclass
class Classes:
    """Collects the classes of `root` and the tensors that it loads.

    `function` generates the function of a graph from its name, the graph, its first parameter, the expression for a module's
    attribute, and the lengths of module lists.
    """

    root: Network
    layers: Layers
    function: Callable[[str, fx.Graph, str, Callable[[str], str], Callable[[str], int]], list[str]]
    used_names: Callable[[], Collection[str]]
    stored: dict[str, torch.Tensor] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._made: set[str] = set()
        self._ties: dict[str, list[tuple[str, str]]] = {}
        self._tied: set[str] = set()
        self._blocks = {path: m for path, m in self.root.named_modules() if isinstance(m, Network)}
        for path, block in list(self._blocks.items()):
            for name in bodies(block):
                self._blocks.pop(f"{path}.{name}".strip("."), None)
        self._tie()
        functions = {path: self._functions(block) for path, block in self._blocks.items()}  # reserves the names of helpers
        for path in self._blocks:
            self._tensors(path)
        by_height: dict[int, list[str]] = {}
        for path in self._blocks:
            by_height.setdefault(self._height(path), []).append(path)
        for _, paths in sorted(by_height.items()):
            drafts: dict[Any, list[ClassDraft]] = {}
            for path in paths:
                draft = ClassDraft(path, type(self._blocks[path]).__name__, list(self._members(path)), functions[path])
                drafts.setdefault(draft.outline(), []).append(draft)
            for similar in drafts.values():
                self._class(similar)

    @property
    def name(self) -> str:
        """The class of the root module."""
        return self._calls[""].partition("(")[0]

    def _height(self, path: str) -> int:
        prefix = f"{path}." if path else ""
        inside = [p for p in self._blocks if p and p != path and p.startswith(prefix)]
        depths = [1 + sum(p == q or p.startswith(f"{q}.") for q in inside) for p in inside]
        return max(depths, default=1)

    def _tie(self) -> None:
        """Find parameters registered under several paths; the innermost block around both ties them."""
        first: dict[int, str] = {}
        for path, parameter in self.root.named_parameters(remove_duplicate=False):
            first_path = first.setdefault(id(parameter), path)
            if first_path == path:
                continue
            enclosing = [b for b in self._blocks if all(p.startswith(f"{b}." if b else "") for p in (path, first_path))]
            self._ties.setdefault(max(enclosing, key=len), []).append((path, first_path))
            self._tied.add(path)

    def _tensors(self, path: str) -> None:
        """Store the tensors to load: all but small constants, which are written as literals."""
        for scope, module in self._own(path, self._blocks[path]):
            for name, tensor in _tensors(module).items():
                full = f"{scope}.{name}" if scope else name
                layer = scope in self.layers or any(scope.startswith(f"{p}.") for p in self._above(scope))
                written = not layer and name in module._non_persistent_buffers_set and _literal(tensor) is not None
                if full not in self._tied and not written:
                    self.stored[full] = tensor

    def _above(self, scope: str) -> list[str]:
        parts = scope.split(".")
        return [p for i in range(1, len(parts)) if (p := ".".join(parts[:i])) in self.layers]

    def _own(self, path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """A block and its submodules that are not in a nested block."""
        yield path, module
        for name, child in module._modules.items():
            inner = f"{path}.{name}" if path else name
            if child is not None and inner not in self._blocks and not isinstance(child, fx.GraphModule):
                yield from self._own(inner, child)

    def _functions(self, block: Network) -> list[str]:
        made = self.function("forward", block.graph, "self", partial(access, block), partial(length, block))
        for name in bodies(block):
            body = block.get_submodule(name)
            assert isinstance(body, fx.GraphModule)
            made += ["", "@staticmethod", *self.function(name, body.graph, "", "self.{}".format, lambda path: 0)]
        return made

    def _members(self, path: str) -> Iterator[str]:
        block = self._blocks[path]
        yield from self._member_statements(path, block, path)
        for tied, first_path in self._ties.get(path, []):
            cut = len(path) + 1 if path else 0
            yield _assigned(block, tied[cut:], access(block, first_path[cut:]))

    def _member_statements(self, scope: str, module: nn.Module, path: str) -> Iterator[str]:
        """The statements that create a module's members."""
        block = self._blocks[path]
        cut = len(path) + 1 if path else 0
        for name, tensor in _tensors(module).items():
            full = f"{scope}.{name}" if scope else name
            if full not in self._tied:
                yield self._registration(block, full[cut:], module, name, tensor)
        inner = bodies(module) if isinstance(module, Network) else []
        children = [(n, c) for n, c in module._modules.items() if c is not None and n not in inner]
        for name, child in children:
            full = f"{scope}.{name}" if scope else name
            made = self._expression(full, child)
            yield _assigned(block, full[cut:], made or _empty(child))
            if made is None:
                yield from self._member_statements(full, child, path)

    def _registration(self, block: Network, path: str, module: nn.Module, name: str, tensor: torch.Tensor) -> str:
        fixed = name in module._non_persistent_buffers_set
        literal = _literal(tensor) if fixed else None
        sizes = ", ".join(_mark("size", n) for n in tensor.shape) or "()"
        dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
        value = literal or f"torch.empty({sizes}{dtype})"
        if isinstance(tensor, nn.Parameter):
            return _assigned(block, path, f"nn.Parameter({value}{'' if tensor.requires_grad else ', requires_grad=False'})")
        owner = access(block, path.rpartition(".")[0])
        return f"{owner}.register_buffer({quoted(name)}, {value}{', persistent=False' if fixed else ''})"

    def _expression(self, path: str, module: nn.Module) -> str | None:
        """The expression that creates a module, or None if it needs several statements."""
        if path in self.layers:
            return _constructor(*self.layers[path], _dtype(module))
        if path in self._calls:
            return self._calls[path]
        if not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            return None
        made = [self._expression(f"{path}.{name}", child) for name, child in module.named_children()]
        # a module registered under several names is listed once
        parts = [p for p in made if p is not None]
        if len(parts) < len(module._modules):
            return None
        if isinstance(module, nn.Sequential):
            return f"nn.Sequential({', '.join(parts)})"
        if isinstance(module, nn.ModuleDict):
            return f"nn.ModuleDict({{{', '.join(f'{quoted(n)}: {p}' for n, p in zip(module._modules, parts, strict=True))}}})"
        if len(parts) > 1 and len(set(parts)) == 1:
            return f"nn.ModuleList({parts[0]} for _ in range({len(parts)}))"
        return f"nn.ModuleList([{', '.join(parts)}])"

    def _class(self, drafts: Sequence[ClassDraft]) -> None:
        """Write the class of submodules of the same outline, or several classes if they differ in too many sizes."""
        marks = [k.marks for k in drafts]
        columns = list(zip(*([n for _, n in m] for m in marks), strict=True))
        varied = list(dict.fromkeys(c for c in columns if len(set(c)) > 1))
        inner = list(zip(*([n for _, _, n in k.numbers] for k in drafts), strict=True))
        unparameterized = {c for c in inner if len(set(c)) > 1} - set(varied)
        if unparameterized or len(varied) > _MAX_PARAMETERS:
            split: dict[Any, list[ClassDraft]] = {}
            for i, draft in enumerate(drafts):
                key = tuple(c[i] for c in inner) if unparameterized else (*(c[i] for c in columns), *(c[i] for c in inner))
                split.setdefault(key, []).append(draft)
            for part in split.values():
                self._class(part)
            return
        roles = [{r for (r, _), c in zip(marks[0], columns, strict=True) if c == v} for v in varied]
        names = dict(zip(varied, _parameters(roles), strict=True))
        first = drafts[0]
        name = self._unused_name(first.name)
        at = iter(columns)
        members = [_MARK.sub(lambda m: names.get(next(at), m[2]), line) for line in first.members]
        functions = "\n".join(first.functions)
        stored_names: dict[str, None] = {}
        for (start, end, _), column in reversed(list(zip(first.numbers, inner, strict=True))):
            if column in names:
                functions = f"{functions[:start]}self.{names[column]}{functions[end:]}"
                stored_names[names[column]] = None
        members = [*(f"self.{n} = {n}" for n in names.values() if n in stored_names), *members]
        text = [f"class {name}(nn.Module):"]
        others = len(drafts) - 1
        docstring = f'    """At `{first.path}`{f", and {others} more" if others else ""}."""'
        if re.fullmatch(r"[\w.]+", first.path, re.ASCII) and len(docstring) <= WIDTH:
            text += [docstring, ""]
        if members:
            text += lines([f"def __init__({', '.join(['self', *names.values()])}):"], 4)
            text += ["        super().__init__()", *lines(members, 8), ""]
        text += lines(functions.split("\n"), 4)
        self.definitions.append("\n".join(text))
        for i, draft in enumerate(drafts):
            given = ", ".join(_mark(names[v], v[i]) for v in varied)
            self._calls[draft.path] = f"{name}({given})"

    def _unused_name(self, preferred: str) -> str:
        preferred = re.sub(r"\W", "", preferred, flags=re.ASCII)
        preferred = (
            preferred
            if preferred.isidentifier() and not keyword.iskeyword(preferred) and not preferred.startswith("__")
            else "Net"
        )
        used_names = {*_NAMES, *self._made, *self.used_names()}
        name = free_name(preferred, used_names.__contains__, first=2, separator="")
        self._made.add(name)
        return name


def bodies(block: Network) -> list[str]:
    """The names of the control flow bodies of a block."""
    attributes = (n for n in block.graph.nodes if n.op == "get_attr")
    return [str(n.target) for n in attributes if isinstance(block._modules.get(str(n.target)), fx.GraphModule)]


def access(block: nn.Module, path: str) -> str:
    """The expression for the module or tensor at a path in a block."""
    text = "self"
    module: Any = block
    for part in path.split(".") if path else []:
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and part.isdigit():
            text += f"[{part}]"
        elif isinstance(module, nn.ModuleDict):
            text += f"[{quoted(part)}]"
        else:
            text = f"{text}.{part}" if _is_attribute_name(part) else f"getattr({text}, {quoted(part)})"
        module = getattr(module, "_modules", {}).get(part)
    return text


def _assigned(block: nn.Module, path: str, value: str) -> str:
    scope, _, name = path.rpartition(".")
    home = block.get_submodule(scope)
    if isinstance(home, nn.ModuleList):
        return f"{access(block, scope)}.append({value})"
    if not isinstance(home, nn.ModuleDict) and not _is_attribute_name(name):
        return f"setattr({access(block, scope)}, {quoted(name)}, {value})"
    return f"{access(block, path)} = {value}"


def _empty(module: nn.Module) -> str:
    return f"nn.{type(module).__name__}()" if isinstance(module, (nn.ModuleList, nn.ModuleDict)) else "nn.Module()"


def _parameters(roles: Sequence[set[str]]) -> list[str]:
    """Names for a class's parameters, from the layer arguments that each is used for."""
    names: list[str] = []
    for preferred in roles:
        common = next((r for r in ("channels", "features", "size") if any(r in w for w in preferred)), "size")
        name = next(iter(preferred)) if len(preferred) == 1 else common
        if name in names:
            name = "hidden"
        names.append(free_name(name, names.__contains__, first=2))
    return names


def _mark(role: str, value: int) -> str:
    return f"\x01{role}\x02{value}\x03" if value >= 0 else str(value)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters(recurse=False, remove_duplicate=False)), **dict(module.named_buffers(recurse=False))}


def _is_attribute_name(name: str) -> bool:
    """Whether a name can be written as an attribute; Python mangles names with two leading underscores in classes."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _literal(tensor: torch.Tensor) -> str | None:
    """A small constant as source text, or None if it is stored."""
    if tensor.numel() > _MAX_LITERAL or tensor.dtype not in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        return None
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        return None
    if tensor.numel() == 0 and tensor.ndim != 1:
        return None
    values = tensor.tolist()
    dtype = "" if torch.tensor(values).dtype == tensor.dtype else f", dtype={tensor.dtype}"
    return f"torch.tensor({values!r}{dtype})"


def _dtype(layer: nn.Module) -> torch.dtype | None:
    """The dtype of a layer's weights if it is not the default."""
    found = {p.dtype for p in layer.parameters()} - {torch.float32}
    return found.pop() if len(found) == 1 else None


def _constructor(kind: type[nn.Module], arguments: Mapping[str, Any], dtype: torch.dtype | None) -> str:
    """A layer's constructor call, without default arguments."""
    defaults = {"bias": True, "bidirectional": False, "batch_first": False, "num_layers": 1, "nonlinearity": "tanh"}
    for name, p in inspect.signature(kind).parameters.items():
        if p.default is not p.empty:
            defaults[name] = p.default
    parts = [_argument(k, v) for k, v in arguments.items() if k not in defaults]
    parts += [f"{k}={_argument(k, v)}" for k, v in arguments.items() if k in defaults and defaults[k] != v]
    parts += [f"dtype={dtype}"] if dtype else []
    return f"nn.{kind.__name__}({', '.join(parts)})"


def _argument(name: str, value: Any) -> str:
    if name == "normalized_shape" and isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if type(value) is int:
        return _mark(name, value)
    return quoted(value) if isinstance(value, str) else repr(value)
