"""TorchScript archives, looked at before PyTorch reads them: their code must not reach out of the model."""

from __future__ import annotations

import os
import re
import zipfile
from typing import Any

from onnxbridge.errors import LimitError, UnsafeFileError

_MOST_CODE = 64 << 20
# what TorchScript can call that touches files, other processes or raw memory, and code that runs while a file is read
_REACHING = re.compile(
    rb"\b(?:from_file|torch\.save|torch\.load|ops\.aten\.(?:save|load|from_file|set_)|ops\.prim\.(?:fork|rpc\w*)|torch\.classes\.\w+|"
    rb"ops\.(?!aten\b|prim\b|torchvision\b|quantized\b)\w+\.\w+|def __setstate__)"
)


def check(path: Any) -> None:
    """Look through the archive's code.

    Raises:
        UnsafeFileError: where it calls anything that reaches out of the model.
        LimitError: where there is more code than a model has.
    """
    shown = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [i for i in archive.infolist() if i.filename.endswith(".py")]
            if sum(i.file_size for i in members) > _MOST_CODE:
                raise LimitError(f"{shown}: has more than {_MOST_CODE >> 20} MiB of code.")
            for member in members:
                found = _REACHING.search(archive.read(member))
                if found is not None:
                    raise UnsafeFileError(
                        f"{shown}: its code has {found.group().decode(errors='replace')!r}, which no model needs; "
                        "export the module again with torch.export.save."
                    )
    except (zipfile.BadZipFile, OSError) as error:
        raise UnsafeFileError(f"{shown}: is no readable archive ({error}).") from error
