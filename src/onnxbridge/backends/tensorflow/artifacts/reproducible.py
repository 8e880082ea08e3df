"""Writes saved Keras models and SavedModels so that the same model has the same bytes: without dates and random identifiers."""

from __future__ import annotations

import json
import re
import shutil
import uuid
import zipfile
from pathlib import Path

_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date that a zip archive can have."""
_SHARED = re.compile(r'("shared_object_id": )(\d+)')


def without_date(path: Path) -> None:
    """Rewrite a .keras archive: no dates, and objects that occur several times numbered in the order of their occurrence."""
    made = path.with_name(f"{path.name}.reproducible")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(made, "w") as target:
        for member in source.infolist():
            info = zipfile.ZipInfo(member.filename, _DATE)
            with source.open(member) as content, target.open(info, "w", force_zip64=True) as written:
                if member.filename == "metadata.json":
                    written.write(json.dumps(json.load(content) | {"date_saved": "1980-01-01@00:00:00"}).encode())
                elif member.filename == "config.json":
                    written.write(_numbered(content.read().decode()).encode())
                else:
                    shutil.copyfileobj(content, written, 1 << 20)
    made.replace(path)


def _numbered(config: str) -> str:
    numbers: dict[str, int] = {}
    return _SHARED.sub(lambda found: f"{found[1]}{numbers.setdefault(found[2], len(numbers) + 1)}", config)


def with_derived_fingerprint(folder: Path) -> None:
    """Give a SavedModel's fingerprint an identifier that is made of its checksums in place of a random one."""
    from tensorflow.core.protobuf import fingerprint_pb2

    path = folder / "fingerprint.pb"
    if not path.is_file() or "uuid" not in fingerprint_pb2.FingerprintDef.DESCRIPTOR.fields_by_name:  # as in TensorFlow 2.18
        return
    found = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    found.uuid = ""
    found.uuid = str(uuid.uuid5(uuid.NAMESPACE_URL, found.SerializeToString(deterministic=True).hex()))
    path.write_bytes(found.SerializeToString(deterministic=True))
