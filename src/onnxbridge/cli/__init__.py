"""The command line. Each command is a module that is imported when it is called, so that `--help` is fast."""

from __future__ import annotations

import importlib
from typing import Any

import click

from onnxbridge import __version__

COMMANDS = {
    "convert": "Convert a model to another framework and verify it.",
    "batch": "Convert and verify many models, each in a process of its own.",
    "verify": "Run two models on the same inputs and compare the outputs.",
    "bisect": "Find where two models diverge first.",
    "diff": "Compare two models as graphs, without running them.",
    "check": "List everything that prevents a conversion.",
    "inspect": "Show the inputs, outputs, operators and weights of a model.",
    "opset": "Convert an ONNX file to another opset, up or down.",
    "coverage": "Show which operators each target supports.",
    "plugins": "List the installed frontends and backends.",
    "doctor": "Show which frameworks are installed, and their versions.",
    "completion": "Print the script that completes commands in bash, zsh or fish.",
}


class _Lazy(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"onnxbridge.cli.{name}"), "command")  # type: ignore[no-any-return]  # noqa: B009

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            raise click.UsageError(f"{e.format_message()} Commands are {', '.join(COMMANDS)}.", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", prog_name="onnxbridge")
def group() -> None:
    """Convert models between PyTorch, TensorFlow/Keras, MXNet, ONNX and Core ML, and verify the result numerically.

    Exit codes: 0 ok, 1 verification failed, or diff found a difference, 2 usage, 3 unsupported, 4 unsafe or corrupt file,
    5 a framework is missing, 6 a limit was exceeded, 70 internal error.
    """


def main() -> Any:
    """The entry point of the `onnxbridge` command."""
    from onnxbridge.cli.shared.shell import run

    return run(group)
