"""`onnxbridge batch`."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import options, shell, types
from onnxbridge.errors import UsageError


@click.command("batch")
@click.argument("manifests", nargs=-1, required=True, metavar="MANIFEST...", type=types.LOCATION)
@click.option(
    "-o", "--output", required=True, metavar="DIR", type=types.LOCATION,
    help="Folder or URL for the artifacts and the outcomes.",
)  # fmt: skip
@click.option(
    "--to", multiple=True, metavar="NAME", type=types.BACKEND,
    help="Target of jobs that name none.  [default: onnx]  Repeatable.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Key of jobs that do not have it, such as strict=true or compute_precision=fp16. Repeatable.",
)  # fmt: skip
@click.option("--jobs", "workers", type=click.IntRange(1), metavar="N", help="Jobs to run at once.  [default: one for each core]")
@click.option("--executor", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Where jobs run.")
@click.option("--address", metavar="ADDRESS", help="Address of the Ray cluster.  [default: one on this machine]")
@click.option("--shard", default="1/1", metavar="I/N", help="Run one of N shards of the jobs, 2/8 for the second of eight.")
@click.option("--resume", is_flag=True, help="Go on with the batch in DIR: what has finished is not run again.")
@click.option("--retry-failed", is_flag=True, help="With --resume, run again what failed.")
@click.option(
    "--time-limit", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Time that a job without `timeout` may take."
)
@click.option("--memory-limit", metavar="SIZE", help="Memory that a job without `memory` may take, such as 4GiB.")
@options.reports
@options.force
@options.json
@options.quiet
def command(
    manifests: tuple[str, ...], output: str, to: tuple[str, ...], settings: tuple[str, ...], workers: int | None, executor: str,
    address: str | None, shard: str, resume: bool, retry_failed: bool, time_limit: float | None, memory_limit: str | None,
    reports: tuple[Path, ...], force: bool, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Convert and verify many models, each in a process of its own. One that fails does not stop the others.

    MANIFEST is a file of jobs (.yaml, .json, .toml, .jsonl, .csv), a model, or a pattern such as "models/*.onnx". Exits with 1 if
    a job failed. DIR has the artifacts, outcomes.jsonl and outcomes.csv.

    \b
      onnxbridge batch models.yaml -o converted --report overview.html
      onnxbridge batch "zoo/*.onnx" -o converted --to coreml --jobs 2 --resume
    """
    from onnxbridge.pipeline import run_batch
    from onnxbridge.pipeline.job_keys import bytes_of
    from onnxbridge.pipeline.plan import parsed_shard

    if retry_failed and not resume:
        raise UsageError("--retry-failed goes with --resume")
    shell.outcome.allow_reports(reports, force, [m for m in manifests if os.path.exists(m)])
    defaults = _settings(settings) | ({"to": list(to)} if to else {}) | ({"force": True} if force else {})
    jobs = [job for text in manifests for job in _jobs(text, defaults)]
    with _shown(quiet) as finished:
        found = run_batch(
            jobs, output, workers=workers, executor=executor, address=address, shard=parsed_shard(shard), resume=resume,
            retry_failed=retry_failed, seconds=time_limit, memory=bytes_of(memory_limit), finished=finished,
        )  # fmt: skip
    shell.outcome.tell(output=output, **found.as_dict())
    if not as_json:
        shell.say(str(found))
    for problem in found.problems:
        shell.note(f"error: {problem}")
    if found.failed or found.problems:
        raise click.exceptions.Exit(1)


def _jobs(text: str, defaults: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The jobs of one argument."""
    from onnxbridge.pipeline import read_manifest
    from onnxbridge.pipeline.job_keys import problem_of
    from onnxbridge.pipeline.manifest import is_manifest

    if is_manifest(text):
        yield from read_manifest(text, defaults)
        return
    sources = [text] if os.path.exists(text) or not glob.has_magic(text) else sorted(glob.glob(text, recursive=True))
    if not sources:
        raise UsageError(f"nothing matches {text!r}")
    for source in sources:
        job = {**defaults, "source": source}
        if reason := problem_of(job):
            raise UsageError(reason)
        yield job


def _settings(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        key, equal, value = text.partition("=")
        if not equal:
            raise UsageError(f"--set: {text!r} is not KEY=VALUE")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


@contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[Mapping[str, Any], int, int], None]]:
    """Shows each outcome as a line on the standard error, and on a terminal a bar with the time that remains."""
    if quiet:
        yield lambda outcome, number, count: None
        return
    with shell.bar("starting") as advance:

        def finished(outcome: Mapping[str, Any], number: int, count: int) -> None:
            advance(number, count)
            shell.note(f"[{number}/{count}] {_line(outcome)}")

        yield finished


def _line(outcome: Mapping[str, Any]) -> str:
    from onnxbridge.pipeline.batch import reason

    targets = ", ".join(outcome["to"])
    took = "done before" if outcome["reused"] else f"{outcome['seconds']:.1f} s, {outcome['peak_memory'] / 1e9:.1f} GB"
    if outcome["status"] == "done":
        return f"{outcome['name']} to {targets}: {outcome['verdict'] or 'done'} ({took})"
    return f"{outcome['name']} to {targets}: {reason(outcome)} ({took})"
