"""What the releases of a runtime load: the newest opset of ai.onnx, IR version, and version of ai.onnx.ml.

A release loads everything that those before it did, so one that is not listed counts as the next older one that is. Where
sources differ the lower number stands here.

Sources: up to 1.20 the table of https://onnxruntime.ai/docs/reference/compatibility.html; its rows 1.11 and 1.15 name opsets
(16, 19) that the version matrix of onnxruntime/docs/Versioning.md and the release notes do not name yet. 1.21 by the release
of ONNX that it was built with (VERSION_TABLE in onnx/helper.py); the newest by loading models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnxbridge.errors import UsageError


@dataclass(frozen=True)
class Limits:
    """What one release loads at most."""

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
_ALSO_CALLED = {"onnxruntime-gpu": "onnxruntime", "ort": "onnxruntime"}


def limits(requirement: str) -> Limits:
    """What "onnxruntime==1.17" loads; the name as pip knows it, the version with or without a patch level."""
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:==|=)\s*(0|[1-9]\d*)\.(0|[1-9]\d*)(?:\.\w+)*\s*", requirement)
    name = found and _ALSO_CALLED.get(found[1].lower(), found[1].lower())
    if found is None or name not in _RUNTIMES:
        raise UsageError(f'{requirement!r} names no runtime that is known here; write "{next(iter(_RUNTIMES))}==1.17"')
    release = int(found[2]), int(found[3])
    newest = max(_RUNTIMES[name])
    if release[0] > newest[0]:
        raise UsageError(f"{requirement}: the newest release known is {'.'.join(map(str, newest))}")
    listed = [at for at in _RUNTIMES[name] if at <= release]
    if not listed:
        raise UsageError(f"{requirement}: the oldest release known is {'.'.join(map(str, min(_RUNTIMES[name])))}")
    return _RUNTIMES[name][max(listed)]
