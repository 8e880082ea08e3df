"""JSON reports: the document itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxbridge.reports.document import dumps


def text(document: Mapping[str, Any]) -> str:
    return dumps(document) + "\n"
