"""`.pt2` files, read without running anything from them.

`torch.export.load` unpickles sample inputs and weights, loads compiled code, and hands texts of the file to sympy, to imports and
to generated Python. So the archive is opened here: every text that PyTorch would interpret is checked first, sample inputs and
guards are left out, weights are mapped. PyTorch gets a checked description and tensors, never the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, Problem, Source, UnsafeFileError
from onnxbridge.frontends.pytorch.pt2 import validator
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import open_archive

MOST_TEXT = 512 << 20
_FOLDERS = ("models/", "data/weights/", "data/constants/", "data/sample_inputs/", "extra/", ".data/")
_FILES = ("archive_format", "archive_version", "byteorder", "version")
_WAY_OUT = "export the model again with torch.export.save"
_PICKLED = "holds pickled objects, which run code when they are read"


class _Archive:
    """A zip file's members where they lie: PyTorch stores them uncompressed."""

    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        archive = open_archive(path, _WAY_OUT)
        self.data = archive.data
        self.members: dict[str, tuple[int, int]] = {}
        roots = {name.split("/")[0] for name in archive.members}
        for full, member in archive.members.items():
            name = full.partition("/")[2]
            if name in self.members or len(roots) > 1:
                raise self.wrong(f"has two members {quoted(name)}, or more than one root")
            if not name.startswith(_FOLDERS) and name not in _FILES or ".." in name.split("/") or "\\" in name:
                raise self.wrong(f"has the member {quoted(full)}, which no exported program needs")
            if member.deflated:
                raise self.wrong(f"has the compressed member {quoted(name)}; PyTorch writes none")
            self.members[name] = member.start, member.size

    def wrong(self, what: str) -> UnsafeFileError:
        return UnsafeFileError(f"{self.shown}: {what}; {_WAY_OUT}.")

    def text(self, name: str) -> Any:
        """A member of JSON."""
        if name not in self.members:
            raise self.wrong(f"has no {quoted(name)}")
        start, size = self.members[name]
        if size > MOST_TEXT:
            raise LimitError(f"{self.shown}: {name} has {size} bytes, of at most {MOST_TEXT}.")
        try:
            return json.loads(bytes(self.data[start : start + size]))
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"has a {quoted(name)} that is no JSON ({type(error).__name__})") from error


def load_program(path: Path) -> Any:
    """The exported program in a `.pt2` file.

    Raises:
        UnsafeFileError: for anything that could run code, or that contradicts itself.
        LimitError: for sizes beyond what a model takes.
    """
    torch = frameworks.torch()
    archive = _Archive(path)
    models = [n for n in archive.members if n.startswith("models/") and n.endswith(".json")]
    if len(models) != 1:
        raise archive.wrong(f"holds {len(models)} exported programs, not one")
    name = models[0][len("models/") : -len(".json")]
    try:
        described = validator.checked(archive.text(models[0]))
    except validator.Refused as error:
        raise archive.wrong(str(error)) from error
    _check_libraries(validator.library_operators(described))
    state = _tensors(archive, "weights", f"data/weights/{name}_weights_config.json")
    constants = _tensors(archive, "constants", f"data/constants/{name}_constants_config.json")
    from torch._export.serde import schema, serialize

    try:
        program = serialize.ExportedProgramDeserializer(None).deserialize(
            serialize._dict_to_dataclass(schema.ExportedProgram, described), state, constants, None
        )
    except OnnxbridgeError:
        raise
    except Exception as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise archive.wrong(f"cannot be read by PyTorch {torch.__version__} ({text})") from error
    return program


def _check_libraries(called: Sequence[str]) -> None:
    """Refuse a program that calls operators of libraries for which there is no rule, or that PyTorch does not know here.

    Raises:
        ConversionError: naming them.
    """
    from onnxbridge.frontends.pytorch.ops import rule

    problems = []
    for name in dict.fromkeys(called):
        reasons = [] if name in rule else ["no rule"]
        reasons += [] if _is_registered(name) else ["not registered with torch.library in this process"]
        if reasons:
            hint = f"import the module that registers {name} and a rule for it: --import MODULE, imports=['MODULE']"
            problems.append(Problem(name, " and ".join(reasons), hint, (Source(),) * called.count(name)))
    if problems:
        raise ConversionError("PyTorch to ONNX", problems)


def _is_registered(name: str) -> bool:
    namespace, _, operator = name.partition("::")
    packet = getattr(getattr(frameworks.torch().ops, namespace), operator.partition(".")[0], None)
    return packet is not None


def _tensors(archive: _Archive, folder: str, config: str) -> dict[str, Any]:
    torch = frameworks.torch()
    found: dict[str, Any] = {}
    entries = archive.text(config)
    entries = entries.get("config") if isinstance(entries, dict) else None
    if not isinstance(entries, dict):
        raise archive.wrong(f"has no list of {folder}")
    for name, entry in entries.items():
        kept = str(entry.get("path_name", ""))
        if entry.get("use_pickle") or not kept.startswith(("tensor_", "weight_")) or not validator.is_path(name):
            raise archive.wrong(f"{_PICKLED} ({folder} {quoted(name)})")
        member = f"data/{folder}/{kept}"
        if member not in archive.members:
            raise archive.wrong(f"has no {quoted(member)}")
        tensor = _tensor(archive, name, member, entry.get("tensor_meta"))
        found[name] = torch.nn.Parameter(tensor, requires_grad=False) if entry.get("is_param") else tensor
    return found


def _tensor(archive: _Archive, name: str, member: str, meta: Any) -> Any:
    """A tensor over the file's own bytes."""
    torch = frameworks.torch()
    from torch._export.serde.serialize import deserialize_scalar_type

    try:
        dtype = deserialize_scalar_type(meta["dtype"])
        sizes, strides = ([int(d["as_int"]) for d in meta[key]] for key in ("sizes", "strides"))
        offset = int(meta["storage_offset"]["as_int"])
    except (KeyError, TypeError, ValueError) as error:
        raise archive.wrong(f"describes the tensor {quoted(name)} wrongly") from error
    start, held = archive.members[member]
    count = held // dtype.itemsize
    wanted = math.prod(sizes)
    if min([*sizes, *strides, offset], default=0) < 0 or len(sizes) != len(strides) or len(sizes) > 64:
        raise archive.wrong(f"describes the tensor {quoted(name)} wrongly")
    reach = offset + sum((s - 1) * t for s, t in zip(sizes, strides, strict=True)) + 1 if wanted else 0
    if reach > count or wanted > count:
        raise archive.wrong(f"declares {sizes} for the tensor {quoted(name)}, but has {count} elements of it")
    if not wanted:
        return torch.empty(sizes, dtype=dtype)
    if start % dtype.itemsize:
        flat = torch.frombuffer(bytearray(archive.data[start : start + count * dtype.itemsize]), dtype=dtype)
    else:
        flat = torch.frombuffer(archive.data, dtype=dtype, count=count, offset=start)
    return flat.as_strided(sizes, strides, offset)
