"""The identity of a job: a hash of the source's bytes, of the options and of onnxbridge's version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NOT_OPTIONS = ("source", "weights", "output", "force", "timeout", "memory")
"""Keys that do not change what a job writes."""


def identity(job: Mapping[str, Any], local: Mapping[str, Any]) -> str:
    """The identity of a job: equal jobs have equal ones, wherever their sources lie.

    The file of a factory's module is hashed, what it imports is not.

    Args:
        local: the job with the paths of its sources on this machine.
    """
    from onnxbridge import __version__

    options = {k: v for k, v in job.items() if k not in _NOT_OPTIONS}
    factory = job["source"].rpartition(":")[2] if not os.path.exists(local["source"]) else ""
    content = [__version__, factory, _digests(local), options]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _digests(local: Mapping[str, Any]) -> list[str]:
    from onnxbridge.api._arguments.early_checks import source_files
    from onnxbridge.hub.ir.provenance import sha256

    parts = [local["source"], *([local["weights"]] if local.get("weights") else [])]
    return [sha256(file) for file in (*source_files(parts), *external_files(Path(local["source"])))]


def external_files(source: Path) -> list[Path]:
    """The files of weights beside an ONNX file."""
    if source.suffix != ".onnx" or not source.is_file():
        return []
    from onnxbridge.hub.io.onnx_files import EXTERNAL_FILES, read

    return [source.parent / location for location in read(source).meta.get(EXTERNAL_FILES, ())]
