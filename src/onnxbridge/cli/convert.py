"""`onnxbridge convert`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from onnxbridge.cli import options, shell
from onnxbridge.errors import VerificationError


@click.command("convert", cls=options.BackendCommand)
@click.argument("source")
@click.argument("weights", required=False)
@click.option("--to", default="onnx", show_default=True, metavar="NAME", help="Target: onnx, pytorch, tensorflow, mxnet, coreml.")
@options.frontend
@click.option("-o", "--output", metavar="PATH", help="Where to write; by default the source's name in the current folder.")
@options.inputs
@options.dynamic
@click.option("--verify/--no-verify", default=True, help="Compare source and target on seeded inputs.  [default: verify]")
@options.comparing
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.json", help="Write the report as JSON.")
@click.option("--force", is_flag=True, help="Replace what is there.")
@options.json
@options.quiet
def command(source: str, weights: str | None, to: str, as_json: bool, quiet: bool, report: Path | None, **given: Any) -> None:
    """Move SOURCE to another framework, and verify that it still computes the same.

    SOURCE is a file or folder: .onnx, .pt2, .keras, a SavedModel, -symbol.json. For MXNet, WEIGHTS is the .params file; for
    PyTorch, SOURCE may be MODULE:FACTORY with WEIGHTS a state dict.

    \b
      onnxbridge convert net.pt2 --to coreml
      onnxbridge convert net-symbol.json net-0000.params --to onnx --inputs "data:float32[N,3,224,224]"
    """
    from onnxbridge import api, plugins

    backend = plugins.backend(to)
    output = given.pop("output") or backend.filename(_stem(source))
    settings = options.chosen(given)
    error: VerificationError | None = None
    with shell.stages(quiet) as progress:
        try:
            made = api.convert((source, weights) if weights else source, to, output=output, progress=progress, **settings)
        except VerificationError as e:
            made, error = e.conversion, e
    if report is not None and made.report is not None:
        report.write_text(shell.as_json(made.report.as_dict()) + "\n")
    if as_json:
        shell.say(shell.as_json({
            "source": made.source, "target": made.target, "written": [str(p) for p in made.paths], "notes": list(made.notes),
            "verification": made.report.as_dict() if made.report else None,
        }))  # fmt: skip
    else:
        if made.report is not None:
            shell.say(str(made.report))
        for text in () if quiet else made.notes:
            shell.note(f"note: {text}")
        shell.say("wrote " + ", ".join(str(p) for p in made.paths))
    if error is not None:
        raise error


def _stem(source: str) -> str:
    """What the artifact is called after: the source's name without its endings, or the module of a factory."""
    name = os.path.basename(os.path.normpath(source.partition(":")[0] if not os.path.exists(source) else source))
    return re.sub(r"(-symbol)?\.(json|onnx|pt2|pt|pth|keras|h5)$", "", name) or "model"
