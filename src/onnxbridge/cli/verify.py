"""`onnxbridge verify`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from onnxbridge.cli import options, shell
from onnxbridge.cli.outcome import hashes
from onnxbridge.errors import UsageError, VerificationError


@click.command("verify")
@click.argument("reference")
@click.argument("candidate")
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@click.option("--weights", metavar="FILE", help="Weights of REFERENCE if it is an MXNet symbol or MODULE:FACTORY.")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.npz",
    help="Arrays to run on, by input name, in place of random samples.",
)
@options.comparing
@options.report
@options.force
@options.json
@options.quiet
def command(
    reference: str,
    candidate: str,
    weights: str | None,
    as_json: bool,
    quiet: bool,
    report: Path | None,
    data: str | None,
    force: bool,
    **given: Any,
) -> None:
    """Run REFERENCE and CANDIDATE on the same inputs and compare every output.

    Inputs and outputs are paired by name, or by position if the names differ. If CANDIDATE does not declare its input sizes,
    those of REFERENCE are used. Exits with 1 if an output differs.
    """
    from onnxbridge import api

    first = (reference, weights) if weights else reference
    shell.outcome.allow_report(report, force, (reference, weights, candidate, data), None)
    settings = options.chosen(given)
    shell.outcome.tell(options=settings)
    if data is not None:
        settings = {**settings, "inputs": _arrays(data)}
    with shell.stages(quiet) as progress:
        found = api.verify(first, candidate, progress=progress, **settings)
    if as_json or report is not None:
        files = hashes([p for p in (reference, weights, candidate, data) if p is not None and os.path.exists(p)])
        shell.outcome.tell(source_files=files, **found.as_dict())
    if not as_json:
        shell.say(str(found))
    if not found.agrees:
        raise VerificationError("the two models do not compute the same", found)


def _arrays(path: str) -> dict[str, Any]:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile, AttributeError) as e:
        raise UsageError(f"{path}: is not an .npz file of plain arrays ({e})") from e
