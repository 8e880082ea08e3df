"""`onnxbridge bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import options, shell, types
from onnxbridge.cli.shared.outcome import model_hashes
from onnxbridge.errors import VerificationError


@click.command("bisect")
@click.argument("reference", type=types.LOCATION)
@click.argument("candidate", type=types.LOCATION)
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@options.weights
@options.running
@click.option(
    "--save", "folder", type=click.Path(path_type=Path), metavar="FOLDER",
    help="Write a minimal reproduction: the diverging operators as ONNX files, their inputs, and a script.",
)  # fmt: skip
@click.option(
    "--suggest", is_flag=True, default=None,
    help="For a CANDIDATE in float16 or quantized: find operators to keep in float32 so that its outputs are off by at most "
    "--max-drift of their range (1% by default), and try that.",
)  # fmt: skip
@click.option(
    "--max-drift", type=options.Share(), metavar="X",
    help="With --suggest: how far an output may be off, as a fraction of its range.  [default: 1%]",
)  # fmt: skip
@options.reports
@options.force
@options.json
@options.quiet
def command(
    reference: str,
    candidate: str,
    weights: str | None,
    folder: Path | None,
    as_json: bool,
    quiet: bool,
    reports: tuple[Path, ...],
    force: bool,
    **given: Any,
) -> None:
    """Find where REFERENCE and CANDIDATE diverge.

    That is the first value that differs by more than rounding explains, although everything that it is computed from agrees.
    Exits with 1 if the models differ, with 0 if they agree.

    \b
      onnxbridge bisect net.pt2 net.mlpackage
      onnxbridge bisect net.onnx fixed.onnx --save repro
    """
    from onnxbridge import api
    from onnxbridge.atomic_write import obstacle
    from onnxbridge.errors import UsageError

    first = (reference, weights) if weights else reference
    sources = (reference, weights, candidate, given["data"])
    shell.outcome.allow_reports(reports, force, sources)
    if folder is not None and (reason := obstacle(folder, force)):
        raise UsageError(f"--save: {reason}")
    settings = options.chosen(given)
    shell.outcome.tell(options=settings)
    with shell.stages(quiet) as progress:
        found = api.bisect(first, candidate, progress=progress, **settings)
    if shell.outcome.shown:
        files = model_hashes(first, candidate, others=[given["data"]])
        shell.outcome.tell(source_files=files, **found.as_dict())
    shell.outcome.draw(found)
    if not as_json:
        shell.say(str(found))
    if given.get("suggest") and found.suggestion is None:
        shell.note("--suggest: CANDIDATE does not compute in lower precision than REFERENCE; nothing to suggest")
    if folder is not None and found.first is not None:
        found.save(folder, force=force)
        shell.note(f"wrote {folder}: reproduce.py runs both operators on the same inputs")
    if not found.report.agrees:
        raise VerificationError("the two models do not compute the same", found.report)
