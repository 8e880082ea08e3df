"""Others' loggers, silent while they work for us: what goes wrong is raised, and reported in our words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_found: dict[str, tuple[int, list[logging.Logger]]] = {}


def _below(name: str) -> list[logging.Logger]:
    """The loggers of this name and below it, looked for again when there are new ones of any name."""
    known = logging.root.manager.loggerDict
    count, found = _found.get(name, (0, []))
    if count != len(known):
        below = f"{name}."
        found = [
            log for key, log in list(known.items()) if (key == name or key.startswith(below)) and isinstance(log, logging.Logger)
        ]
        _found[name] = len(known), found
    return found


@contextmanager
def hushed(name: str) -> Iterator[None]:
    """Nothing is logged by the logger of this name and those below it.

    Each is disabled by itself: to change a level empties the caches of every logger of the process.
    """
    speaking = [log for log in _below(name) if not log.disabled]
    for log in speaking:
        log.disabled = True
    top = logging.getLogger(name)  # what is made below it meanwhile is not disabled, and hands its records up
    handlers, propagates = top.handlers, top.propagate
    top.handlers, top.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        top.handlers, top.propagate = handlers, propagates
        for log in speaking:
            log.disabled = False
