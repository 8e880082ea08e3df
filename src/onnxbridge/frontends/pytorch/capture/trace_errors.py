"""One-line descriptions of tracing errors, with the user's own source line."""

from __future__ import annotations

import builtins
import re
import traceback
from collections.abc import Iterator

from onnxbridge.frontends.pytorch.fx.graph_reader import user_frame
from onnxbridge.hub.ir.source_locations import relative

_INTERNAL = re.compile(r"\s*\((?:unhinted|Size-like symbols):? .*")
"""Torch's remarks about its own symbols."""


def describe(error: BaseException) -> str:
    """The first line of an error message, and the location in the user's code: "KeyError: 's', at net.py:9 in forward"."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = _INTERNAL.sub("", text)
    if type(error) is KeyError:
        text = f"KeyError: the code looks up the key {text}, which does not exist"
    elif getattr(builtins, type(error).__name__, None) is type(error) and not isinstance(error, RuntimeError):
        text = f"{type(error).__name__}: {text}"
    where = location(error)
    return f"{text} (at {where})" if where else text


def location(error: BaseException) -> str:
    """The innermost location in the user's own code in a traceback, "net.py:9 in forward"; empty if there is none."""
    for cause in _chain(error):
        frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(cause.__traceback__)]
        found = user_frame(frames)
        if found is not None:
            file, line, function = found
            return f"{relative(file)}:{line} in {function}"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
