"""Error messages of TensorFlow and Keras, which write titles and stack frames before the reason."""

from __future__ import annotations

import re

# Above the reason stand titles, and stack frames with a line of code below each.
_TITLE = re.compile(r"Graph execution error:?|in user code:?|Exception encountered when calling .*|\d+ root error\(s\) found\.?")
_DETAIL = re.compile(
    r"\s*(Detected at node .*|\[\[\{\{node .*|\d+ successful operations\.|\d+ derived errors ignored\..*|"
    r"Original stack trace for .*|\^+)?\s*"
)
_FRAME = re.compile(r"(\s*)File \".*\", line \d+")
_STYLE = re.compile(r"\x1b\[[0-9;]*m|^\s*\{\{function_node [^}]*\}\} ?| \[Op:\w+\]")


def main_line(error: BaseException | str) -> str:
    """The line of TensorFlow's or Keras's message that gives the reason: the first, or the last one below a title."""
    lines = _STYLE.sub("", str(error)).strip().splitlines() or ["no message"]
    if not _TITLE.fullmatch(lines[0].strip()):
        return lines[0]
    reasons: list[str] = []
    indent = None
    for line in lines[1:]:
        frame = _FRAME.match(line)
        code = indent is not None and len(line) - len(line.lstrip()) > indent
        indent = len(frame[1]) if frame else None if line.strip() and not code else indent
        if line.startswith("Arguments received by"):
            break
        if not frame and not code and not _DETAIL.fullmatch(line) and not _TITLE.fullmatch(line.strip()):
            reasons.append(line.strip())
    return reasons[-1] if reasons else lines[0]
