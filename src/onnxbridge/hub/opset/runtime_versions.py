"""Versions supported by runtime releases: opset of ai.onnx, IR version and version of ai.onnx.ml.

A release supports everything that earlier ones do, so an unlisted release has the limits of the next older listed one. Where
sources differ the lower number is used.

Sources: up to 1.20 the table of https://onnxruntime.ai/docs/reference/compatibility.html; its rows 1.11 and 1.15 name opsets
(16, 19) that the version matrix of onnxruntime/docs/Versioning.md and the release notes do not have yet. 1.21: the release
of ONNX that it was built with (VERSION_TABLE in onnx/helper.py). The newest: by loading models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnxbridge.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """The newest versions that a release supports."""

    opset: int
    ir_version: int
    ml: int


_RUNTIMES: dict[str, dict[tuple[int, int], Limits]] = {
    "onnxruntime": {
        (0, 1): Limits(8, 3, 1),
        (0, 3): Limits(9, 3, 1),
        (0, 4): Limits(10, 5, 1),
        (1, 0): Limits(11, 6, 2),
        (1, 3): Limits(12, 6, 2),
        (1, 6): Limits(13, 7, 2),
        (1, 8): Limits(14, 7, 2),
        (1, 9): Limits(15, 7, 2),
        (1, 12): Limits(17, 8, 3),
        (1, 14): Limits(18, 8, 3),
        (1, 16): Limits(19, 9, 3),
        (1, 17): Limits(20, 9, 4),
        (1, 18): Limits(21, 10, 4),
        (1, 21): Limits(22, 10, 5),
        (1, 31): Limits(26, 13, 5),
    },
}
_ALIASES = {"onnxruntime-gpu": "onnxruntime", "ort": "onnxruntime"}


def limits(requirement: str) -> Limits:
    """The limits of a release such as "onnxruntime==1.17": pip's package name, and a version with or without patch level."""
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:==|=)\s*(0|[1-9]\d*)\.(0|[1-9]\d*)(?:\.\w+)*\s*", requirement)
    name = found and _ALIASES.get(found[1].lower(), found[1].lower())
    if found is None or name not in _RUNTIMES:
        raise UsageError(f'{requirement!r} is not a known runtime; write "{next(iter(_RUNTIMES))}==1.17"')
    release = int(found[2]), int(found[3])
    newest = max(_RUNTIMES[name])
    if release[0] > newest[0]:
        raise UsageError(f"{requirement}: the newest release known is {'.'.join(map(str, newest))}")
    listed = [version for version in _RUNTIMES[name] if version <= release]
    if not listed:
        raise UsageError(f"{requirement}: the oldest release known is {'.'.join(map(str, min(_RUNTIMES[name])))}")
    return _RUNTIMES[name][max(listed)]
