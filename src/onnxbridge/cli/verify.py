"""`onnxbridge verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import divergence, options, shell, types
from onnxbridge.cli.shared.outcome import model_hashes
from onnxbridge.errors import UsageError, VerificationError


@click.command("verify")
@click.argument("reference", type=types.LOCATION)
@click.argument("candidate", required=False, type=types.LOCATION)
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@options.weights
@click.option(
    "--load-outputs",
    type=click.Path(exists=True),
    metavar="FOLDER",
    help="In place of CANDIDATE: compare the model with outputs that --save-outputs wrote, on their inputs.",
)
@click.option(
    "--golden",
    type=click.Path(),
    metavar="FILE.npz",
    help="In place of CANDIDATE: compare the model with its recorded outputs. If there is no such file, record them.",
)
@click.option(
    "--via",
    metavar="TARGETS",
    help="In place of CANDIDATE: convert to the first of these, its result to the next, and compare each with REFERENCE, as in "
    "onnx,tensorflow,pytorch.",
)
@options.comparing
@options.reports
@options.force
@options.json
@options.quiet
def command(
    reference: str,
    candidate: str | None,
    weights: str | None,
    as_json: bool,
    quiet: bool,
    reports: tuple[Path, ...],
    via: str | None,
    bisects: bool,
    **given: Any,
) -> None:
    """Run REFERENCE and CANDIDATE on the same inputs and compare every output.

    Inputs and outputs are paired by name, or by position if the names differ. If CANDIDATE does not declare its input sizes,
    those of REFERENCE are used. Exits with 1 if an output differs.

    \b
      onnxbridge verify net.pt2 net.onnx --data images
      onnxbridge verify net.pt2 net.onnx --save-outputs expected
      onnxbridge verify net.mlpackage --load-outputs expected
      onnxbridge verify net.onnx --golden net.npz
      onnxbridge verify net.onnx --via tensorflow,pytorch,onnx
    """
    from onnxbridge import api
    from onnxbridge.runtime.verify.report import weakness

    first = (reference, weights) if weights else reference
    sources = (reference, weights, candidate, given["data"], given["load_outputs"], given["golden"])
    shell.outcome.allow_reports(reports, given["force"], sources)
    settings = options.chosen(given)
    shell.outcome.tell(options=settings)
    strict = settings.pop("strict")  # the report is printed first
    found: Any
    with shell.stages(quiet) as progress:
        if via is None:
            found = api.verify(first, candidate, progress=progress, layers=shell.outcome.draws, **settings)
        else:
            found = api.round_trip(first, via, progress=progress, **_for_round_trip(candidate, settings))
    if shell.outcome.shown:
        others = [given[name] for name in ("data", "load_outputs", "golden")]
        files = model_hashes(first, candidate, others=others)
        shell.outcome.tell(source_files=files, **found.as_dict())
    shell.outcome.draw(found)
    if not as_json:
        shell.say(str(found))
    if via is not None and not found.agrees:
        raise found.failure
    if not found.agrees:
        if candidate is not None:
            divergence.tell_or_bisect(
                reference, weights, candidate, settings, at_once=bisects, quiet=quiet, as_json=as_json
            )  # fmt: skip
        raise VerificationError(found.limit_exceeded or "the two models do not compute the same", found)
    if strict and (weak := weakness(found)) is not None:
        raise weak



def _for_round_trip(candidate: str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """The options of `verify` for a round trip, which has no second model and writes nothing.

    Raises:
        UsageError: for those that do not go with --via.
    """
    others = ("load_outputs", "golden", "save_inputs", "save_outputs")
    given = (["CANDIDATE"] if candidate is not None else []) + [f"--{n.replace('_', '-')}" for n in others if settings.get(n)]
    if given:
        raise UsageError(f"--via compares REFERENCE with its own conversions: leave out {' and '.join(given)}")
    return {name: value for name, value in settings.items() if name != "force"}
