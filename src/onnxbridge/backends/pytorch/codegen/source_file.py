"""A built module as a Python file to read and change, beside its weights; it imports nothing but torch.

Whatever comes from the model is a name that was made here or a literal: nothing of it is taken for code.
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
from onnxbridge.backends.pytorch.codegen.line_breaking import lines
from onnxbridge.backends.pytorch.codegen.statements import function
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.errors import ConversionError, Problem, Source, Unsupported

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
                found = torch.frombuffer(data, dtype=target.dtype, count=target.numel(), offset=begin)
                target.copy_(found.reshape(target.shape))
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


def loaded(artifact: Network) -> nn.Module:
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


def written(artifact: Network) -> tuple[str, dict[str, torch.Tensor]]:
    """The text of the module, and the tensors that it loads."""
    return _Writer(artifact).text()


class _Writer:
    def __init__(self, artifact: Network) -> None:
        self.artifact = artifact
        self.inlined = Inlined()
        self.inlined.imports.update(("import json", "import os", "import struct", "import torch", "from torch import nn"))

    def text(self) -> tuple[str, dict[str, torch.Tensor]]:
        for graph in (m.graph for m in self.artifact.modules() if isinstance(m, fx.GraphModule)):
            for node in graph.nodes:  # before variables get their names: no variable may hide a function
                if node.op == "call_function" and inspect.unwrap(node.target).__module__.startswith(PACKAGE):
                    self.inlined.name(node.target)
        classes = Classes(self.artifact, self.artifact.meta["layers"], self._function, lambda: self.inlined.taken)
        imports = sorted(self.inlined.imports, key=_import_order)
        others = sum(not _import_order(line)[0] for line in imports)
        parts = [
            "\n".join([
                f"# The network {ascii(type(self.artifact).__name__)}, written by onnxbridge.",
                *lines([f"# Inputs: {', '.join(map(ascii, self.artifact.input_names)) or 'none'}"]),
                *lines([f"# Outputs: {', '.join(map(ascii, self.artifact.output_names))}"]),
                "# `load()` gives it with its weights.", "", *imports[:others], "", *imports[others:],
            ]),
            *self.inlined.texts, *classes.texts, _LOAD.replace("{name}", classes.name),
        ]  # fmt: skip
        return "\n\n\n".join(part.strip("\n") for part in parts) + "\n", classes.stored

    def _function(
        self, name: str, graph: fx.Graph, first: str, held: Callable[[str], str], lists: Callable[[str], int]
    ) -> list[str]:
        taken = {*self.inlined.taken, "torch", "nn", "F", "math", "np", "re", "io", "os", "json", "struct", "operator", "self"}
        return function(name, graph, first, Expressions(self.inlined, held), held, taken, lists)


def _import_order(line: str) -> tuple[bool, bool, str]:
    """The standard library first, then what is imported whole, by package."""
    package = line.split()[1]
    return package.partition(".")[0] in ("torch", "numpy"), line.startswith("from"), package
