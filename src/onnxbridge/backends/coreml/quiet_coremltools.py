"""Keeps coremltools' progress bars and remarks from the user: what is narrowed is checked and noted here."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Runs coremltools without what it prints."""
    loaded = [m for name, m in list(sys.modules.items()) if name.startswith("coremltools.")]
    bars = [(m, name, getattr(m, name)) for m in loaded for name in ("tqdm", "_tqdm") if callable(getattr(m, name, None))]
    logger = logging.getLogger("coremltools")
    level = logger.level
    for module, name, _ in bars:
        setattr(module, name, _plain)
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, name, bar in bars:
            setattr(module, name, bar)
        logger.setLevel(level)


class _plain:
    """A progress bar that shows nothing."""

    def __init__(self, items: object = (), **_: object) -> None:
        self._items = items

    def __iter__(self) -> Iterator[object]:
        return iter(self._items)  # type: ignore[call-overload, no-any-return]

    def __enter__(self) -> _plain:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def update(self, n: int = 1) -> None:
        """Nothing is counted."""
