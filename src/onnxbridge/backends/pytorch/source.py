"""A built module as a Python file to read and change, beside its weights; it imports nothing but torch.

Whatever comes from the model is a name that was made here or a literal: nothing of it is taken for code.
"""

from __future__ import annotations

import inspect
import json
import keyword
import re
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.expressions import Expressions
from onnxbridge.backends.pytorch.inlined import PACKAGE, Inlined
from onnxbridge.backends.pytorch.statements import function
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported

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

_LISTS = (nn.Module, nn.Sequential)
Layers = dict[str, tuple[type[nn.Module], dict[str, Any]]]
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
        numbered = {
            path: set(m._modules) for path, m in artifact.named_modules()
            if path and type(m) in _LISTS and m._modules and all(map(_is_place, m._modules)) and not _tensors(m)
        }  # fmt: skip
        self.lists = {path for path, places in numbered.items() if places == set(map(str, range(len(places))))}
        self.dicts = set(numbered) - self.lists

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
        layers: Layers = self.artifact.meta["layers"]
        seen: dict[int, str] = {}
        done: list[str] = []
        whole: list[str] = []
        for path, module in self._modules("", self.artifact):
            if any(path.startswith(f"{d}.") for d in done) or isinstance(module, fx.GraphModule) and path:
                continue
            inside = any(path.startswith(f"{w}.") for w in whole)
            if path in layers:
                done.append(path)
            if type(module) is nn.Sequential:
                whole.append(path)
            if path in layers or type(module) is nn.Sequential:
                if not inside:
                    yield from self._assign(path, "\n".join(self._made(path, module, layers))).split("\n")
            elif path:
                yield self._assign(path, f"nn.Module{'List' if path in self.lists else 'Dict' if path in self.dicts else ''}()")
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

    def _made(self, path: str, module: nn.Module, layers: Layers) -> list[str]:
        """The lines of what makes a layer, or layers that are called one behind the other."""
        if path in layers:
            return [_constructor(*layers[path], _dtype(module))]
        within = [self._made(f"{path}.{name}", child, layers) for name, child in module.named_children()]
        return ["nn.Sequential(", *(f"    {line}" for made in within for line in (*made[:-1], f"{made[-1]},")), ")"]

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
        if scope not in self.dicts and not _plain(name):
            return f"setattr({self._path(scope)}, {ascii(name)}, {value})"
        return f"{self._path(path)} = {value}"

    def _path(self, path: str) -> str:
        """How the module's code gets at what lies at a path."""
        text, at = "self", ""
        for part in path.split(".") if path else []:
            if at in self.lists and part.isdigit():
                text += f"[{part}]"
            elif at in self.dicts:
                text += f"[{ascii(part)}]"
            else:
                text = f"{text}.{part}" if _plain(part) else f"getattr({text}, {ascii(part)})"
            at = f"{at}.{part}" if at else part
        return text

    # what it computes

    def _function(self, name: str, graph: fx.Graph, first: str) -> list[str]:
        for node in graph.nodes:  # before variables get their names: no variable may hide a function
            if node.op == "call_function" and inspect.unwrap(node.target).__module__.startswith(PACKAGE):
                self.inlined.name(node.target)
        taken = {*self.inlined.taken, "torch", "nn", "F", "math", "np", "re", "io", "os", "json", "struct", "operator", "self"}
        return function(name, graph, first, Expressions(self.inlined, self._path), self._path, taken)


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


def _is_place(name: str) -> bool:
    """Whether a name is the place of an element, as lists of modules have it."""
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _literal(tensor: torch.Tensor) -> str | None:
    """A small constant as text, None for what is stored."""
    if tensor.numel() > _LITERAL or tensor.dtype not in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        return None
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        return None
    if tensor.numel() == 0 and tensor.ndim != 1:
        return None
    return f"torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype})"


def _dtype(layer: nn.Module) -> torch.dtype | None:
    """The type of a layer's weights, where it is another than layers have by themselves."""
    found = {p.dtype for p in layer.parameters()} - {torch.float32}
    return found.pop() if len(found) == 1 else None


def _constructor(kind: type[nn.Module], arguments: dict[str, Any], dtype: torch.dtype | None) -> str:
    """A layer's constructor call; what is as by default is left out."""
    defaults = {"bias": True, "bidirectional": False, "batch_first": False, "num_layers": 1, "nonlinearity": "tanh"}
    for name, p in inspect.signature(kind).parameters.items():
        if p.default is not p.empty:
            defaults[name] = p.default
    parts = [repr(v) for k, v in arguments.items() if k not in defaults]
    parts += [f"{k}={v!r}" for k, v in arguments.items() if k in defaults and defaults[k] != v]
    parts += [f"dtype={dtype}"] if dtype else []
    return f"nn.{kind.__name__}({', '.join(parts)})"
