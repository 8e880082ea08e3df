"""What went wrong in a trace, in a sentence that names the user's own line."""

from __future__ import annotations

import builtins
import re
import traceback
from collections.abc import Iterator

from onnxbridge.frontends.pytorch.fx.graph_reader import location_of
from onnxbridge.hub.ir.source_locations import relative

_INTERNAL = re.compile(r"\s*\((?:unhinted|Size-like symbols):? .*")
"""What torch says of its symbols, which are in no user's code."""


def described(error: BaseException) -> str:
    """The first line of an error's text, and where the user's code raised it: "KeyError: 's', at net.py:9 in forward"."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = _INTERNAL.sub("", text)
    if type(error) is KeyError:
        text = f"its code asks for the key {text}, which is not there"
    elif getattr(builtins, type(error).__name__, None) is type(error) and not isinstance(error, RuntimeError):
        text = f"{type(error).__name__}: {text}"
    where = location(error)
    return f"{text} (at {where})" if where else text


def location(error: BaseException) -> str:
    """The innermost line of the user's own code that an error went through, "net.py:9 in forward"; empty where there is none."""
    for each in _chain(error):
        frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(each.__traceback__)]
        found = location_of(frames)
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
