"""`onnxbridge opset`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from onnxbridge.cli.shared import options, shell, types
from onnxbridge.errors import UsageError, merge


@click.command("opset")
@click.argument("model", type=click.Path(exists=True))
@click.option("--to", multiple=True, metavar="N", help="Opset to write. Repeat as ai.onnx.ml=N for that domain.")
@click.option(
    "--for-runtime", metavar="NAME==VERSION", help="Write a model that this release can load, such as onnxruntime==1.17."
)
@click.option("--allow-lossy", is_flag=True, help="Allow lossy steps and report each, instead of refusing.")
@click.option(
    "-o", "--output", metavar="PATH", type=types.LOCATION,
    help="Output path.  [default: NAME.opsetN.onnx in the current folder]",
)  # fmt: skip
@options.force
@options.json
@options.quiet
def command(
    model: str, to: tuple[str, ...], for_runtime: str | None, allow_lossy: bool, output: str | None, force: bool, as_json: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Convert MODEL, an ONNX file, to another opset, up or down. The lowest IR version that it needs is written.

    Value names are preserved. If a node cannot be converted, nothing is written, every such node is listed, and the exit code
    is 3.

    \b
      onnxbridge opset net.onnx --to 13
      onnxbridge opset trees.onnx --to 15 --to ai.onnx.ml=3
      onnxbridge opset net.onnx --for-runtime onnxruntime==1.17
    """
    from onnxbridge.api._arguments.early_checks import source_files
    from onnxbridge.atomic_write import obstacle, write_atomically
    from onnxbridge.errors import Problem
    from onnxbridge.hub.io import onnx_files
    from onnxbridge.hub.opset import opset_conversion
    from onnxbridge.hub.opset.ir_version import lowest_ir_version
    from onnxbridge.hub.opset.runtime_versions import limits
    from onnxbridge.opset import versions_of

    losses: list[Problem] | None = [] if allow_lossy else None
    wanted = dict(_version(text) for text in to)
    if bool(wanted) == (for_runtime is not None) or len(wanted) != len(to):
        raise UsageError("give either --to N or --for-runtime NAME==VERSION")
    if for_runtime is not None:
        limits(for_runtime)
    elif "" in wanted:
        opset_conversion.check_version(wanted[""])
    if output is not None and (reason := obstacle(Path(output), force, [Path(model)])):
        raise UsageError(reason)
    with shell.stages(quiet) as progress:
        progress("reading")
        read = onnx_files.read(model)
        before = read.opset_imports.get("", 0)
        progress("converting")
        if for_runtime is not None:
            made = opset_conversion.for_runtime(read, for_runtime, losses)
        else:
            made = opset_conversion.from_hub(read, *versions_of(read, wanted), losses)
        after = made.opset_imports.get("", 0)
        stem = os.path.basename(model).removesuffix(".onnx")
        progress("writing")
        target = Path(output or f"{stem}.opset{after}.onnx")
        paths = write_atomically(target, force, lambda free: onnx_files.write(made, free), source_files(model, read))
    lossy = [loss.reason for loss in merge(losses or [])]
    found = {
        "from": before, "to": after, "domains": dict(made.opset_imports), "ir_version": lowest_ir_version(made),
        "lossy": lossy, "written": [str(p) for p in paths],
    }  # fmt: skip
    shell.outcome.tell(**found)
    if not as_json:
        shell.say(f"opset {before} to opset {after}, IR version {found['ir_version']}")
        for loss in lossy:
            shell.say(f"lossy: {loss}")
        shell.say("wrote " + ", ".join(str(p) for p in paths))


def _version(text: str) -> tuple[str, int]:
    """ "13" or "ai.onnx.ml=3" as a domain and its version."""
    domain, _, version = text.rpartition("=")
    if not version.isdigit():
        raise UsageError(f"--to takes an opset, as 13 or ai.onnx.ml=3, not {text!r}")
    return "" if domain == "ai.onnx" else domain, int(version)
