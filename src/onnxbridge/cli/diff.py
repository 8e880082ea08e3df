"""`onnxbridge diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from onnxbridge.cli.shared import options, shell, types


@click.command("diff")
@click.argument("first", type=types.LOCATION)
@click.argument("second", type=types.LOCATION)
@options.frontend
@options.inputs
@options.dynamic
@options.imports
@options.guarded
@click.option("--weights", metavar="FILE", help="Weights of FIRST if it is an MXNet symbol or MODULE:FACTORY.")
@click.option("--as-hub", is_flag=True, help="Compare ONNX files as convert reads them: at one opset, cleaned up.")
@click.option("-v", "--verbose", is_flag=True, help="Show lists in full.")
@options.json_report
@options.force
@options.json
@options.quiet
def command(
    first: str, second: str, weights: str | None, verbose: bool, as_json: bool, quiet: bool, reports: tuple[Path, ...],
    force: bool, **given: Any,
) -> None:  # fmt: skip
    """Compare FIRST and SECOND as graphs, without running them: interface, opset, operators, attributes, connections, shapes
    and weights, in subgraphs and functions too.

    Nodes are matched by what they compute, then by name where names are kept, then by their neighbours. Two ONNX files are
    compared as they are written; models of other formats as convert reads them. Exits with 0 if the models are equal, except
    for names of nodes and weights and for metadata, and with 1 if they differ.

    \b
      onnxbridge diff net.onnx net.opset17.onnx
      onnxbridge diff net.pt2 net.onnx
    """
    from onnxbridge import api

    source = (first, weights) if weights else first
    shell.outcome.allow_reports(reports, force, (first, weights, second), suffixes=[".json"])
    with shell.stages(quiet) as progress:
        found = api.diff(source, second, progress=progress, **options.chosen(given))
    shell.outcome.tell(**found.as_dict())
    if not as_json:
        shell.say(found.text(everything=verbose))
    if not found.equal:
        raise click.exceptions.Exit(1)
