"""How many threads the user wants runs of models to use."""

from __future__ import annotations

import os


def requested_threads() -> int | None:
    """The environment variable ONNXBRIDGE_THREADS, None where it is not set or no number."""
    given = os.environ.get("ONNXBRIDGE_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else None
