"""Renders the manual page onnxbridge(1) from the commands' help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from onnxbridge import __version__, cli


def page() -> str:
    """docs/onnxbridge.1, in the man macros of roff."""
    lines = [f'.TH ONNXBRIDGE 1 "" "onnxbridge {__version__}" "User Commands"', ".SH NAME"]
    lines += [_text("onnxbridge - convert models between frameworks, and verify the result numerically"), ".SH SYNOPSIS"]
    lines += [".B onnxbridge", r"\fICOMMAND\fR [\fIOPTIONS\fR] ...", ".SH DESCRIPTION", *_paragraphs(cli.group.help or "")]
    lines.append(".SH COMMANDS")
    for name in cli.COMMANDS:
        command = cli.group.get_command(click.Context(cli.group), name)
        assert command is not None
        context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f".SS {_text(f'onnxbridge {name} {usage}')}", *_paragraphs(command.help or ""), *_options(command, context)]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(record[1]))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of help; click leaves those after a line with \\b as they are."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):  # Python before 3.13 keeps the indentation
        if paragraph.lstrip().startswith("\b"):
            yield from (".nf", *map(_text, paragraph.replace("\b", "").strip("\n").split("\n")), ".fi")
        else:
            yield from (".PP", _text(" ".join(paragraph.split())))


def _text(text: str) -> str:
    """Text in which nothing is a command of roff."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
    return rf"\&{text}" if text.startswith((".", "'")) else text
