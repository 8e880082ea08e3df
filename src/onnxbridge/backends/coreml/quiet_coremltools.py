"""Keeps coremltools from printing progress bars and warnings, and from collecting all garbage.

The backend itself checks and notes lossy casts.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context in which coremltools prints nothing."""
    loaded = [m for name, m in list(sys.modules.items()) if name.startswith("coremltools.")]
    bars = [(m, name, getattr(m, name)) for m in loaded for name in ("tqdm", "_tqdm") if callable(getattr(m, name, None))]
    logger = logging.getLogger("coremltools")
    level = logger.level
    for module, name, _ in bars:
        setattr(module, name, _SilentProgressBar)
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, name, bar in bars:
            setattr(module, name, bar)
        logger.setLevel(level)


@contextlib.contextmanager
def collects_only_its_own() -> Iterator[None]:
    """Context in which Python's garbage collector, which coremltools runs, does not visit the objects that exist already. Beside
    an imported framework that takes half a second, more than ten times as long as the conversion of a small model."""
    frozen_by_others = gc.get_freeze_count() > 0
    if not frozen_by_others:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen_by_others:
            gc.unfreeze()


class _SilentProgressBar:
    """A progress bar that shows nothing."""

    def __init__(self, items: object = (), **_: object) -> None:
        self._items = items

    def __iter__(self) -> Iterator[object]:
        return iter(self._items)  # type: ignore[call-overload, no-any-return]

    def __enter__(self) -> _SilentProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def update(self, n: int = 1) -> None:
        """Progress is not displayed."""
