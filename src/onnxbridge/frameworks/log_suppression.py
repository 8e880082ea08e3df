"""Disables loggers of other libraries temporarily; errors are raised, and reported by onnxbridge."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_cache: dict[str, tuple[int, list[logging.Logger]]] = {}


def _descendants(name: str) -> list[logging.Logger]:
    """The logger of this name and its descendants; cached until any logger is created."""
    known = logging.root.manager.loggerDict
    count, loggers = _cache.get(name, (0, []))
    if count != len(known):
        prefix = f"{name}."
        loggers = [
            log for key, log in list(known.items()) if (key == name or key.startswith(prefix)) and isinstance(log, logging.Logger)
        ]
        _cache[name] = len(known), loggers
    return loggers


@contextmanager
def loggers_disabled(name: str) -> Iterator[None]:
    """Disable the logger of this name and its descendants.

    Sets `disabled` on each logger, because changing a level clears the caches of every logger of the process.
    """
    enabled = [log for log in _descendants(name) if not log.disabled]
    for log in enabled:
        log.disabled = True
    parent = logging.getLogger(name)  # descendants created meanwhile are not disabled, and propagate to it
    handlers, propagates = parent.handlers, parent.propagate
    parent.handlers, parent.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        parent.handlers, parent.propagate = handlers, propagates
        for log in enabled:
            log.disabled = False
