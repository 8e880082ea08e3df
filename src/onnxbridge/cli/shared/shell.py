"""What all commands share: results on the standard output, errors as one sentence and an exit code, stages on the way."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import NoReturn, TypeVar

import click

from onnxbridge import frameworks
from onnxbridge.cli.shared.outcome import Outcome
from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, UsageError, first_line

Item = TypeVar("Item")

_NEIGHBOURS = {
    "--target": "--to", "--format": "--to", "--source": "--from", "--out": "--output", "--output-path": "--output",
    "--input": "--inputs", "--input-shape": "--inputs", "--shape": "--inputs", "--input-shapes": "--inputs",
    "--dynamic-shapes": "--dynamic", "--dynamic-axes": "--dynamic", "--target-opset": "--opset", "--opset-version": "--opset",
    "--overwrite": "--force", "--tolerance": "--atol", "--timeout": "--time-limit",
}  # fmt: skip
"""What other converters call our options."""
_SYSTEM_LIMITS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM})

outcome = Outcome()
"""Of the command that runs in this process."""


class Terminated(BaseException):
    """The process is to end; raised where the signal comes, so that nothing half written stays."""


def run(group: click.Group) -> None:
    """Call the command line and leave with its exit code."""
    global outcome
    outcome = Outcome(sys.argv[1:])
    error: BaseException | None = None
    os.environ.setdefault(*frameworks.COMMAND_LINE_LOG_LEVEL)
    with _terminable():
        try:
            code = group(standalone_mode=False) or 0  # what `Exit` was raised with; commands return nothing
        except BaseException as e:
            code, error = _reported(e), e
    try:
        if problem := outcome.write(code, error):
            code = code or UsageError.exit_code
            click.echo(problem, err=True)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _leave(code)


def _reported(e: BaseException) -> int:
    """Print why a command ended, and give its exit code."""
    if isinstance(e, (click.Abort, KeyboardInterrupt)):
        click.echo("interrupted", err=True)
        return 128 + signal.SIGINT
    if isinstance(e, Terminated):
        click.echo("terminated", err=True)
        return 128 + signal.SIGTERM
    if isinstance(e, click.NoSuchOption) and e.option_name in _NEIGHBOURS:
        e = click.UsageError(f"{e.message} Did you mean '{_NEIGHBOURS[e.option_name]}'?", e.ctx)
    if isinstance(e, click.ClickException):
        e.show(sys.stderr)
        return UsageError.exit_code
    if isinstance(e, ConversionError):
        click.echo(_plain(str(e)), err=True)
        return e.exit_code
    if isinstance(e, OnnxbridgeError):
        return _error(str(e), e.exit_code)
    if isinstance(e, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(e, MemoryError):
        return _error("the machine's memory does not hold this model", LimitError.exit_code)
    if isinstance(e, RecursionError):
        return _error("the model is nested too deeply", LimitError.exit_code)
    if isinstance(e, OSError) and e.errno:
        code = LimitError.exit_code if e.errno in _SYSTEM_LIMITS else UsageError.exit_code
        return _error(": ".join(str(part) for part in (e.filename, e.strerror) if part), code)
    if not isinstance(e, Exception) or os.environ.get("ONNXBRIDGE_DEBUG"):
        raise e
    click.echo(_plain(f"internal error: {type(e).__name__}: {first_line(e)}"), err=True)
    click.echo("this is a bug in onnxbridge; ONNXBRIDGE_DEBUG=1 shows where it happens", err=True)
    return OnnxbridgeError.exit_code


def _error(text: str, code: int) -> int:
    from onnxbridge.diagnostics import one_line

    click.echo(f"error: {one_line(text)}", err=True)
    return code


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: temporary files are removed on the way out."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(code: int) -> NoReturn:
    """End the process; at once where a model that took too long still runs in native code, which nothing can stop."""
    time_limit = sys.modules.get("onnxbridge.runtime.verify.time_limit")
    if time_limit is not None and time_limit.still_running():
        import atexit

        sys.stdout.flush()
        sys.stderr.flush()
        atexit._run_exitfuncs()  # temporary folders and helper processes
        os._exit(code)
    sys.exit(code)


def _plain(text: str) -> str:
    """Text of several lines that may hold names from a model, without the characters that steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def say(text: str) -> None:
    """Print a result, or a part of one."""
    click.echo(_plain(text))


def note(text: str) -> None:
    """Print a remark beside the result, on the standard error."""
    from onnxbridge.diagnostics import one_line

    click.echo(one_line(text), err=True)


@contextmanager
def stages(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Takes the name of each stage, and shows it: a bar on a terminal, a line for each that takes long elsewhere. Nothing with
    `quiet`."""
    if quiet:
        yield outcome.stage
        return
    from onnxbridge.progress import displayed

    with _log_shown(), displayed() as show:
        yield partial(_each, outcome.stage, show)


@contextmanager
def _log_shown() -> Iterator[None]:
    """Print what onnxbridge logs for its users as remarks."""
    logger, handler = logging.getLogger("onnxbridge"), logging.Handler(logging.INFO)
    handler.emit = lambda record: note(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _each(first: Callable[[str], None], second: Callable[[str], None], stage: str) -> None:
    first(stage)
    second(stage)


@contextmanager
def bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error, which takes how many of how many are done; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda number, count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(name, total=None)
        yield lambda number, count: shown.update(task, completed=number, total=count)


def counted(items: Sequence[Item], called: Callable[[Item], str]) -> Iterator[Item]:
    """The items one after the other, with a bar and the present one's name on the standard error of a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(items))
        for item in items:
            bar.update(task, description=called(item))
            yield item
            bar.advance(task)
