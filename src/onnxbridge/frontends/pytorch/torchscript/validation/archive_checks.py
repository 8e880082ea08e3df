"""Validates TorchScript archives before PyTorch reads them.

PyTorch receives a new archive with only the validated members: it locates members by its own rules, and the original file could
be replaced in the meantime.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from onnxbridge import frameworks
from onnxbridge.errors import LimitError, UnsafeFileError, UsageError
from onnxbridge.frontends.pytorch.torchscript.validation import code_checks, pickle_checks
from onnxbridge.frontends.pytorch.torchscript.validation.tokenizer import Refused
from onnxbridge.hub.io.zip_archives import Archive, content, open_archive

_MAX_CODE = 64 << 20
_MAX_PICKLE = 64 << 20
_CHUNK = 16 << 20
_SMALL = ("version", ".data/version", "byteorder")
"""PyTorch writes the version into `.data` where the code calls an operator whose meaning has changed, such as gelu."""
MAX_IN_MEMORY = 512 << 20
_HINT = "export the module again with torch.export.save"


@contextmanager
def validated_copy(path: Any) -> Iterator[str]:
    """The path of a temporary archive with the validated code, pickles and tensors.

    Raises:
        UnsafeFileError: if the archive has effects outside the model, or is damaged.
        LimitError: if it has too much code.
        UsageError: if it calls operators that this PyTorch does not have.
    """
    archive = open_archive(path, _HINT)
    contents = _validated_members(archive)
    with _temporary_file(len(archive.data)) as (file, name):
        _write(archive, contents, file)
        yield name


@contextmanager
def _temporary_file(size: int) -> Iterator[tuple[IO[bytes], str]]:
    """A new file and its path: in memory if small, since disks can be slow, else in a new folder."""
    if size <= MAX_IN_MEMORY and hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with open(os.memfd_create("onnxbridge"), "w+b") as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        path = os.path.join(folder, "checked.pt")
        with open(path, "xb") as file:
            yield file, path


def _validated_members(archive: Archive) -> dict[str, bytes]:
    """The contents of code, pickles and versions, validated."""
    inner = {name.partition("/")[2]: name for name in archive.members}
    if len({name.partition("/")[0] for name in archive.members}) > 1 or len(inner) < len(archive.members):
        raise UnsafeFileError(f"{archive.shown}: has more than one root; {_HINT}.")
    code = [name for name in inner if name.startswith("code/") and name.endswith(".py")]
    if sum(archive.members[inner[name]].size for name in code) > _MAX_CODE:
        raise LimitError(f"{archive.shown}: has more than {_MAX_CODE >> 20} MiB of code.")
    found = {inner[name]: content(archive, inner[name], _MAX_CODE) for name in code}
    pickles = {name: content(archive, inner[name], _MAX_PICKLE) for name in ("data.pkl", "constants.pkl") if name in inner}
    small = {inner[name]: content(archive, inner[name], 1000) for name in _SMALL if name in inner}
    try:
        code_checks.check({name.partition("/code/")[2][:-3].replace("/", "."): data for name, data in found.items()})
        for name, data in pickles.items():
            folder = name.removesuffix(".pkl") + "/"
            sizes = {n[len(folder) :]: archive.members[inner[n]].size for n in inner if n.startswith(folder)}
            pickle_checks.check(data, sizes, code_checks.check_type)
    except Refused as refused:
        raise UnsafeFileError(f"{archive.shown}: {refused}; {_HINT}.") from refused
    except code_checks.UnknownOperator as unknown:
        torch = frameworks.torch()
        raise UsageError(
            f"{archive.shown}: calls {unknown}, which PyTorch {torch.__version__} does not have; "
            "install the version that saved it, or import the library that registers the operator."
        ) from unknown
    return found | {inner[name]: data for name, data in pickles.items()} | small


def _write(archive: Archive, contents: dict[str, bytes], target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name, member in archive.members.items():
            inner = name.partition("/")[2]
            if name in contents:
                new.writestr(f"checked/{inner}", contents[name])
            elif inner.startswith(("data/", "constants/")):
                if member.deflated:
                    raise UnsafeFileError(f"{archive.shown}: has compressed tensors; PyTorch stores them uncompressed; {_HINT}.")
                info = zipfile.ZipInfo(f"checked/{inner}")
                info.file_size = member.size
                with new.open(info, "w") as file:
                    for at in range(member.start, member.start + member.size, _CHUNK):
                        file.write(archive.data[at : min(at + _CHUNK, member.start + member.size)])
    target.flush()
