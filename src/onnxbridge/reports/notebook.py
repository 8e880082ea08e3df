"""What notebooks show of a result: the parts of its HTML report that need no script."""

from __future__ import annotations

import importlib.util
from html import escape

from onnxbridge.reports.document import Result, document
from onnxbridge.reports.plots import plots


def html_of(found: Result, command: str) -> str:
    """The HTML of a result; its text where the packages for HTML reports are not installed (`pip install 'onnxbridge[report]'`).

    Args:
        command: that the result belongs to: "convert", "verify" or "bisect".
    """
    if any(importlib.util.find_spec(name) is None for name in ("jinja2", "networkx")):
        return f"<pre>{escape(str(found))}</pre>"
    from onnxbridge.reports.html.page import fragment

    return fragment({**document(found, command=command), "plots": plots(found)})
