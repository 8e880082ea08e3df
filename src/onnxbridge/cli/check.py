"""`onnxbridge check`."""

from __future__ import annotations

from typing import Any

import click

from onnxbridge.cli import options, shell
from onnxbridge.errors import ConversionError


@click.command("check")
@click.argument("source")
@click.argument("weights", required=False)
@click.option("--to", multiple=True, metavar="NAME", help="Target to check; all that are installed by default. Repeatable.")
@options.frontend
@options.inputs
@options.dynamic
@options.json
@options.quiet
def command(source: str, weights: str | None, to: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """List every operator that is in the way of converting SOURCE, with the line it comes from. Exits with 3 if there is one."""
    from onnxbridge import api, plugins

    settings = options.chosen(given)
    with shell.stages(quiet) as progress:
        progress("checking")
        targets = list(to) or list(plugins.installed("backend"))
        found = api.check((source, weights) if weights else source, targets, **settings)
    if as_json:
        shell.say(shell.as_json({"source": source, "targets": targets, "problems": [p.as_dict() for p in found]}))
    elif found:
        shell.say("\n".join(map(str, found)))
    else:
        shell.say(f"nothing is in the way: {source} to {', '.join(targets)}")
    if found:
        raise click.exceptions.Exit(ConversionError.exit_code)
