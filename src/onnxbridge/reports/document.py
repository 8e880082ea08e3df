"""The document that all reports are written from: what a command found, with versions and time, as JSON values."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

SCHEMA = "onnxbridge-report/1"
"""The name and version of the format, the value of the key "schema"."""
_PACKAGES = ("numpy", "onnx", "onnx_ir", "onnxruntime", "torch", "tensorflow", "keras", "coremltools")


class Result(Protocol):
    """What `convert`, `verify`, `bisect` and `round_trip` return."""

    def as_dict(self) -> dict[str, Any]: ...


def document(
    found: Result | Mapping[str, Any], *, command: str, arguments: Sequence[str] = (), exit_code: int = 0,
    error: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The document of a result.

    Args:
        found: what `convert`, `verify`, `bisect` or `round_trip` returned, or the keys that the command adds.
        command: "convert", "verify", "bisect", "check" or "batch". The document of "batch" has the documents of its jobs in the
            key "jobs".
        arguments: of the command line, from the command on.
        error: `type`, `message` and `exit_code` of what ended the command; for unsupported operators also `problems`.
    """
    from onnxbridge.hub.ir.provenance import version_of

    keys = found if isinstance(found, Mapping) else found.as_dict()
    return {
        "schema": SCHEMA, "onnxbridge": version_of("onnxbridge"), "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command, "arguments": list(arguments), "exit_code": exit_code,
        "error": None if error is None else dict(error), **keys,
        "versions": versions(),
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Python's version, and those of the packages that took part."""
    from onnxbridge.hub.ir.provenance import version_of

    found = {"python": sys.version.split()[0]}
    return found | {name: version_of(name) for name in _PACKAGES if name in sys.modules}


def plain(value: Any) -> Any:
    """JSON values that any reader takes: infinities and NaN, for which JSON has no numbers, are strings ("Infinity", "NaN")."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def dumps(value: Any) -> str:
    """The JSON text of `plain(value)`; of a document, without what only HTML reports draw."""
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if key != "plots"}
    return json.dumps(plain(value), indent=2)
