"""`onnxbridge plugins`."""

from __future__ import annotations

import dataclasses

import click

from onnxbridge.cli.shared import options, shell
from onnxbridge.reports import dumps


@click.command("plugins")
@options.json
def command(as_json: bool) -> None:
    """List the installed frontends and backends, and the package that provides each."""
    from onnxbridge import plugins

    found = [p for kind in plugins.GROUPS for p in plugins.installed(kind).values()]
    if as_json:
        shell.say(dumps([dataclasses.asdict(p) for p in found]))
        return
    for p in found:
        shell.say(f"{p.kind:9} {p.name:12} {p.package} {p.version}".rstrip())
