"""Safe loading of `.pt2` files: nothing in them is executed.

`torch.export.load` unpickles sample inputs and weights, loads compiled code, and passes strings of the file to sympy, to imports
and to generated Python. Therefore the archive is opened here: every string that PyTorch would interpret is validated, sample
inputs and guards are dropped, weights are memory-mapped. PyTorch receives a validated description and tensors, never the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, Problem, SourceLocation, UnsafeFileError
from onnxbridge.frontends.pytorch.pt2 import older_archive, validator
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.zip_archives import open_archive

MOST_TEXT = 512 << 20
_FOLDERS = ("models/", "data/weights/", "data/constants/", "data/sample_inputs/", "extra/", ".data/")
_FILES = ("archive_format", "archive_version", "byteorder", "version")
_HINT = "export the model again with torch.export.save"
_PICKLED = "holds pickled objects, which run code when they are loaded"


class _Archive:
    """The members of a zip file, memory-mapped: PyTorch stores them uncompressed.

    Attributes:
        older: the archive if it has the layout of PyTorch 2.7 and before, else None.
    """

    def __init__(self, path: Path) -> None:
        self.path_text = str(path)
        archive = open_archive(path, _HINT)
        self.data = archive.data
        self.members: dict[str, tuple[int, int]] = {}
        self.older = archive if older_archive.PROGRAM in archive.members else None
        if self.older is not None:
            older_archive.check_members(archive, self.unsafe)
        else:
            self._check_members(list(archive.members))
        for full, member in archive.members.items():
            if member.deflated:
                raise self.unsafe(f"has the compressed member {quoted(full)}; PyTorch stores members uncompressed")
            self.members[full if self.older else full.partition("/")[2]] = member.start, member.size

    def _check_members(self, names: Sequence[str]) -> None:
        """Refuse members that are no part of an exported program below one root."""
        seen: set[str] = set()
        roots = {name.split("/")[0] for name in names}
        for full in names:
            name = full.partition("/")[2]
            if name in seen or len(roots) > 1:
                raise self.unsafe(f"has a duplicate member {quoted(name)}, or more than one root")
            if not name.startswith(_FOLDERS) and name not in _FILES or ".." in name.split("/") or "\\" in name:
                raise self.unsafe(f"has the member {quoted(full)}, which is not part of an exported program")
            seen.add(name)

    def unsafe(self, what: str) -> UnsafeFileError:
        return UnsafeFileError(f"{self.path_text}: {what}; {_HINT}.")

    def text(self, name: str) -> Any:
        """A member parsed as JSON."""
        if name not in self.members:
            raise self.unsafe(f"has no {quoted(name)}")
        start, size = self.members[name]
        if size > MOST_TEXT:
            raise LimitError(f"{self.path_text}: {name} has {size} bytes; the limit is {MOST_TEXT}.")
        try:
            return json.loads(bytes(self.data[start : start + size]))
        except (ValueError, RecursionError) as error:
            raise self.unsafe(f"has a {quoted(name)} that is not valid JSON ({type(error).__name__})") from error


def load_program(path: Path) -> Any:
    """Load the exported program of a `.pt2` file.

    Raises:
        UnsafeFileError: for anything that could run code, or that is inconsistent.
        LimitError: for sizes beyond the limits.
    """
    torch = frameworks.torch()
    archive = _Archive(path)
    models = [n for n in archive.members if n == older_archive.PROGRAM or (n.startswith("models/") and n.endswith(".json"))]
    if len(models) != 1:
        raise archive.unsafe(f"holds {len(models)} exported programs; expected one")
    name = models[0][len("models/") : -len(".json")]
    try:
        described = validator.validate(archive.text(models[0]))
    except validator.Refused as error:
        raise archive.unsafe(str(error)) from error
    _check_libraries(validator.library_operators(described))
    if archive.older is not None:
        state, constants = older_archive.weights_and_constants(archive.older)
    else:
        state = _tensors(archive, "weights", f"data/weights/{name}_weights_config.json")
        constants = _tensors(archive, "constants", f"data/constants/{name}_constants_config.json")
    from torch._export.serde import schema, serialize

    try:
        program = serialize.ExportedProgramDeserializer(None).deserialize(
            serialize._dict_to_dataclass(schema.ExportedProgram, described), state, constants, None
        )
        if archive.older is not None:
            older_archive.infer_shapes(program)
    except OnnxbridgeError:
        raise
    except Exception as error:
        text = quoted((str(error).strip() or type(error).__name__).splitlines()[0])  # which may hold whole graphs
        raise archive.unsafe(f"cannot be read by PyTorch {torch.__version__} ({text})") from error
    return program


def _check_libraries(called: Sequence[str]) -> None:
    """Reject a program that calls third-party operators without a rule, or not registered in this process.

    Raises:
        ConversionError: listing them.
    """
    from onnxbridge.frontends.pytorch.ops import rule

    problems = []
    for name in dict.fromkeys(called):
        reasons = [] if name in rule else ["no rule"]
        reasons += [] if _is_registered(name) else ["not registered with torch.library in this process"]
        if reasons:
            hint = f"import the module that registers {name} and a rule for it: --import MODULE, imports=['MODULE']"
            problems.append(Problem(name, " and ".join(reasons), hint, (SourceLocation(),) * called.count(name)))
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
        raise archive.unsafe(f"has no list of {folder}")
    for name, entry in entries.items():
        filename = str(entry.get("path_name", ""))
        if entry.get("use_pickle") or not filename.startswith(("tensor_", "weight_")) or not validator.is_path(name):
            raise archive.unsafe(f"{_PICKLED} ({folder} {quoted(name)})")
        member = f"data/{folder}/{filename}"
        if member not in archive.members:
            raise archive.unsafe(f"has no {quoted(member)}")
        tensor = _tensor(archive, name, member, entry.get("tensor_meta"))
        found[name] = torch.nn.Parameter(tensor, requires_grad=False) if entry.get("is_param") else tensor
    return found


def _tensor(archive: _Archive, name: str, member: str, meta: Any) -> Any:
    """A tensor that views the file's bytes."""
    torch = frameworks.torch()
    from torch._export.serde.serialize import deserialize_scalar_type

    try:
        dtype = deserialize_scalar_type(meta["dtype"])
        sizes, strides = ([int(d["as_int"]) for d in meta[key]] for key in ("sizes", "strides"))
        offset = int(meta["storage_offset"]["as_int"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise archive.unsafe(f"has invalid metadata of the tensor {quoted(name)}") from error
    start, size = archive.members[member]
    count = size // dtype.itemsize
    numel = math.prod(sizes)
    if min([*sizes, *strides, offset], default=0) < 0 or len(sizes) != len(strides) or len(sizes) > 64:
        raise archive.unsafe(f"has invalid metadata of the tensor {quoted(name)}")
    reach = offset + sum((s - 1) * t for s, t in zip(sizes, strides, strict=True)) + 1 if numel else 0
    if reach > count or numel > count:
        raise archive.unsafe(f"declares shape {sizes} for the tensor {quoted(name)}, but stores {count} elements")
    if not numel:
        return torch.empty(sizes, dtype=dtype)
    if start % dtype.itemsize:
        flat = torch.frombuffer(bytearray(archive.data[start : start + count * dtype.itemsize]), dtype=dtype)
    else:
        flat = torch.frombuffer(archive.data, dtype=dtype, count=count, offset=start)
    return flat.as_strided(sizes, strides, offset)
