"""Progress of long work: a bar on a terminal and in Jupyter, lines elsewhere.

Functions report stages by name to a callback: "writing Core ML", or with what is known of the rest "verifying 2/3".
"""

from __future__ import annotations

import functools
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, ParamSpec, TypeVar

from onnxbridge.diagnostics import one_line
from onnxbridge.errors import UsageError

P = ParamSpec("P")
Result = TypeVar("Result")
OnStage = Callable[[str], None]
Progress = Any
"""An `OnStage`, or "auto" for one that shows the stages."""
FIRST_LINE = 15.0
"""Seconds after which a stage is named where no bar can be shown, and again each time that it has taken twice as long."""


def quiet(stage: str) -> None:
    """The default `progress` callback: ignores the stage."""


def with_progress(function: Callable[P, Result]) -> Callable[P, Result]:
    """Let a function that takes `progress` show it itself: for "auto" it is called with a callback that draws a bar."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result:
        given = kwargs.get("progress", quiet)
        if callable(given):
            return function(*args, **kwargs)
        if given != "auto":
            raise UsageError(f"progress={given!r}: give a function of the stage's name, or \"auto\"")
        with displayed() as report:
            kwargs["progress"] = report
            return function(*args, **kwargs)

    return called


@contextmanager
def displayed() -> Iterator[OnStage]:
    """A callback that shows each stage where the user sees it: in Jupyter, on a terminal's standard error, or as lines."""
    show = _in_jupyter() if _is_jupyter() else _on_terminal() if sys.stderr.isatty() else _as_lines()
    with show as report:
        yield report


def counts(stage: str) -> tuple[str, int, int]:
    """A stage's name, how many of its parts are done, and how many there are: 0 if that is unknown. "verifying 2/3" is in its
    second part, so that one is done."""
    found = re.fullmatch(r"(.*?) (\d+)/(\d+)(.*)", stage)
    return (f"{found[1]}{found[4]}", int(found[2]) - 1, int(found[3])) if found else (stage, 0, 0)


@contextmanager
def _on_terminal() -> Iterator[OnStage]:
    """A line with the stage, a bar, the time so far and what remains."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24), TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        now = [""]

        def report(stage: str) -> None:
            name, done, total = counts(stage)
            if name != now[0]:  # the time that remains is estimated from this stage alone
                now[0] = name
                bar.reset(task, total=total or None)
            bar.update(task, description=stage, completed=done)

        yield report


@contextmanager
def _as_lines() -> Iterator[OnStage]:
    """A line for each stage that takes long, while it does."""
    stream = sys.stderr  # a framework's output may be redirected while it works
    ended = threading.Event()
    now: list[Any] = ["starting", time.monotonic(), FIRST_LINE]

    def report(stage: str) -> None:
        now[:] = stage, time.monotonic(), FIRST_LINE

    def watch() -> None:
        while not ended.wait(1.0):
            stage, since, due = now
            spent = time.monotonic() - since
            if spent >= due:
                now[2] = 2 * due
                print(f"{one_line(stage)} ({spent:.0f} s)", file=stream, flush=True)

    threading.Thread(target=watch, name="onnxbridge-stages", daemon=True).start()
    try:
        yield report
    finally:
        ended.set()


def _is_jupyter() -> bool:
    """Whether this runs in a notebook, whose shell is ZMQInteractiveShell."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and shell.has_trait("kernel")


@contextmanager
def _in_jupyter() -> Iterator[OnStage]:
    """An HTML bar below the cell, which is gone when the work is done."""
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)

    def report(stage: str) -> None:
        _, done, total = counts(stage)
        value = f' max="{total}" value="{done}"' if total else ""
        handle.update(HTML(f"<progress{value}></progress> {escape(stage)}"))

    try:
        yield report
    finally:
        handle.update(HTML(""))
