"""The keys of a job, and what is wrong with one."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxbridge.errors import UsageError
from onnxbridge.hub.io.limits import EXAMPLE, Limits, parsed_limits
from onnxbridge.pipeline.store import is_url

OWN = frozenset({"source", "weights", "to", "output", "name", "timeout", "memory", "force", "isolate", "limits"})
"""The keys that `convert` does not have in this form."""
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SUFFIXES = r"(-symbol)?\.(json|onnx|pt2|pt|pth|keras|h5|mlpackage|mlmodel|onnxtxt|pbtxt)$"
_NAME = re.compile(r"[^\0/\\]{1,200}")


@functools.cache
def convert_keys() -> frozenset[str]:
    """The arguments of `convert` that a job may have."""
    from onnxbridge import api

    parameters = inspect.signature(api.convert).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY) - {"progress"}


@functools.cache
def known_keys() -> frozenset[str]:
    """All keys of a job: its own, arguments of `convert`, and the options of every installed plugin."""
    from onnxbridge import plugin_options, plugins

    found = OWN | convert_keys()
    for kind, get in (("frontend", plugins.frontend), ("backend", plugins.backend)):
        for name in plugins.installed(kind):
            found |= plugin_options.options(get(name)).keys()
    return found


def problem_of(job: Mapping[str, Any]) -> str:
    """What is wrong with a job, "" if nothing is that can be seen before its model is read."""
    from onnxbridge import plugins

    for key in job:
        if key not in known_keys():
            near = difflib.get_close_matches(str(key), known_keys(), 1)
            return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    source = job.get("source")
    if not isinstance(source, str) or not source:
        return "a job needs a 'source': a path, MODULE:FACTORY or a URL"
    for part in (source, job.get("weights")):
        if isinstance(part, str) and not is_url(part) and not os.path.exists(part) and not _is_factory(part):
            return f"there is no {part!r}"
    try:
        for to in targets_of(job):
            plugins.backend_name(to)
        bytes_of(job.get("memory"))
        limits_of(job)
    except UsageError as e:
        return str(e)
    if not isinstance(job.get("timeout", 1), (int, float)) or job.get("timeout", 1) <= 0:
        return f"timeout: {job['timeout']!r} is not a number of seconds"
    if job.get("isolate", True) not in (True, False, "auto"):
        return f"isolate: {job['isolate']!r} is not true, false or \"auto\""
    name = job.get("name", "model")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("."):
        return f"name: {name!r} is not a file name"
    return ""


def limits_of(job: Mapping[str, Any]) -> Limits | None:
    """The limits of a job.

    Raises:
        UsageError: if they are not in the form of `--limits`.
    """
    text = job.get("limits")
    if text is not None and not isinstance(text, str):
        raise UsageError(f"limits: {text!r} is not a text such as {EXAMPLE}")
    return None if text is None else parsed_limits(text)


def checked_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job with its name.

    Raises:
        UsageError: if something is wrong with it.
    """
    if reason := problem_of(job):
        raise UsageError(reason)
    return {"name": default_name(job["source"]), **{k: v for k, v in job.items() if v is not None}}


def targets_of(job: Mapping[str, Any]) -> list[str]:
    """The targets of a job.

    Raises:
        UsageError: if there is none.
    """
    to = job.get("to") or "onnx"
    found = [to] if isinstance(to, str) else list(to) if isinstance(to, (list, tuple)) else []
    if not found or not all(isinstance(name, str) for name in found):
        raise UsageError(f"to: {to!r} is not a target or a list of targets")
    return list(dict.fromkeys(found))


def bytes_of(text: Any) -> int | None:
    """A number of bytes such as 4GiB, 500MB or 1000000.

    Raises:
        UsageError: for anything else.
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(text).lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise UsageError(f"{text!r} is not a size in bytes; write it as 4GiB, 500MB or 1000000")
    return int(float(found[1]) * _UNITS[found[2]])


def default_name(source: str) -> str:
    """The name of a source's artifacts: the file's name without its suffixes, or the factory's."""
    if not is_url(source) and not os.path.exists(source) and _is_factory(source):
        return source.rpartition(":")[2]
    return re.sub(_SUFFIXES, "", Path(source.rstrip("/")).name) or "model"


def _is_factory(text: str) -> bool:
    module, found, name = text.partition(":")
    return bool(found) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))
