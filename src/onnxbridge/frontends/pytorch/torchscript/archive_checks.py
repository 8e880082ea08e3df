"""TorchScript archives, checked before PyTorch reads them.

PyTorch gets a new archive with only what was checked: it finds the members of an archive in its own way, and the file
itself could have been exchanged meanwhile.
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
from onnxbridge.frontends.pytorch.torchscript import code_checks, pickle_checks
from onnxbridge.frontends.pytorch.torchscript.tokenizer import Refused
from onnxbridge.hub.io.zip_archives import Archive, content, open_archive

_MOST_CODE = 64 << 20
_MOST_PICKLE = 64 << 20
_PIECE = 16 << 20
_MOST_IN_MEMORY = 512 << 20
_WAY_OUT = "export the module again with torch.export.save"


@contextmanager
def checked(path: Any) -> Iterator[str]:
    """The path of a temporary file with what is safe of the archive: its code, pickles and tensors.

    Raises:
        UnsafeFileError: where the archive reaches out of the model, or is damaged.
        LimitError: where there is more code than a model has.
        UsageError: where this PyTorch does not have its operators.
    """
    archive = open_archive(path, _WAY_OUT)
    texts = _texts(archive)
    with _temporary(len(archive.data)) as (file, name):
        _write(archive, texts, file)
        yield name


@contextmanager
def _temporary(size: int) -> Iterator[tuple[IO[bytes], str]]:
    """A new file and its path: in memory where it is small, since disks can be slow, else in a folder of its own."""
    if size <= _MOST_IN_MEMORY and hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with open(os.memfd_create("onnxbridge"), "w+b") as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="onnxbridge-") as folder:
        path = os.path.join(folder, "checked.pt")
        with open(path, "xb") as file:
            yield file, path


def _texts(archive: Archive) -> dict[str, bytes]:
    """Code, pickles and versions, checked."""
    inner = {name.partition("/")[2]: name for name in archive.members}
    if len({name.partition("/")[0] for name in archive.members}) > 1 or len(inner) < len(archive.members):
        raise UnsafeFileError(f"{archive.shown}: has more than one root; {_WAY_OUT}.")
    code = [name for name in inner if name.startswith("code/") and name.endswith(".py")]
    if sum(archive.members[inner[name]].size for name in code) > _MOST_CODE:
        raise LimitError(f"{archive.shown}: has more than {_MOST_CODE >> 20} MiB of code.")
    found = {inner[name]: content(archive, inner[name], _MOST_CODE) for name in code}
    pickles = {name: content(archive, inner[name], _MOST_PICKLE) for name in ("data.pkl", "constants.pkl") if name in inner}
    small = {inner[name]: content(archive, inner[name], 1000) for name in ("version", "byteorder") if name in inner}
    try:
        code_checks.check({name.partition("/code/")[2][:-3].replace("/", "."): data for name, data in found.items()})
        for name, data in pickles.items():
            folder = name.removesuffix(".pkl") + "/"
            sizes = {n[len(folder) :]: archive.members[inner[n]].size for n in inner if n.startswith(folder)}
            pickle_checks.check(data, sizes, code_checks.check_type)
    except Refused as refused:
        raise UnsafeFileError(f"{archive.shown}: {refused}; {_WAY_OUT}.") from refused
    except code_checks.Unknown as unknown:
        torch = frameworks.torch()
        raise UsageError(
            f"{archive.shown}: calls {unknown}, which PyTorch {torch.__version__} does not have; "
            "install the version that saved it, and import the library that has the operator."
        ) from unknown
    return found | {inner[name]: data for name, data in pickles.items()} | small


def _write(archive: Archive, texts: dict[str, bytes], target: IO[bytes]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name, member in archive.members.items():
            inner = name.partition("/")[2]
            if name in texts:
                new.writestr(f"checked/{inner}", texts[name])
            elif inner.startswith(("data/", "constants/")):
                if member.deflated:
                    raise UnsafeFileError(f"{archive.shown}: has compressed tensors, which PyTorch does not write; {_WAY_OUT}.")
                info = zipfile.ZipInfo(f"checked/{inner}")
                info.file_size = member.size
                with new.open(info, "w") as file:
                    for at in range(member.start, member.start + member.size, _PIECE):
                        file.write(archive.data[at : min(at + _PIECE, member.start + member.size)])
    target.flush()
