"""`onnxbridge coverage`."""

from __future__ import annotations

import dataclasses

import click

from onnxbridge.cli.shared import options, shell
from onnxbridge.reports import dumps


@click.command("coverage")
@click.argument("operators", nargs=-1)
@click.option("--markdown", is_flag=True, help="Print the whole table in Markdown, as in docs/coverage.md.")
@options.json
def command(operators: tuple[str, ...], markdown: bool, as_json: bool) -> None:
    """Show how many operators each target supports, or for each of OPERATORS (ONNX names) how each target supports it."""
    from onnxbridge import coverage
    from onnxbridge.errors import UsageError

    unknown = [op for op in operators if op not in coverage.operators()]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not an ONNX operator")
    if markdown:
        shell.say(coverage.page().rstrip())
        return
    if not operators and not as_json:
        shell.say(coverage.summary())
        return
    found = {name: {op: cells[op] for op in operators or cells} for name, cells in coverage.backends().items()}
    if as_json:
        shell.say(dumps({n: {op: dataclasses.asdict(c) for op, c in cells.items()} for n, cells in found.items()}))
        return
    for op in operators:
        for name, cells in found.items():
            cell = cells[op]
            remarks = "; ".join(r for r in (cell.needs and f"from {cell.needs}", cell.limits) if r)
            shell.say(f"{op:24} {name:12} {cell.state}" + (f" ({remarks})" if remarks else ""))
