"""`onnxbridge check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import options, shell, types
from onnxbridge.cli.shared.outcome import model_hashes
from onnxbridge.errors import ConversionError


@click.command("check", cls=options.BackendCommand)
@click.argument("source", type=types.LOCATION)
@click.argument("weights", required=False, type=types.LOCATION)
@click.option(
    "--to", multiple=True, metavar="NAME", type=types.BACKEND,
    help="Target to check.  [default: all installed]  Repeatable.",
)  # fmt: skip
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@options.reports
@options.force
@options.json
@options.quiet
def command(
    source: str, weights: str | None, to: tuple[str, ...], as_json: bool, quiet: bool, reports: tuple[Path, ...], force: bool,
    **given: Any,
) -> None:  # fmt: skip
    """List everything that prevents the conversion of SOURCE, with its source location. Exits with 3 if there is anything.

    With `--to coreml` alone, also print how each operator is converted and on which unit it is likely to run.
    """
    from onnxbridge import api, plugins

    shell.outcome.allow_reports(reports, force, (source, weights))
    settings = options.chosen(given)
    with shell.stages(quiet) as progress:
        progress("checking")
        targets = list(map(plugins.backend_name, to)) or list(plugins.installed("backend"))
        model = (source, weights) if weights else source
        by_target = api.problems_by_target(model, targets, **settings)
        found = list(dict.fromkeys(str(problem) for _, problem in by_target))
        lines = api.explain(model, targets[0], **settings) if len(targets) == 1 else []
    shell.outcome.tell(source=source, targets=targets, problems=[{**p.as_dict(), "target": name} for name, p in by_target])
    if shell.outcome.shown:
        shell.outcome.tell(source_files=model_hashes(model))
    if lines:
        shell.outcome.tell(operators=[line.as_dict() for line in lines])
    if not as_json:
        clear = f"no problems: {source} to {', '.join(targets)}"
        shell.say("\n".join(found) or clear)
    if lines and not as_json:
        shell.say("\n" + plugins.backend(targets[0]).table(lines))
    if found:
        raise click.exceptions.Exit(ConversionError.exit_code)
