"""A built module as a readable Python file with its weights; it imports nothing but torch.

Names are generated and values are written as literals, so nothing in the model can inject code.
"""

from __future__ import annotations

import inspect
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.codegen.classes import Classes
from onnxbridge.backends.pytorch.codegen.expressions import Expressions
from onnxbridge.backends.pytorch.codegen.helper_source import PACKAGE, Inlined
from onnxbridge.backends.pytorch.codegen.statements import function
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.formats.python_source.line_breaking import lines

_LOAD = '''

def load(weights=None):
    """Return the module with the tensors of `weights`, by default the .safetensors file next to this one."""
    with open(weights or os.path.splitext(os.path.abspath(__file__))[0] + ".safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
        data = bytearray(file.read())
    model = {name}()
    tensors = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    with torch.no_grad():
        for key, entry in entries.items():
            begin, end = entry["data_offsets"]
            target = tensors[key]
            if end > begin:
                values = torch.frombuffer(data, dtype=target.dtype, count=target.numel(), offset=begin)
                target.copy_(values.reshape(target.shape))
    return model.eval()
'''

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.uint16: "U16", torch.uint32: "U32",
    torch.uint64: "U64", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip


def save(artifact: Network, path: Path) -> list[Path]:
    """Write the `.py` file and its `.safetensors`.

    Raises:
        ConversionError: if the module uses something that cannot be written as source.
    """
    try:
        text, stored = written(artifact)
        body = _safetensors(stored)
    except Unsupported as e:
        raise ConversionError("PyTorch module to source", [Problem("emit", e.reason, e.hint, (SourceLocation(),))]) from e
    mark = ".failed" if path.suffix == ".failed" else ""  # the suffix that `convert` adds if verification failed
    stem = path.with_suffix("") if mark else path
    code, weights = (stem.with_suffix(kind + mark) for kind in (".py", ".safetensors"))
    code.write_text(text, encoding="ascii")
    weights.write_bytes(body)
    return [code, weights]


def loaded(artifact: Network) -> nn.Module:
    """The module loaded from the written files, so that verification covers what a user gets.

    Raises:
        ConversionError: if the module uses something that cannot be written as source.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, _ = save(artifact, Path(folder, "net.py"))
        found: dict[str, Any] = {"__name__": "net", "__file__": str(code)}
        exec(compile(code.read_text(encoding="ascii"), str(code), "exec"), found)  # noqa: S102  written above
        module: nn.Module = found["load"]()
    return module


def _safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """Tensors in the safetensors format: the length of a JSON header, the header, the bytes."""
    entries, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise Unsupported(f"a weight of {tensor.dtype}, which safetensors does not support")
        raw = tensor.detach().cpu().contiguous()
        data = raw.reshape(-1).view(torch.uint8).numpy().tobytes() if raw.numel() else b""
        entries[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([struct.pack("<Q", len(header)), header, *parts])


def written(artifact: Network) -> tuple[str, dict[str, torch.Tensor]]:
    """The source of the module, and the tensors that it loads."""
    return _Writer(artifact).text()


class _Writer:
    def __init__(self, artifact: Network) -> None:
        self.artifact = artifact
        self.inlined = Inlined()
        self.inlined.imports.update(("import json", "import os", "import struct", "import torch", "from torch import nn"))

    def text(self) -> tuple[str, dict[str, torch.Tensor]]:
        for graph in (m.graph for m in self.artifact.modules() if isinstance(m, fx.GraphModule)):
            for node in graph.nodes:  # before variables are named: no variable may shadow a function
                if node.op == "call_function" and inspect.unwrap(node.target).__module__.startswith(PACKAGE):
                    self.inlined.name(node.target)
        classes = Classes(self.artifact, self.artifact.meta["layers"], self._function, lambda: self.inlined.used_names)
        imports = sorted(self.inlined.imports, key=_import_order)
        others = sum(not _import_order(line)[0] for line in imports)
        parts = [
            "\n".join([
                f"# The network {ascii(type(self.artifact).__name__)}, written by onnxbridge.",
                *lines([f"# Inputs: {', '.join(map(ascii, self.artifact.input_names)) or 'none'}"]),
                *lines([f"# Outputs: {', '.join(map(ascii, self.artifact.output_names))}"]),
                "# `load()` returns it with its weights.", "", *imports[:others], "", *imports[others:],
            ]),
            *self.inlined.definitions, *classes.definitions, _LOAD.replace("{name}", classes.name),
        ]  # fmt: skip
        return "\n\n\n".join(part.strip("\n") for part in parts) + "\n", classes.stored

    def _function(
        self, name: str, graph: fx.Graph, first: str, access: Callable[[str], str], list_length: Callable[[str], int]
    ) -> list[str]:
        reserved = {
            *self.inlined.used_names,
            "torch",
            "nn",
            "F",
            "math",
            "np",
            "re",
            "io",
            "os",
            "json",
            "struct",
            "operator",
            "self",
        }
        return function(name, graph, first, Expressions(self.inlined, access), access, reserved, list_length)


def _import_order(line: str) -> tuple[bool, bool, str]:
    """Sort key: the standard library first, then plain imports, by package."""
    package = line.split()[1]
    return package.partition(".")[0] in ("torch", "numpy"), line.startswith("from"), package
