"""The versions that PyTorch writes into its files."""

from __future__ import annotations

import json
import os

from onnxbridge.hub.io.zip_archives import content, open_archive

_HINT = "save the model again"
_MOST_TEXT = 512 << 20
_SHORT = {"archive_format": "archive_format", "archive_version": "archive_version", "version": "file_version"}


def file_versions(path: str | os.PathLike[str]) -> dict[str, str]:
    """The versions in a `.pt2` file (of PyTorch, its schema and its operators) or in a TorchScript file."""
    archive = open_archive(path, _HINT)
    found: dict[str, str] = {}
    for full, member in archive.members.items():
        name = full.partition("/")[2]
        if name in _SHORT and member.size < 100:
            found[_SHORT[name]] = content(archive, full, _MOST_TEXT).decode("utf-8", "replace").strip()
        elif name.startswith("models/") and name.endswith(".json"):
            found |= _of_program(content(archive, full, _MOST_TEXT))
    return found


def _of_program(text: bytes) -> dict[str, str]:
    try:
        stored = json.loads(text)
    except ValueError:
        return {}
    schema, opsets = stored.get("schema_version", {}), stored.get("opset_version", {})
    return {
        "torch_version": str(stored.get("torch_version", "")),
        "schema_version": f"{schema.get('major', '')}.{schema.get('minor', '')}",
        "opset_version": ", ".join(f"{name} {version}" for name, version in opsets.items()),
    }
