"""`onnxbridge opset`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from onnxbridge.cli import options, shell
from onnxbridge.errors import UsageError


@click.command("opset")
@click.argument("model", type=click.Path(exists=True))
@click.option("--to", type=int, metavar="N", help="The opset of ai.onnx to write.")
@click.option("--for-runtime", metavar="NAME==VERSION", help="Write what this release loads, as onnxruntime==1.17.")
@click.option("-o", "--output", metavar="PATH", help="Where to write; by default NAME.opsetN.onnx in the current folder.")
@click.option("--force", is_flag=True, help="Replace what is there.")
@options.json
@options.quiet
def command(
    model: str, to: int | None, for_runtime: str | None, output: str | None, force: bool, as_json: bool, quiet: bool
) -> None:
    """Take MODEL, an ONNX file, to another opset, up or down, with the lowest IR version that it needs.

    Names of values stay. A model that cannot be converted is not written: every node in the way is listed, and the exit code
    is 3.

    \b
      onnxbridge opset net.onnx --to 13
      onnxbridge opset net.onnx --for-runtime onnxruntime==1.17
    """
    from onnxbridge.hub import io, opset
    from onnxbridge.hub.ir_version import lowest_ir_version
    from onnxbridge.output import placed

    if (to is None) == (for_runtime is None):
        raise UsageError("give either --to N or --for-runtime NAME==VERSION")
    with shell.stages(quiet) as progress:
        progress("reading")
        read = io.read(model)
        before = read.opset_imports.get("", 0)
        progress("converting")
        if for_runtime is not None:
            made = opset.for_runtime(read, for_runtime)
        else:
            assert to is not None
            made = opset.from_hub(read, to)
        after = made.opset_imports.get("", 0)
        stem = os.path.basename(model).removesuffix(".onnx")
        progress("writing")
        paths = placed(Path(output or f"{stem}.opset{after}.onnx"), force, lambda free: io.write(made, free))
    told = {"from": before, "to": after, "ir_version": lowest_ir_version(made), "written": [str(p) for p in paths]}
    if as_json:
        shell.say(shell.as_json(told))
    else:
        shell.say(f"opset {before} to opset {after}, IR version {told['ir_version']}")
        shell.say("wrote " + ", ".join(str(p) for p in paths))
