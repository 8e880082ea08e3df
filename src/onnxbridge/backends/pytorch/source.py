"""A built module as a Python file to read and change, beside its weights; it imports nothing but torch.

Whatever comes from the model is a name that was made here or a literal: nothing of it is taken for code.
"""

from __future__ import annotations

import inspect
import json
import keyword
import math
import operator
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.inlined import PACKAGE, Inlined
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "**", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=", operator.rshift: ">>", operator.lshift: "<<",
    operator.matmul: "@",
}  # fmt: skip
_LITERAL = 16
"""The most elements of a constant that is written out; larger ones lie with the weights."""

_LOAD = '''

def load(weights=None):
    """The module with the tensors of `weights`, by default the .safetensors file beside this one."""
    with open(weights or os.path.splitext(os.path.abspath(__file__))[0] + ".safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
        data = bytearray(file.read())
    model = {name}()
    held = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    with torch.no_grad():
        for key, entry in entries.items():
            begin, end = entry["data_offsets"]
            target = held[key]
            if end > begin:
                target.copy_(torch.frombuffer(data, dtype=target.dtype, count=target.numel(), offset=begin).reshape(target.shape))
    return model.eval()
'''

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32",
    torch.uint64: "U64", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip


def save(artifact: fx.GraphModule, path: Path) -> list[Path]:
    """Write the `.py` file and its `.safetensors`.

    Raises:
        ConversionError: where the module uses something that is not written as text.
    """
    try:
        text, stored = written(artifact)
        body = _safetensors(stored)
    except Unsupported as e:
        raise ConversionError("PyTorch module to source", [Problem("emit", e.reason, e.hint, (Source(),))]) from e
    mark = ".failed" if path.suffix == ".failed" else ""  # what `convert` adds where the verification failed
    stem = path.with_suffix("") if mark else path
    code, weights = (stem.with_suffix(kind + mark) for kind in (".py", ".safetensors"))
    code.write_text(text, encoding="ascii")
    weights.write_bytes(body)
    return [code, weights]


def loaded(artifact: fx.GraphModule) -> nn.Module:
    """The module that the written files give: what is verified is what a user gets.

    Raises:
        ConversionError: where the module uses something that is not written as text.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, _ = save(artifact, Path(folder, "net.py"))
        found: dict[str, Any] = {"__name__": "net", "__file__": str(code)}
        exec(compile(code.read_text(encoding="ascii"), str(code), "exec"), found)
        module: nn.Module = found["load"]()
    return module


def _safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """Tensors in the safetensors format: the length of a JSON header, the header, the bytes."""
    entries, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise Unsupported(f"a weight of {tensor.dtype}, which safetensors does not have")
        raw = tensor.detach().cpu().contiguous()
        data = raw.reshape(-1).view(torch.uint8).numpy().tobytes() if raw.numel() else b""
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([struct.pack("<Q", len(header)), header, *parts])


def written(artifact: fx.GraphModule) -> tuple[str, dict[str, torch.Tensor]]:
    """The text of the module, and the tensors that it loads."""
    return _Writer(artifact).text()


class _Writer:
    def __init__(self, artifact: fx.GraphModule) -> None:
        self.artifact = artifact
        self.inlined = Inlined()
        self.inlined.imports.update(("import json", "import os", "import struct", "import torch", "from torch import nn"))
        self.stored: dict[str, torch.Tensor] = {}
        self.lists = {
            path for path, m in artifact.named_modules()
            if type(m) is nn.Module and [n for n, _ in m.named_children()] and not _tensors(m)
            and sorted(n for n, _ in m.named_children()) == sorted(map(str, range(len(m._modules))))
        }  # fmt: skip

    def text(self) -> tuple[str, dict[str, torch.Tensor]]:
        name = re.sub(r"\W", "", type(self.artifact).__name__, flags=re.ASCII)
        name = name if name.isidentifier() and not keyword.iskeyword(name) and name != "F" else "Net"
        made = list(self._init())
        bodies = {n.target: self.artifact.get_submodule(str(n.target)) for n in self.artifact.graph.nodes if self._is_body(n)}
        forward = self._function("forward", self.artifact.graph, "self")
        for path, body in bodies.items():
            assert isinstance(body, fx.GraphModule)
            forward += ["", "@staticmethod", *self._function(str(path), body.graph, "")]
        lines = [
            f"# The network {ascii(type(self.artifact).__name__)}, written by onnxbridge.",
            f"# Inputs: {', '.join(map(ascii, self.artifact.input_names)) or 'none'}",
            f"# Outputs: {', '.join(map(ascii, self.artifact.output_names))}",
            "# `load()` gives it with its weights.", "",
            *sorted(self.inlined.imports, key=_import_order),
            "", "", f"class {name}(nn.Module):", "    def __init__(self):", "        super().__init__()",
            *(f"        {line}" for line in made), "", *(f"    {line}".rstrip() for line in forward),
            _LOAD.replace("{name}", name), *(f"\n\n{text}" for text in self.inlined.texts),
        ]  # fmt: skip
        return "\n".join(lines).rstrip() + "\n", self.stored

    def _is_body(self, node: fx.Node) -> bool:
        return node.op == "get_attr" and isinstance(_at(self.artifact, str(node.target)), nn.Module)

    # what the module holds

    def _init(self) -> Iterator[str]:
        layers: dict[str, tuple[type[nn.Module], dict[str, Any]]] = self.artifact.meta["layers"]
        seen: dict[int, str] = {}
        done: list[str] = []
        for path, module in self._modules("", self.artifact):
            if any(path.startswith(f"{d}.") for d in done) or isinstance(module, fx.GraphModule) and path:
                continue
            if path in layers:
                yield self._assign(path, _constructor(*layers[path]))
                done.append(path)
            elif path:
                yield self._assign(path, "nn.ModuleList()" if path in self.lists else "nn.Module()")
            for name, tensor in _tensors(module).items():
                full = f"{path}.{name}" if path else name
                if isinstance(tensor, nn.Parameter) and id(tensor) in seen:
                    yield self._assign(full, self._path(seen[id(tensor)]))
                    continue
                seen[id(tensor)] = full
                literal = _literal(tensor) if path not in layers and name in module._non_persistent_buffers_set else None
                if literal is None:
                    self.stored[full] = tensor
                if path not in layers:
                    yield self._holder(full, module, name, tensor, literal)

    def _modules(self, path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
        """A module and those in it; what is in a list by its place there, whatever the order in which it came to be."""
        yield path, module
        within = [(name, child) for name, child in module._modules.items() if child is not None]
        for name, child in sorted(within, key=lambda m: int(m[0])) if path in self.lists else within:
            yield from self._modules(f"{path}.{name}" if path else name, child)

    def _holder(self, full: str, module: nn.Module, name: str, tensor: torch.Tensor, literal: str | None) -> str:
        value = literal or f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
        if isinstance(tensor, nn.Parameter):
            frozen = "" if tensor.requires_grad else ", requires_grad=False"
            return self._assign(full, f"nn.Parameter({value}{frozen})")
        owner = self._path(full.rpartition(".")[0])
        persistent = ", persistent=False" if name in module._non_persistent_buffers_set else ""
        return f"{owner}.register_buffer({ascii(name)}, {value}{persistent})"

    def _assign(self, path: str, value: str) -> str:
        scope, _, name = path.rpartition(".")
        if scope in self.lists:
            return f"{self._path(scope)}.append({value})"
        if not _plain(name):
            return f"setattr({self._path(scope)}, {ascii(name)}, {value})"
        return f"{self._path(path)} = {value}"

    def _path(self, path: str) -> str:
        """How the module's code gets at what lies at a path."""
        text, at = "self", ""
        for part in path.split(".") if path else []:
            if at in self.lists and part.isdigit():
                text += f"[{part}]"
            else:
                text = f"{text}.{part}" if _plain(part) else f"getattr({text}, {ascii(part)})"
            at = f"{at}.{part}" if at else part
        return text

    # what it computes

    def _function(self, name: str, graph: fx.Graph, first: str) -> list[str]:
        for node in graph.nodes:  # before variables get their names: no variable may hide a function
            if node.op == "call_function" and inspect.unwrap(node.target).__module__.startswith(PACKAGE):
                self.inlined.name(node.target)
        taken = {*self.inlined.taken, "torch", "nn", "F", "math", "np", "re", "io", "os", "json", "struct", "self"}
        names: dict[fx.Node, str] = {}
        lines: list[str] = []
        for node in graph.nodes:
            if node.op == "output":
                lines.append(f"    return {self._value(node.args[0], names)}")
                continue
            if node.op == "get_attr":
                names[node] = self._path(str(node.target))
                continue
            wanted = re.sub(r"\W", "_", str(node.target) if node.op == "placeholder" else node.name, flags=re.ASCII)
            while wanted in taken or keyword.iskeyword(wanted) or not wanted.isidentifier():
                wanted = f"{wanted}_" if wanted.isidentifier() else f"_{wanted}"
            taken.add(wanted)
            if node.op != "placeholder":
                lines.append(f"    {wanted} = {self._call(node, names)}")
            names[node] = wanted
        parameters = [names[n] + (f"={ascii(n.args[0])}" if n.args else "") for n in graph.nodes if n.op == "placeholder"]
        return [f"def {name}({', '.join([first, *parameters] if first else parameters)}):", *lines]

    def _call(self, node: fx.Node, names: dict[fx.Node, str]) -> str:
        args = [self._value(a, names) for a in node.args]
        named = {k: v for k, v in node.kwargs.items() if not _is_default(node.target, k, v)}
        given = ", ".join([*args, *(f"{k}={self._value(v, names)}" for k, v in named.items())])
        if node.op == "call_module":
            return f"{self._path(str(node.target))}({given})"
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({given.partition(', ')[2] if len(args) + len(named) > 1 else ''})"
        if node.target in _INFIX and len(args) == 2:
            return f"{args[0]} {_INFIX[node.target]} {args[1]}"
        if node.target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        return f"{self._named(node.target)}({given})"

    def _named(self, function: Any) -> str:
        name, module = getattr(function, "__name__", ""), str(getattr(function, "__module__", "") or "")
        if inspect.unwrap(function).__module__.startswith(PACKAGE):
            return self.inlined.name(function)
        if function is getattr:
            return "getattr"
        homes = {"F": nn.functional, "torch": torch, "torch.linalg": torch.linalg, "torch.fft": torch.fft}
        for prefix, home in homes.items():
            found = next((n for n in (name, *dir(home)) if getattr(home, n, None) is function), None)  # F.max_pool2d is a "fn"
            if found:
                if prefix == "F":
                    self.inlined.imports.add("import torch.nn.functional as F")
                return f"{prefix}.{found}"
        if module in ("_operator", "operator"):
            self.inlined.imports.add("import operator")
            return f"operator.{name}"
        if module == "math":
            self.inlined.imports.add("import math")
            return f"math.{name}"
        raise Unsupported(f"source text that calls {module}.{name}")

    def _value(self, value: Any, names: dict[fx.Node, str]) -> str:
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, (list, tuple)):
            items = ", ".join(self._value(v, names) for v in value)
            return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, slice):
            return f"slice({', '.join(self._value(v, names) for v in (value.start, value.stop, value.step))})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self._value(k, names)}: {self._value(v, names)}" for k, v in value.items()) + "}"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, (torch.dtype, torch.device)):
            return str(value) if isinstance(value, torch.dtype) else f"torch.device({str(value)!r})"
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str)):
            return ascii(value)
        raise Unsupported(f"source text with a {type(value).__name__}")


def _is_default(function: Any, name: str, value: Any) -> bool:
    """Whether a function has None, True or False for an argument that is not given."""
    if not inspect.isfunction(function) or not (value is None or isinstance(value, bool)):
        return False
    there = inspect.signature(function).parameters.get(name)
    return there is not None and there.default is value


def _import_order(line: str) -> tuple[bool, str, bool]:
    """The standard library first, then by package."""
    package = line.split()[1]
    return package.partition(".")[0] in ("torch", "numpy"), package, line.startswith("from")


def _at(root: nn.Module, path: str) -> Any:
    found: Any = root
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters(recurse=False, remove_duplicate=False)), **dict(module.named_buffers(recurse=False))}


def _plain(name: str) -> bool:
    """Whether a class's code can have the name as an attribute: it would change one that begins with two underscores."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


def _literal(tensor: torch.Tensor) -> str | None:
    """A small constant as text, None for what is stored."""
    if tensor.numel() > _LITERAL or tensor.dtype not in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        return None
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        return None
    if tensor.numel() == 0 and tensor.ndim != 1:
        return None
    return f"torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype})"


def _constructor(kind: type[nn.Module], arguments: dict[str, Any]) -> str:
    """A layer's constructor call; what is as by default is left out."""
    defaults = {"bias": True, "bidirectional": False, "batch_first": False, "num_layers": 1, "nonlinearity": "tanh"}
    for name, p in inspect.signature(kind).parameters.items():
        if p.default is not p.empty:
            defaults[name] = p.default
    parts = [repr(v) for k, v in arguments.items() if k not in defaults]
    parts += [f"{k}={v!r}" for k, v in arguments.items() if k in defaults and defaults[k] != v]
    return f"nn.{kind.__name__}({', '.join(parts)})"
