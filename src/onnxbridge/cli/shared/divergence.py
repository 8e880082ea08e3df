"""What `convert` and `verify` do where two models differ: name the `bisect` command, or run it at once (`--bisect`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from onnxbridge.cli.shared import shell

_OPTIONS = {
    "frontend": "--from", "inputs": "--inputs", "dynamic": "--dynamic", "imports": "--import", "rtol": "--rtol", "atol": "--atol",
    "data": "--data", "samples": "--samples", "seed": "--seed", "device": "--device", "time_limit": "--time-limit",
}  # fmt: skip
"""The options that `bisect` shares with `convert` and `verify`, by the names of the Python API."""
_DEFAULTS = {"seed": 0, "device": "auto"}


def bisect_command(source: str, weights: str | None, candidate: str, settings: Mapping[str, Any]) -> str:
    """The command that finds where the two diverge, with the options that were given."""
    words = ["onnxbridge", "bisect", source, candidate, *(["--weights", weights] if weights else [])]
    for name, flag in _OPTIONS.items():
        given = settings.get(name)
        if given is None or given == _DEFAULTS.get(name):
            continue
        if isinstance(given, Mapping):
            given = [f"{output}={number}" if output else f"{number}" for output, number in given.items()]
        for value in given if isinstance(given, list) else [given]:
            words += [flag, str(value)]
    return shlex.join(words)


def tell_or_bisect(
    source: str, weights: str | None, candidate: str, settings: Mapping[str, Any], *, at_once: bool, quiet: bool, as_json: bool
) -> None:
    """Print the command, or what it finds with `at_once`."""
    from onnxbridge import api
    from onnxbridge.errors import OnnxbridgeError

    command = bisect_command(source, weights, candidate, settings)
    if not at_once:
        shell.note(f"find where they diverge: {command}")
        return
    shared = {name: value for name, value in settings.items() if name in _OPTIONS}
    try:
        with shell.stages(quiet) as progress:
            found = api.bisect((source, weights) if weights else source, candidate, progress=progress, **shared)
    except OnnxbridgeError as e:  # the verification's own result stands
        shell.note(f"--bisect: {e}")
        return
    shell.outcome.tell(bisection=found.as_dict())
    shell.outcome.draw(found)
    if not as_json:
        shell.say(str(found))
