"""When compiled kernels are worth waiting for.

Importing Numba and loading kernels takes about half a second, compiling those of a model many seconds. So a model starts in
NumPy, its operations are counted (`work.py`), and kernels are used where they save more than they cost. Operations are counted
and not timed, so that a model gets the same kernels, and so the same last digits, on a slow machine and on a fast one.

The half second is short: a model that was run for a fiftieth of it is taken to be run on and on. Compiling is long: it comes
when NumPy did as much, so that nobody waits more than twice as long as was needed, and later processes load what was compiled.
Which kernels a plan needs is known when it requests them: the first that is missing too early ends that run with `TooEarly`, and
NumPy does it.

ONNXBRIDGE_NATIVE=1 uses kernels at once, 0 never.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from onnxbridge.runtime.executor.kernels.compile import availability, cache
from onnxbridge.runtime.executor.work import PER_SECOND

LOAD = PER_SECOND // 100
"""Operations in NumPy before Numba is imported."""
COMPILE = 8 * PER_SECOND
"""Operations in NumPy before kernels are compiled: those of a model, 4 to 11 of them, take 4 to 11 seconds."""


class TooEarly(BaseException):
    """A kernel is missing that is not worth compiling yet. Not an Exception, so that no rule catches it."""


class Account:
    """The operations that NumPy did for a model, and whether kernels are worth it."""

    def __init__(self) -> None:
        self.work = 0
        self.compiles = False  # whatever is missing: a model that runs with kernels gets those that other shapes need
        self._least = LOAD

    def pays(self) -> bool:
        """Whether to use compiled kernels."""
        if not availability.available() or availability.at_once():
            return availability.available()
        if self.work >= self._least == LOAD and not cache.has("*", "*"):
            self._least = COMPILE
        return self.work >= self._least

    @contextlib.contextmanager
    def guarding(self) -> Iterator[None]:
        """A context in which kernels are used only if they are worth it.

        Raises:
            TooEarly: if a kernel is missing before that.
        """
        token = _account.set(self)
        try:
            yield
        except TooEarly:
            self._least = COMPILE
            raise
        finally:
            _account.reset(token)

    def admits(self, module: str, name: str) -> bool:
        """Whether a kernel may be loaded, or compiled if it has to be."""
        return self.compiles or availability.at_once() or self.work >= COMPILE or cache.has(module, name)


_account: ContextVar[Account | None] = ContextVar("onnxbridge_account", default=None)


def check(module: str, name: str) -> None:
    """Called before a kernel is loaded.

    Raises:
        TooEarly: if it would have to be compiled, for a model that did too little so far.
    """
    account = _account.get()
    if account is not None and not account.admits(module, name):
        raise TooEarly(f"{module}.{name}")
