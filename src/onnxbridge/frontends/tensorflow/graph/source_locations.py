"""The source location of an operator: the user's line and the operator's name, which includes the Keras layer."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Callable
from importlib import resources
from typing import Any

from onnxbridge.errors import SourceLocation
from onnxbridge.hub.ir.source_locations import relative

_PACKAGE = str(resources.files("onnxbridge"))


@functools.cache
def _foreign(path: str) -> bool:
    """Whether a file is not the user's: an installed package, or Python itself."""
    folders = {sysconfig.get_paths()[k] for k in ("purelib", "platlib", "stdlib")}
    return path.startswith((*folders, "<", "/dev/fd")) or "site-packages" in path


def location_finder() -> Callable[[Any], SourceLocation]:
    """A function that returns an operator's location; equal stacks are resolved once."""
    seen: dict[tuple[str, int], tuple[str, int]] = {}

    def where(op: Any) -> SourceLocation:
        file, line = "", 0
        stack = op.traceback
        for frame in reversed(stack.get_user_frames()) if stack is not None else ():
            if frame.filename.startswith(_PACKAGE):
                break  # outer frames only called onnxbridge
            if not _foreign(frame.filename):
                key = (frame.filename, frame.lineno)
                if key not in seen:
                    seen[key] = (relative(frame.filename), frame.lineno)
                file, line = seen[key]
                break
        return SourceLocation(file, line, node=op.name)

    return where
