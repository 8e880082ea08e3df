"""Functions that other languages call with JSON; R's package `onnxbridge` does (r/onnxbridge).

A request is `{"call": NAME, "with": {...}}`, the reply `{"result": ...}` or `{"error": {"type", "message", "exit_code"}}`. In a
process of its own:

    python -m onnxbridge.json_calls request.json reply.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from onnxbridge.errors import OnnxbridgeError, first_line


def call(text: str) -> str:
    """The reply to a request; errors are replies too."""
    from onnxbridge.json_calls import models, run

    functions: dict[str, Callable[..., Any]] = {
        "version": models.version, "signature": models.signature, "check": models.check, "readable": models.readable,
        "save": models.save, "infer_shapes": models.infer_shapes, "run": run.run,
    }  # fmt: skip
    try:
        request = json.loads(text)
        return json.dumps({"result": functions[request["call"]](**request["with"])})
    except Exception as error:  # a caller in another language sees every error as a reply
        ours = isinstance(error, OnnxbridgeError)
        message = str(error) if ours else f"{type(error).__name__}: {first_line(error)}"
        kind, code = (type(error).__name__, error.exit_code) if isinstance(error, OnnxbridgeError) else ("InternalError", 70)
        return json.dumps({"error": {"type": kind, "message": message, "exit_code": code}})
