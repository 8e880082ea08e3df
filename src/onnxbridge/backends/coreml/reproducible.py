"""Gives the same Core ML model the same bytes: coremltools writes random identifiers and maps without an order."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from onnxbridge.frameworks import coremltools


def make_reproducible(path: Path) -> None:
    """Rewrite an .mlpackage or .mlmodel with identifiers made of the paths of its parts, and maps in the order of keys."""
    if path.is_file():
        _order_maps(path)
        return
    manifest_file = path / "Manifest.json"
    manifest = json.loads(manifest_file.read_text(encoding="utf-8"))
    entries = manifest["itemInfoEntries"]
    identifiers = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, entry["path"])) for old, entry in entries.items()}
    manifest["itemInfoEntries"] = {identifiers[old]: entry for old, entry in entries.items()}
    root = manifest["rootModelIdentifier"]
    manifest["rootModelIdentifier"] = identifiers[root]
    manifest_file.write_text(json.dumps(manifest, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    _order_maps(path / "Data" / entries[root]["path"])


def _order_maps(path: Path) -> None:
    model = coremltools().proto.Model_pb2.Model()
    model.ParseFromString(path.read_bytes())
    path.write_bytes(model.SerializeToString(deterministic=True))
