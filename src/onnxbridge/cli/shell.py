"""What all commands share: errors as one sentence and an exit code, stages on a terminal, results on the standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, VerificationError

Item = TypeVar("Item")


def run(group: click.Group) -> None:
    """Call the command line and leave with its exit code."""
    try:
        code = group(standalone_mode=False) or 0  # what `Exit` was raised with; commands return nothing
    except click.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except click.ClickException as e:
        e.show(sys.stderr)
        code = 2
    except OnnxbridgeError as e:
        click.echo(_plain(str(e) if isinstance(e, ConversionError) else f"error: {e}"), err=True)
        code = e.exit_code
    except MemoryError:
        click.echo("error: the machine's memory does not hold this model", err=True)
        code = LimitError.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as e:
        if os.environ.get("ONNXBRIDGE_DEBUG"):
            raise
        text = (str(e).strip() or "no message").splitlines()[0]
        click.echo(_plain(f"internal error: {type(e).__name__}: {text}"), err=True)
        click.echo("this is a bug in onnxbridge; ONNXBRIDGE_DEBUG=1 shows where it happens", err=True)
        code = 70
    sys.stdout.flush()
    sys.exit(code)


def _plain(text: str) -> str:
    """Text that may hold names from a model, without the characters that steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def say(text: str) -> None:
    """Print a result, or a part of one."""
    click.echo(_plain(text))


def note(text: str) -> None:
    """Print a remark beside the result, on the standard error."""
    click.echo(_plain(text), err=True)


def as_json(value: Any) -> str:
    """JSON that any reader takes: infinities and NaN become null."""

    def finite(v: Any) -> Any:
        if isinstance(v, dict):
            return {str(k): finite(i) for k, i in v.items()}
        if isinstance(v, (list, tuple)):
            return [finite(i) for i in v]
        return None if isinstance(v, float) and (v != v or abs(v) == float("inf")) else v

    return json.dumps(finite(value), indent=2)


@contextmanager
def stages(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line with the name of the stage and the time so far, on the standard error of a terminal; silence elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda stage: bar.update(task, description=stage)


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


def failed(error: VerificationError) -> None:
    """Print a failed verification's report."""
    if error.report is not None:
        say(str(error.report))
