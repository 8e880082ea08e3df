"""`onnxbridge convert`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import divergence, options, shell, types
from onnxbridge.cli.shared.outcome import hashes
from onnxbridge.errors import VerificationError


@click.command("convert", cls=options.BackendCommand)
@click.argument("source", type=types.LOCATION)
@click.argument("weights", required=False, type=types.LOCATION)
@click.option(
    "--to",
    metavar="NAME",
    type=types.BACKEND,
    help="Target: onnx, pytorch, tensorflow, mxnet, coreml.  [default: from the suffix of --output, else onnx]",
)
@options.frontend
@click.option(
    "-o", "--output", metavar="PATH", type=types.LOCATION,
    help="Output path.  [default: the source's name in the current folder]",
)  # fmt: skip
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@click.option(
    "--verify/--no-verify", default=True, help="Run source and target on the same inputs and compare.  [default: verify]"
)
@options.comparing
@options.reports
@options.force
@options.json
@options.quiet
def command(
    source: str, weights: str | None, to: str | None, as_json: bool, quiet: bool, reports: tuple[Path, ...],
    bisects: bool, **given: Any
) -> None:
    """Convert SOURCE to another framework and verify that it computes the same.

    SOURCE is a file or folder: .onnx, .pt2, .keras, a SavedModel, a frozen .pb, .mlpackage, -symbol.json. WEIGHTS is the
    .params file for MXNet, a state dict if SOURCE is MODULE:FACTORY for PyTorch, and the checkpoint of a .meta file of
    TensorFlow.

    If verification fails, the command exits with 1 and the artifact is saved with `.failed` appended.

    \b
      onnxbridge convert net.pt2 --to coreml
      onnxbridge convert net-symbol.json net-0000.params --to onnx --inputs "data:float32[N,3,224,224]"
    """
    from onnxbridge import api, plugins
    from onnxbridge.api._arguments.early_checks import target_of

    model = (source, weights) if weights else source
    to = target_of(to, given["output"])
    output = given.pop("output") or _default_output(plugins.backend(to), _stem(source), model)
    shell.outcome.allow_reports(reports, given["force"], (source, weights, given["data"]), output)
    settings = options.chosen(given)
    error: VerificationError | None = None
    with shell.stages(quiet) as progress:
        try:
            made = api.convert(model, to, output=output, progress=progress, layers=shell.outcome.draws, **settings)
        except VerificationError as e:
            made, error = e.conversion, e
            if made is None:
                raise
    reported = shell.outcome.shown  # files may be large: hash them only if the hashes are shown
    shell.outcome.tell(
        **made.as_dict(), source_files=hashes(made.source_files) if reported else [],
        written_files=hashes(made.paths) if reported else [], options=settings,
    )  # fmt: skip
    shell.outcome.draw(made)
    if not as_json:
        if made.report is not None:
            shell.say(str(made.report))
        for text in () if quiet else made.notes:
            shell.note(f"note: {text}")
        if made.paths:
            shell.say("wrote " + ", ".join(str(p) for p in made.paths))
    if error is not None:
        if made.paths and made.report is not None and not made.report.agrees:
            divergence.tell_or_bisect(
                source, weights, str(made.paths[0]), settings, at_once=bisects, quiet=quiet, as_json=as_json
            )  # fmt: skip
        raise error


def _default_output(backend: Any, stem: str, source: Any) -> str:
    """The source's name with the target's suffix, in the current folder; `NAME.converted` if that is the source itself."""
    from onnxbridge.api._arguments.early_checks import source_files
    from onnxbridge.atomic_write import source_part

    name: str = backend.filename(stem)
    return backend.filename(f"{stem}.converted") if source_part(Path(name), source_files(source)) else name


def _stem(source: str) -> str:
    """The source's name without its suffixes, or the module of a factory."""
    name = os.path.basename(os.path.normpath(source.partition(":")[0] if not os.path.exists(source) else source))
    return re.sub(r"(-symbol)?\.(json|onnx|pt2|pt|pth|keras|h5)$", "", name) or "model"
