"""The arguments `isolate` and `limits`, which functions that read models share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from onnxbridge.hub.io.limits import Limits, limiting
from onnxbridge.hub.io.resource_limits import folding_limited
from onnxbridge.isolation import Mode, isolating

P = ParamSpec("P")
Result = TypeVar("Result")


def guarded(function: Callable[P, Result]) -> Callable[P, Result]:
    """Put the arguments `isolate` and `limits` of a call into force while it runs."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        mode, limits = cast(Mode | None, kwargs.get("isolate")), cast(Limits | None, kwargs.get("limits"))
        with isolating(mode), limiting(limits), folding_limited():
            return function(*args, **kwargs)

    return called
